"""KL(p || q) in plain MLX operations; docs/numerics.md derives the forms."""

from __future__ import annotations

import math

import mlx.core as mx

from mlx_distill._ops.options import Scaling
from mlx_distill._ops.plain import (
    LOG_2,
    MASKED,
    SHRINK,
    probabilities,
    row_maximum,
    row_sum,
    row_sums,
    temper,
)

# A probability below 2 ** -1075 is 0 in float64, and counts as 0 here.
_LOG2_OF_ZERO = 1075.0


def forward(logits_q: mx.array, logits_p: mx.array, scaling: Scaling) -> tuple[mx.array, mx.array]:
    """Row losses [rows] and statistics (max_q, sum_q, max_p, sum_p) [rows, 4]."""
    top_q, top_p = row_maximum(logits_q), row_maximum(logits_p)
    q = temper(logits_q, top_q, scaling.temperature)
    p = temper(logits_p, top_p, scaling.temperature)
    sum_q, sum_p = row_sums(q.exp, p.exp)
    # Where the student's maximum has moved, every term carries that shift and log(sum_p /
    # sum_q) takes it away again. Its whole powers of 2 are taken from the terms instead; `step`
    # is ln 2 in the unit of the gaps, cut to so few bits that halvings * step is exact.
    ratio = sum_p / sum_q
    halvings = mx.round(mx.log2(ratio))
    per_gap = 1.0 / (SHRINK * scaling.temperature)
    exponent = math.frexp(LOG_2 / per_gap)[1] - 14
    step = round(math.ldexp(LOG_2 / per_gap, -exponent)) * 2.0**exponent
    cut = LOG_2 - step * per_gap
    cross = row_sum(p.exp * ((p.gap - q.gap) - halvings * step)) / sum_p * per_gap
    loss = cross - (mx.log(ratio * mx.power(2.0, -halvings)) + halvings * cut)
    loss = mx.maximum(loss, 0.0)
    # Positive only where q is masked and p is not 0: there the true loss is +inf, also
    # where p is too small for float32.
    reach = mx.max(p.log2 * (MASKED / _LOG2_OF_ZERO) - q.gap, axis=-1, keepdims=True)
    loss = mx.where(reach > 1e-5 * MASKED, mx.inf, loss)
    loss = scaling.of_value(loss)
    return loss[:, 0], mx.concatenate([top_q, sum_q, top_p, sum_p], axis=-1)


def gradient(
    logits_q: mx.array,
    logits_p: mx.array,
    cotangent: mx.array,
    statistics: mx.array,
    scaling: Scaling,
) -> mx.array:
    """Cotangent [rows] times d loss / d logits_q [rows, V]: (q - p) / T of each row."""
    top_q, sum_q, top_p, sum_p = mx.split(statistics, 4, axis=-1)
    q = temper(logits_q, top_q, scaling.temperature)
    p = temper(logits_p, top_p, scaling.temperature)
    # One quotient, exactly 1 at equality: two rounded ones would leave a difference there.
    unit = q.exp - (sum_q / sum_p) * p.exp
    # Cotangent and temperature one after the other: their product may leave float32's range.
    scaled = unit * (cotangent[:, None] / sum_q) * scaling.of_gradient
    out = mx.where(cotangent[:, None] == 0, 0.0, scaled)
    return out.astype(logits_q.dtype)


def smooth_gradient(
    logits_q: mx.array, logits_p: mx.array, cotangent: mx.array, scaling: Scaling
) -> mx.array:
    """`gradient` as a differentiable function of float32 `logits_q` and `cotangent`."""
    q = probabilities(logits_q, scaling.temperature)
    p = probabilities(logits_p, scaling.temperature)
    return cotangent[:, None] * scaling.of_gradient * (q - p)
