const Lane me = {
    thread_index_in_threadgroup,
    threads_per_threadgroup.x,
    thread_index_in_simdgroup,
    simdgroup_index_in_threadgroup};
const uint row = threadgroup_position_in_grid.x;
const int size = logits_q_shape[1];
const size_t start = size_t(row) * size_t(size);
const float c = cotangent[row];

if (c == 0.0f) {
    fill_zero<T>(gradient + start, size, me);
} else {
    const RowStatistics s = read_statistics(statistics + size_t(row) * 5);
    const JSGradient term = {
        make_js_term(s, scaling[0]),
        c,
        scaling[2],
        statistics[size_t(row) * 5 + 4] / LOG_2};
    write_gradient<T>(gradient + start, logits_q + start, logits_p + start, size, term, me);
}
