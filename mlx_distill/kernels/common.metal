// What the kernels share. A row's softmax is kept as a pair (top, sum):
//   probability(x) = 2 ** ((x - top) * unit) / sum,  unit = log2(e) / temperature,
// where top is the row's maximum to within SLACK, so that no common offset is ever rounded.

#define SLACK 16.0f       // log2 units by which top may lag behind the maximum
#define FAR (-200.0f)     // 2 ** FAR is 0 in float32
#define DEAD (-1076.0f)   // half of 2 ** -1075, which is 0 in float64: counts as 0
#define LOG_2 0.693147180559945309f
#define GAP_SCALE 5.421010862427522e-20f  // 2 ** -64: no gap of finite logits overflows
#define TERM_SCALE 40.0f  // log2 of what keeps a small probability times such a gap in range

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

struct RowStatistics {
    float top_q;
    float sum_q;
    float top_p;
    float sum_p;
    float cross;  // sum of 2 ** y_p * (y_p - y_q); at the end its mean under p, in nats
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

template <int K>
FUNCTION Vector<K> group_sum(Vector<K> x, Lane me, SHARED shared) {
    for (int k = 0; k < K; k++) {
        x.at[k] = simd_sum(x.at[k]);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int k = 0; k < K; k++) {
        if (me.lane == 0) {
            shared[k * 32 + me.simd_group] = x.at[k];
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int k = 0; k < K; k++) {
        x.at[k] = simd_sum(me.lane * 32 < me.threads ? shared[k * 32 + me.lane] : 0.0f);
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

// One less than the tempered gap in log2 units: the fast exponential never sees a denormal,
// and the factor of a half is one that sums and terms have in common.
FUNCTION float log2_term(float x, float top, float unit) {
    return fma(x - top, unit, -1.0f);
}

FUNCTION float decay(float shift) {
    return shift > -126.0f ? fast_exp2(shift - 1.0f) * 2.0f : 0.0f;
}

FUNCTION RowStatistics rebase(RowStatistics s, float top_q, float top_p, float unit) {
    const float shift_q = (s.top_q - top_q) * unit;
    const float shift_p = (s.top_p - top_p) * unit;
    const float decay_p = decay(shift_p);
    // A cross that is not finite stays so, also times 0.
    s.cross *= decay_p;
    s.cross += decay_p > 0.0f ? decay_p * s.sum_p * (shift_p - shift_q) : 0.0f;
    s.sum_q *= decay(shift_q);
    s.sum_p *= decay_p;
    s.top_q = top_q;
    s.top_p = top_p;
    return s;
}

template <int N>
FUNCTION RowStatistics accumulate(RowStatistics s, Vector<N> x_q, Vector<N> x_p, float unit) {
    float high_q = x_q.at[0];
    float high_p = x_p.at[0];
    for (int j = 1; j < N; j++) {
        high_q = max(high_q, x_q.at[j]);
        high_p = max(high_p, x_p.at[j]);
    }
    const float slack = SLACK;
    if ((high_q - s.top_q) * unit > slack || (high_p - s.top_p) * unit > slack) {
        s = rebase(s, max(high_q, s.top_q), max(high_p, s.top_p), unit);
    }
    for (int j = 0; j < N; j++) {
        const float y_q = log2_term(x_q.at[j], s.top_q, unit);
        const float y_p = log2_term(x_p.at[j], s.top_p, unit);
        const float e_p = fast_exp2(y_p);
        s.sum_q += fast_exp2(y_q);
        s.sum_p += e_p;
        s.cross = fma(e_p, y_p - y_q, s.cross);
    }
    return s;
}

FUNCTION bool is_finite(float x) {
    return fabs(x) < INFINITY;  // false for nan
}

// One pass over both rows. If the result's cross is not finite, the row holds an infinity,
// a nan or a gap out of range, and careful_statistics has to look at it again.
template <typename T, typename Q, typename P>
FUNCTION RowStatistics row_statistics(
    Q row_q, P row_p, int size, float unit, Lane me, SHARED shared) {
    constexpr int N = 16 / sizeof(T);
    RowStatistics s = {-INFINITY, 0.0f, -INFINITY, 0.0f, 0.0f};
    const int lead = misaligned<T>(row_q);
    const Span span = make_span<N>(size, lead, lead == misaligned<T>(row_p));
    const int threads = me.threads;
    int i = me.thread_index;
    for (; i + threads < span.vectors; i += 2 * threads) {
        const int j = i + threads;
        const Vector<N> q_0 = load_vector<T>(row_q + span.lead + i * N);
        const Vector<N> p_0 = load_vector<T>(row_p + span.lead + i * N);
        const Vector<N> q_1 = load_vector<T>(row_q + span.lead + j * N);
        const Vector<N> p_1 = load_vector<T>(row_p + span.lead + j * N);
        s = accumulate<N>(s, q_0, p_0, unit);
        s = accumulate<N>(s, q_1, p_1, unit);
    }
    if (i < span.vectors) {
        s = accumulate<N>(
            s,
            load_vector<T>(row_q + span.lead + i * N),
            load_vector<T>(row_p + span.lead + i * N),
            unit);
    }
    for (int edge = me.thread_index; edge < span.edges; edge += threads) {
        const int k = edge_index<N>(span, edge);
        const Vector<1> x_q = {{float(row_q[k])}};
        const Vector<1> x_p = {{float(row_p[k])}};
        s = accumulate<1>(s, x_q, x_p, unit);
    }
    Vector<2> top = {{s.top_q, s.top_p}};
    top = group_max<2>(top, me, shared);
    s = rebase(s, top.at[0], top.at[1], unit);
    Vector<3> sums = {{s.sum_q, s.sum_p, s.cross}};
    sums = group_sum<3>(sums, me, shared);
    s.sum_q = sums.at[0] * 2.0f;
    s.sum_p = sums.at[1] * 2.0f;
    s.cross = LOG_2 * sums.at[2] / sums.at[1];
    return s;
}

// The same for any row, entry by entry. A row that holds nan or +inf or nothing finite ends
// with sums of nan. cross is +inf where q is 0 and p is not.
template <typename T, typename Q, typename P>
FUNCTION RowStatistics careful_statistics(
    Q row_q, P row_p, int size, float unit, Lane me, SHARED shared) {
    const int threads = me.threads;
    Vector<3> top = {{-INFINITY, -INFINITY, 0.0f}};
    for (int i = me.thread_index; i < size; i += threads) {
        const float x_q = float(row_q[i]);
        const float x_p = float(row_p[i]);
        top.at[0] = x_q > top.at[0] ? x_q : top.at[0];
        top.at[1] = x_p > top.at[1] ? x_p : top.at[1];
        top.at[2] = x_q < INFINITY && x_p < INFINITY ? top.at[2] : 1.0f;
    }
    top = group_max<3>(top, me, shared);
    RowStatistics s = {top.at[0], 0.0f, top.at[1], 0.0f, 0.0f};
    bool impossible = false;
    for (int i = me.thread_index; i < size; i += threads) {
        const float x_q = float(row_q[i]);
        const float x_p = float(row_p[i]);
        const float y_q = log2_term(x_q, s.top_q, unit);
        const float y_p = log2_term(x_p, s.top_p, unit);
        s.sum_q += fast_exp2(max(y_q, FAR));
        s.sum_p += fast_exp2(max(y_p, FAR));
        if (y_p > DEAD) {
            const float gap_q = x_q * GAP_SCALE - s.top_q * GAP_SCALE;
            const float gap_p = x_p * GAP_SCALE - s.top_p * GAP_SCALE;
            const float term = precise_exp2(y_p + TERM_SCALE) * (gap_p - gap_q);
            impossible = impossible || x_q == -INFINITY;
            s.cross += x_q == -INFINITY ? 0.0f : term;
        }
    }
    Vector<3> sums = {{s.sum_q, s.sum_p, impossible ? INFINITY : s.cross}};
    sums = group_sum<3>(sums, me, shared);
    const bool valid = top.at[2] == 0.0f && s.top_q > -INFINITY && s.top_p > -INFINITY;
    s.sum_q = valid ? sums.at[0] * 2.0f : NAN;
    s.sum_p = valid ? sums.at[1] * 2.0f : NAN;
    // 1 / temperature before 2 ** 24, and never in log2 units: nothing overflows before its time.
    s.cross = sums.at[2] / sums.at[1] * (LOG_2 * unit) * 16777216.0f;
    return s;
}

template <typename P>
FUNCTION void write_statistics(P to, RowStatistics s) {
    to[0] = s.top_q;
    to[1] = s.sum_q;
    to[2] = s.top_p;
    to[3] = s.sum_p;
}

template <typename P>
FUNCTION RowStatistics read_statistics(P from) {
    RowStatistics s = {from[0], from[1], from[2], from[3], 0.0f};
    return s;
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
