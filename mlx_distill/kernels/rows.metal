// How a threadgroup goes through a row: its threads, its vector loads, its reductions.

struct Lane {
    uint thread_index;
    uint threads;
    uint lane;
    uint simd_group;
};

template <int N>
struct Vector {
    float at[N];
};

// The part of a row that vector loads cover, and the entries at its ends that they do not.
struct Span {
    int lead;
    int vectors;
    int edges;
};

template <int N>
FUNCTION Span make_span(int size, int lead, bool aligned) {
    Span span;
    span.lead = min(lead, size);
    span.vectors = aligned ? (size - span.lead) / N : 0;
    span.edges = size - span.vectors * N;
    return span;
}

template <int N>
FUNCTION int edge_index(Span span, int edge) {
    return edge < span.lead ? edge : edge + span.vectors * N;
}

// The order is part of the result: one sum after another would round too often.
FUNCTION float tree_sum(float x) {
    for (int step = 16; step > 0; step /= 2) {
        x += simd_shuffle_xor(x, ushort(step));
    }
    return x;
}

template <int K>
FUNCTION Vector<K> group_sum(Vector<K> x, Lane me, SHARED shared) {
    for (int k = 0; k < K; k++) {
        x.at[k] = tree_sum(x.at[k]);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int k = 0; k < K; k++) {
        if (me.lane == 0) {
            shared[k * 32 + me.simd_group] = x.at[k];
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int k = 0; k < K; k++) {
        x.at[k] = tree_sum(me.lane * 32 < me.threads ? shared[k * 32 + me.lane] : 0.0f);
    }
    return x;
}

template <int K>
FUNCTION Vector<K> group_max(Vector<K> x, Lane me, SHARED shared) {
    for (int k = 0; k < K; k++) {
        x.at[k] = simd_max(x.at[k]);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int k = 0; k < K; k++) {
        if (me.lane == 0) {
            shared[k * 32 + me.simd_group] = x.at[k];
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int k = 0; k < K; k++) {
        x.at[k] = simd_max(me.lane * 32 < me.threads ? shared[k * 32 + me.lane] : -INFINITY);
    }
    return x;
}

template <typename T, typename O>
FUNCTION void fill_zero(O row, int size, Lane me) {
    const int threads = me.threads;
    for (int i = me.thread_index; i < size; i += threads) {
        row[i] = static_cast<T>(0.0f);
    }
}

// row[i] = term(row_q[i], row_p[i]) for the whole row.
template <typename T, typename O, typename Q, typename P, typename Term>
FUNCTION void write_gradient(O row, Q row_q, P row_p, int size, Term term, Lane me) {
    constexpr int N = 16 / sizeof(T);
    const int threads = me.threads;
    const int lead = misaligned<T>(row);
    const bool aligned = lead == misaligned<T>(row_q) && lead == misaligned<T>(row_p);
    const Span span = make_span<N>(size, lead, aligned);
    for (int i = me.thread_index; i < span.vectors; i += threads) {
        const int at = span.lead + i * N;
        const Vector<N> x_q = load_vector<T>(row_q + at);
        const Vector<N> x_p = load_vector<T>(row_p + at);
        Vector<N> out;
        for (int j = 0; j < N; j++) {
            out.at[j] = term(x_q.at[j], x_p.at[j]);
        }
        store_vector<T>(row + at, out);
    }
    for (int edge = me.thread_index; edge < span.edges; edge += threads) {
        const int k = edge_index<N>(span, edge);
        row[k] = static_cast<T>(term(float(row_q[k]), float(row_p[k])));
    }
}
