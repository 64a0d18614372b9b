// Everything in log2 units, from one exponential and one logarithm of the ratio of p and q,
// which never leave [0, 1] and [-1, 0].
struct JSTerm {
    float top_q;
    float log_sum_q;
    float top_p;
    float log_sum_p;
    float unit;
};

struct JSPair {
    float y_q;      // log2(q), not below FAR
    float y_p;
    float gap;      // y_q - y_p
    float smaller;  // the smaller probability over the larger
    float mean;     // log2(m over the larger probability)
};

FUNCTION JSTerm make_js_term(RowStatistics s, float unit) {
    const JSTerm term = {
        s.top_q, precise_log2(s.sum_q), s.top_p, precise_log2(s.sum_p), unit};
    return term;
}

FUNCTION JSPair js_pair(JSTerm t, float x_q, float x_p) {
    JSPair pair;
    pair.y_q = max(fma(x_q - t.top_q, t.unit, -t.log_sum_q), FAR);
    pair.y_p = max(fma(x_p - t.top_p, t.unit, -t.log_sum_p), FAR);
    pair.gap = pair.y_q - pair.y_p;
    pair.smaller = fast_exp2(-fabs(pair.gap));
    // The fast functions need not be exact at 0 and 1; equality has to be.
    pair.mean = pair.gap == 0.0f ? 0.0f : fast_log2(0.5f + 0.5f * pair.smaller);
    return pair;
}

FUNCTION Vector<2> add_js(Vector<2> sums, JSPair pair) {
    const float larger = fast_exp2(max(pair.y_q, pair.y_p));
    const float smaller = larger * pair.smaller;
    const float q = pair.gap < 0.0f ? smaller : larger;
    const float p = pair.gap < 0.0f ? larger : smaller;
    sums.at[0] = fma(q, min(pair.gap, 0.0f) - pair.mean, sums.at[0]);
    sums.at[1] = fma(p, min(-pair.gap, 0.0f) - pair.mean, sums.at[1]);
    return sums;
}

// Row sums of q log2(q / m) and p log2(p / m).
template <typename T, typename Q, typename P>
FUNCTION Vector<2> js_sums(Q row_q, P row_p, int size, JSTerm t, Lane me, SHARED shared) {
    constexpr int N = 16 / sizeof(T);
    Vector<2> sums = {{0.0f, 0.0f}};
    const int threads = me.threads;
    const int lead = misaligned<T>(row_q);
    const Span span = make_span<N>(size, lead, lead == misaligned<T>(row_p));
    for (int i = me.thread_index; i < span.vectors; i += threads) {
        const Vector<N> x_q = load_vector<T>(row_q + span.lead + i * N);
        const Vector<N> x_p = load_vector<T>(row_p + span.lead + i * N);
        for (int j = 0; j < N; j++) {
            sums = add_js(sums, js_pair(t, x_q.at[j], x_p.at[j]));
        }
    }
    for (int edge = me.thread_index; edge < span.edges; edge += threads) {
        const int k = edge_index<N>(span, edge);
        sums = add_js(sums, js_pair(t, float(row_q[k]), float(row_p[k])));
    }
    return group_sum<2>(sums, me, shared);
}

struct JSGradient {
    JSTerm term;
    float cotangent;
    float of_gradient;
    float kl_q;  // KL(q || m), log2

    FUNCTION float operator()(float x_q, float x_p) const {
        const JSPair pair = js_pair(term, x_q, x_p);
        const float unit = fast_exp2(pair.y_q) * (min(pair.gap, 0.0f) - pair.mean - kl_q);
        return unit * (0.5f * LOG_2 * cotangent) * of_gradient;
    }
};
