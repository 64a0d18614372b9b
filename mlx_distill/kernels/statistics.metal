// A row's softmax, in one pass. It is kept as a pair (top, sum):
//   probability(x) = 2 ** ((x - top) * unit) / sum,  unit = log2(e) / temperature,
// where top is the row's maximum to within SLACK, so that no common offset is ever rounded.

#define SLACK 1.0f        // log2 units by which top may lag behind the maximum
#define FAR (-200.0f)     // 2 ** FAR is 0 in float32
#define DEAD (-1076.0f)   // half of 2 ** -1075, which is 0 in float64: counts as 0
#define WIDE 1e26f        // a gap that 2 ** -126 of a whole vocabulary makes nothing of
#define LOG_2 0.693147180559945309f
#define GAP_SCALE 5.421010862427522e-20f  // 2 ** -64: no gap of finite logits overflows
#define TERM_SCALE 40.0f  // log2 of what keeps a small probability times such a gap in range
#define TERM_FACTOR 1099511627776.0f

// A sum that carries what its additions lost (Kahan). Next to a probability near 1 each of
// hundreds of additions drops up to 6e-8, and q - p at that entry would be made of that.
struct Sum {
    float total;
    float excess;
};

// What one thread knows of its part of a row; y is the log2_term of an entry.
struct Running {
    float top_q;
    float low_q;  // the least x_q
    Sum q;        // of 2 ** y_q
    float top_p;
    Sum p;
    float cross;  // sum of 2 ** y_p * (y_p - y_q)
};

struct RowStatistics {
    float top_q;
    float sum_q;
    float top_p;
    float sum_p;
    float cross;  // mean under p of the tempered gap of p less that of q, in nats
};

// One less than the tempered gap in log2 units: the fast exponential never sees a denormal,
// and the factor of a half is one that sums and terms have in common.
FUNCTION float log2_term(float x, float top, float unit) {
    return fma(x - top, unit, -1.0f);
}

// 2 ** (gap * unit) for a gap <= 0: exactly 1 at 0, and 0 for a gap of -inf or nan.
FUNCTION float falloff(float gap, float unit) {
    const float y = fma(gap, unit, -1.0f);
    const float e = y > -126.0f ? fast_exp2(y) * 2.0f : 0.0f;
    return gap == 0.0f ? 1.0f : e;
}

// a * b, which no compiler may fuse with an addition that follows: both sides of a row have
// to be rounded alike, or equal logits end a unit in the last place apart.
FUNCTION float product(float a, float b) {
    return fma(a, b, 0.0f);
}

FUNCTION Sum add(Sum sum, float x) {
    const float corrected = x - sum.excess;
    const float total = sum.total + corrected;
    sum.excess = (total - sum.total) - corrected;
    sum.total = total;
    return sum;
}

FUNCTION Sum scaled(Sum sum, float factor) {
    sum.total = product(sum.total, factor);
    sum.excess = product(sum.excess, factor);
    return sum;
}

FUNCTION Running rebase(Running s, float top_q, float top_p, float unit) {
    const float gap_q = s.top_q - top_q;
    const float gap_p = s.top_p - top_p;
    const float falloff_p = falloff(gap_p, unit);
    // A cross that is not finite stays so, also times 0.
    s.cross *= falloff_p;
    s.cross += falloff_p > 0.0f ? falloff_p * s.p.total * ((gap_p - gap_q) * unit) : 0.0f;
    s.q = scaled(s.q, falloff(gap_q, unit));
    s.p = scaled(s.p, falloff_p);
    s.top_q = top_q;
    s.top_p = top_p;
    return s;
}

template <int N>
FUNCTION float highest(Vector<N> x) {
    float high = x.at[0];
    for (int j = 1; j < N; j++) {
        high = max(high, x.at[j]);
    }
    return high;
}

template <int N>
FUNCTION float lowest(Vector<N> x) {
    float low = x.at[0];
    for (int j = 1; j < N; j++) {
        low = min(low, x.at[j]);
    }
    return low;
}

template <int N>
FUNCTION Running accumulate(Running s, Vector<N> x_q, Vector<N> x_p, float unit) {
    const float high_q = highest<N>(x_q);
    const float high_p = highest<N>(x_p);
    s.low_q = min(s.low_q, lowest<N>(x_q));
    const float slack = SLACK;
    if ((high_q - s.top_q) * unit > slack || (high_p - s.top_p) * unit > slack) {
        s = rebase(s, max(high_q, s.top_q), max(high_p, s.top_p), unit);
    }
    float sum_q = 0.0f;
    float sum_p = 0.0f;
    float cross = 0.0f;
    // What the fast exponential makes of an infinity or a nan does not matter: y_p - y_q, and
    // with it cross, is then not finite, and the row is read again with care.
    for (int j = 0; j < N; j++) {
        const float y_q = log2_term(x_q.at[j], s.top_q, unit);
        const float y_p = log2_term(x_p.at[j], s.top_p, unit);
        const float e_p = fast_exp2(y_p);
        sum_q += fast_exp2(y_q);
        sum_p += e_p;
        cross = fma(e_p, y_p - y_q, cross);
    }
    s.q = add(s.q, sum_q);
    s.p = add(s.p, sum_p);
    s.cross += cross;
    return s;
}

