threadgroup float shared[4 * 32];
const Lane me = {
    thread_index_in_threadgroup,
    threads_per_threadgroup.x,
    thread_index_in_simdgroup,
    simdgroup_index_in_threadgroup};
const uint row = threadgroup_position_in_grid.x;
const int size = logits_q_shape[1];
const size_t start = size_t(row) * size_t(size);
const float unit = scaling[0];

RowStatistics s =
    row_statistics<T>(logits_q + start, logits_p + start, size, unit, me, shared);
if (!is_finite(s.cross)) {
    s = careful_statistics<T>(logits_q + start, logits_p + start, size, unit, me, shared);
}
const JSTerm term = make_js_term(s, unit);
const Vector<2> sums =
    js_sums<T>(logits_q + start, logits_p + start, size, term, me, shared);
if (me.thread_index == 0) {
    const bool valid = is_finite(s.sum_q) && is_finite(s.sum_p);
    const float js = min(max(0.5f * LOG_2 * (sums.at[0] + sums.at[1]), 0.0f), LOG_2);
    loss[row] = (valid ? js : NAN) * scaling[1] * scaling[1];
    write_statistics(statistics + size_t(row) * 5, s);
    statistics[size_t(row) * 5 + 4] = valid ? LOG_2 * sums.at[0] : NAN;
}
