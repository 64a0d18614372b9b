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
if (me.thread_index == 0) {
    const float kl = s.cross - LOG_2 * precise_log2(s.sum_p / s.sum_q);
    loss[row] = (kl < 0.0f ? 0.0f : kl) * scaling[1] * scaling[1];
    write_statistics(statistics + size_t(row) * 4, s);
}
