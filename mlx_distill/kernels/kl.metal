// d KL(p || q) / d x_q, scaled. The ratio of the sums is exactly 1 at equality, where two
// quotients and a contracted product would leave a difference.
struct KLGradient {
    float top_q;
    float top_p;
    float unit;
    float over_sum;  // cotangent over the sum: times of_gradient it may leave float32's range
    float of_gradient;
    float ratio;

    FUNCTION float operator()(float x_q, float x_p) const {
        const float e_q = fast_exp2(max(log2_term(x_q, top_q, unit), FAR));
        const float e_p = fast_exp2(max(log2_term(x_p, top_p, unit), FAR));
        return (e_q - ratio * e_p) * over_sum * of_gradient;
    }
};
