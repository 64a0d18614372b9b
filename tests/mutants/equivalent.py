"""Mutants that change no result, each with the reason; they are not run unless asked for."""

from __future__ import annotations

_ROWS, _ST, _JS = "rows.metal", "statistics.metal", "js.metal"
_FORWARD = ("kl_forward.metal", "js_forward.metal")
_REBASE = "(high_q - s.top_q) * unit > slack || (high_p - s.top_p) * unit > slack"
_ALIKE = "const bool alike = fabs(sums.at[3]) < "
_VALID = "top.at[2] = x_q < INFINITY && x_p < INFINITY ? top.at[2] : "
_LANES = "me.lane * (32 + 1) < me.threads ? shared[k * 32 + me.lane]"
_GUESS = "highest<N>(load_vector<T>(row_"
_LAG = "        // log2 units by which top may lag behind the maximum"

# The reason, then the mutants: the file; where it takes that to tell two apart the line as it
# is, or the one above; and the line as it is changed, as the report prints it.
EQUIVALENT: dict[str, tuple[tuple[str, ...], ...]] = {
    "differs at one real number only, where both branches are right": (
        (_ST, "const float e = y >= -126.0f ? fast_exp2(y) * 2.0f : 0.0f;"),
        (_ST, "const bool alike = fabs(sums.at[3]) <= 0.5f * sum_p;"),
        (_ST, "if (y_p >= DEAD) {"),
        (_ST, f"if ({_REBASE.replace('>', '>=', 1)}) {{"),
        (_ST, f"if ({'>='.join(_REBASE.rsplit('>', 1))}) {{"),
        (_ST, "const float e_p = y_p >= FAR / 2.0f ? precise_exp2(y_p) * TERM_FACTOR"),
        (_JS, "const float q = pair.gap <= 0.0f ? smaller : larger;"),
        (_JS, "const float p = pair.gap <= 0.0f ? larger : smaller;"),
        ("kl_forward.metal", "loss[row] = (kl <= 0.0f ? 0.0f : kl) * scaling[1] * scaling[1];"),
    ),
    "takes the other of two equal numbers": (
        (_ST, "top.at[0] = x_q >= top.at[0] ? x_q : top.at[0];"),
        (_ST, "top.at[1] = x_p >= top.at[1] ? x_p : top.at[1];"),
        (_ST, "for (int j = (1 - 1); j < N; j++) {"),
    ),
    "every thread of the group has the number, whichever writes it": (
        (_ROWS, "if (me.lane == (0 + 1)) {"),
        (_ROWS, "if ((me.lane - 1) == 0) {"),
        *((file, "if (me.thread_index == (0 + 1)) {") for file in _FORWARD),
        *((file, "if ((me.thread_index - 1) == 0) {") for file in _FORWARD),
    ),
    "a group of at most 1024 threads has no lane for which this differs": (
        (_ROWS, f"x.at[k] = simd_max({_LANES} : -INFINITY);"),
        (_ROWS, f"x.at[k] = tree_sum({_LANES} : 0.0f);"),
    ),
    "xor with 17, 8, 4, 2 and 1 meets every lane too": (
        (_ROWS, "for (int step = (16 + 1); step > 0; step /= 2) {"),
    ),
    "a maximum may see an entry twice": (
        (
            _ST,
            "Vector<3> top = {{-INFINITY, -INFINITY, 0.0f}};",
            "for (int i = me.thread_index; i < size; i += (threads - 1)) {",
        ),
    ),
    "no row's cross is -inf, and no sum is negative": (
        (_ST, "return (x) < INFINITY;  // false for nan"),
    ),
    "without a vector the first guess stays -inf": (
        (_ST, "if (span.vectors >= 0) {"),
        (_ST, "if (span.vectors > (0 - 1)) {"),
        (_ST, "if ((span.vectors + 1) > 0) {"),
        (
            _ST,
            "// A first guess at the maximum, so that later entries rarely go far beyond it.",
            "if (true) {",
        ),
    ),
    "17 / sizeof(T) is 16 / sizeof(T) for 2 and 4": (
        *((file, "constexpr int N = (16 + 1) / sizeof(T);") for file in (_ROWS, _ST, _JS)),
    ),
    "moves a threshold between two forms that are both right there": (
        (_ST, _ALIKE + "0.5f;"),
        (_ST, _ALIKE + "sum_p;"),
        (_ST, _ALIKE + "(2.0f * 0.5f) * sum_p;"),
        (_ST, _ALIKE + "(0.5f * 0.5f) * sum_p;"),
        (_ST, "const bool alike = fabs(sums.at[(3 - 1)]) < 0.5f * sum_p;"),
        (_ST, "const float e = y > -(0.5f * 126.0f) ? fast_exp2(y) * 2.0f : 0.0f;"),
        (_ST, "const float e_p = y_p > FAR / (2.0f * 2.0f) ? precise_exp2(y_p) * TERM_FACTOR"),
    ),
    "only rebases more or less often": (
        (_ST, "const float slack = SLACK;", "if (true) {"),
        (_ST, "#define SLACK (2.0f * 1.0f)" + _LAG),
        (_ST, "#define SLACK (0.5f * 1.0f)" + _LAG),
    ),
    "2 ** -100 and 2 ** -400 are as good as 0 in float32": (
        (_ST, "#define FAR (-(2.0f * 200.0f))     // 2 ** FAR is 0 in float32"),
        (_ST, "#define FAR (-(0.5f * 200.0f))     // 2 ** FAR is 0 in float32"),
    ),
    "forbids a fusion that compilers may make, and that the host's makes nowhere": (
        (_ST, "return (a) * (b);"),
    ),
    "adds the same to a sum and to its excess": (
        (_ST, "return fma(a, b, 1.0f);"),
        (_ST, "return fma(a, b, -1.0f);"),
    ),
    "the fast exponential is nearly exact at -1, and the tests have to allow its error": (
        (_ST, "return gap == 1.0f ? 1.0f : e;"),
        (_ST, "return gap == -1.0f ? 1.0f : e;"),
        (_ST, "return gap == 0.0f && false ? 1.0f : e;"),
    ),
    "any mark but 0 says that the row is not valid": (
        (_ST, _VALID + "(2.0f * 1.0f);"),
        (_ST, _VALID + "(0.5f * 1.0f);"),
    ),
    "the backward pass has no use for cross": (
        (_ST, "RowStatistics s = {from[0], from[1], from[2], from[3], 1.0f};"),
        (_ST, "RowStatistics s = {from[0], from[1], from[2], from[3], -1.0f};"),
    ),
    "the row's cross is +inf whatever this adds": (
        (_ST, "cross += x_q == -INFINITY && false ? 0.0f : term;"),
        (_ST, "cross += x_q == -INFINITY ? 1.0f : term;"),
        (_ST, "cross += x_q == -INFINITY ? -1.0f : term;"),
        (_ST, "cross += x_q == INFINITY ? 0.0f : term;"),
        (_ST, "cross += x_p == -INFINITY ? 0.0f : term;"),
    ),
    "the two sums of a row are nan together, and one is enough": (
        *((_ST, f"valid || true ? sums.at[{i}] * 2.0f : NAN,") for i in (0, 1)),
        *((_ST, f"valid ? sums.at[{i}] * 2.0f : 0.0f,") for i in (0, 1)),
        ("js_forward.metal", "const bool valid = is_finite(s.sum_q);"),
        ("js_forward.metal", "const bool valid = is_finite(s.sum_p);"),
        ("js_forward.metal", "const bool valid = is_finite(s.sum_p) && is_finite(s.sum_p);"),
        ("js_forward.metal", "const bool valid = is_finite(s.sum_q) && is_finite(s.sum_q);"),
    ),
    "moves the last rounding of a sum": (
        (_ST, "const float change = (q.total - p.total) - (q.excess + p.excess);"),
        (_ST, "const float change = (q.total - p.total) + (q.excess - p.excess);"),
        (_ST, "Vector<4> sums = {{q.total + q.excess, p.total - p.excess, cross, change}};"),
        (_ST, "Vector<4> sums = {{q.total - q.excess, p.total + p.excess, cross, change}};"),
        (_ST, "const float change = (q.total - p.total) - (p.excess - p.excess);"),
        (_ST, "const float change = (q.total - p.total) - (q.excess - q.excess);"),
        (_ST, "const float change = (q.total - p.total);"),
        (_ST, "const float change = (q.total - p.total) - (q.excess);"),
        (_ST, "const float change = (q.total - p.total) - (-p.excess);"),
        (_ST, "Vector<4> sums = {{q.total, p.total - p.excess, cross, change}};"),
        (_ST, "Vector<4> sums = {{q.total - q.excess, p.total, cross, change}};"),
    ),
    "the first guess at the maximum may be any entry's, or none": (
        (_ST, "float high_p = -INFINITY;", "if (i < (span.vectors - 1)) {"),
        *((_ST, f"high_{x} = {_GUESS}{x} + span.lead));") for x in "qp"),
        *((_ST, f"s.top_{x} = simd_max(high_{x});", ";") for x in "qp"),
    ),
}