// The row's sums of q, p and cross. Where both sides are alike, q - p is made of how their
// two sums were rounded, so there the one is the other plus the sum of the differences.
FUNCTION Vector<3> row_sums(Sum q, Sum p, float cross, Lane me, SHARED shared) {
    const float change = (q.total - p.total) - (q.excess - p.excess);
    Vector<4> sums = {{q.total - q.excess, p.total - p.excess, cross, change}};
    sums = group_sum<4>(sums, me, shared);
    const float sum_p = sums.at[1];
    const bool alike = fabs(sums.at[3]) < 0.5f * sum_p;
    const Vector<3> row = {{alike ? sum_p + sums.at[3] : sums.at[0], sum_p, sums.at[2]}};
    return row;
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
    Running s = {-INFINITY, INFINITY, {0.0f, 0.0f}, -INFINITY, {0.0f, 0.0f}, 0.0f};
    const int lead = misaligned<T>(row_q);
    const Span span = make_span<N>(size, lead, lead == misaligned<T>(row_p));
    const int threads = me.threads;
    int i = me.thread_index;
    // A first guess at the maximum, so that later entries rarely go far beyond it.
    if (span.vectors > 0) {
        float high_q = -INFINITY;
        float high_p = -INFINITY;
        if (i < span.vectors) {
            high_q = highest<N>(load_vector<T>(row_q + span.lead + i * N));
            high_p = highest<N>(load_vector<T>(row_p + span.lead + i * N));
        }
        s.top_q = simd_max(high_q);
        s.top_p = simd_max(high_p);
    }
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
    Vector<3> top = {{s.top_q, s.top_p, -s.low_q}};
    top = group_max<3>(top, me, shared);
    s = rebase(s, top.at[0], top.at[1], unit);
    const Vector<3> sums = row_sums(s.q, s.p, s.cross, me, shared);
    // A probability too small for this pass may still meet a gap so large that it counts.
    const bool narrow = (top.at[0] + top.at[2]) * unit < WIDE;
    const RowStatistics row = {
        s.top_q,
        sums.at[0] * 2.0f,
        s.top_p,
        sums.at[1] * 2.0f,
        narrow ? LOG_2 * sums.at[2] / sums.at[1] : INFINITY};
    return row;
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
    const float top_q = top.at[0];
    const float top_p = top.at[1];
    Sum sum_q = {0.0f, 0.0f};
    Sum sum_p = {0.0f, 0.0f};
    float cross = 0.0f;
    bool impossible = false;
    for (int i = me.thread_index; i < size; i += threads) {
        const float x_q = float(row_q[i]);
        const float x_p = float(row_p[i]);
        const float y_q = log2_term(x_q, top_q, unit);
        const float y_p = log2_term(x_p, top_p, unit);
        sum_q = add(sum_q, fast_exp2(max(y_q, FAR)));
        sum_p = add(sum_p, fast_exp2(max(y_p, FAR)));
        if (y_p > DEAD) {
            const float gap_q = x_q * GAP_SCALE - top_q * GAP_SCALE;
            const float gap_p = x_p * GAP_SCALE - top_p * GAP_SCALE;
            // y_p + TERM_SCALE would round away too much of a y_p near 0.
            const float e_p = y_p > FAR / 2.0f ? precise_exp2(y_p) * TERM_FACTOR
                                               : precise_exp2(y_p + TERM_SCALE);
            const float term = e_p * (gap_p - gap_q);
            impossible = impossible || x_q == -INFINITY;
            cross += x_q == -INFINITY ? 0.0f : term;
        }
    }
    const Vector<3> sums = row_sums(sum_q, sum_p, impossible ? INFINITY : cross, me, shared);
    const bool valid = top.at[2] == 0.0f && top_q > -INFINITY && top_p > -INFINITY;
    const RowStatistics row = {
        top_q,
        valid ? sums.at[0] * 2.0f : NAN,
        top_p,
        valid ? sums.at[1] * 2.0f : NAN,
        // 1 / temperature before 2 ** 24, and nats throughout: nothing overflows too early.
        sums.at[2] / sums.at[1] * (LOG_2 * unit) * 16777216.0f};
    return row;
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
