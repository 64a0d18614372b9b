"""JS(p, q) in plain MLX operations; docs/numerics.md derives the forms."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx

from mlx_distill._ops.options import Scaling
from mlx_distill._ops.plain import (
    LOG_2,
    SHRINK,
    probabilities,
    row_maximum,
    row_sum,
    row_sums,
    temper,
)

# Added to both sides of a ratio of probabilities so that 0 / 0 is 1.
_TINY = 1e-37


# Beyond this log-ratio the smaller probability is 0 in float32.
_MAX_LOG_RATIO = 200.0


class _Mixture(NamedTuple):
    """Probabilities [rows, V] and their logs against the mixture m = (p + q) / 2."""

    q: mx.array
    p: mx.array
    log_q_over_m: mx.array
    log_p_over_m: mx.array


def _mix(
    logits_q: mx.array,
    logits_p: mx.array,
    top_q: mx.array,
    top_p: mx.array,
    temperature: float,
    sums: tuple[mx.array, mx.array] | None = None,
) -> tuple[_Mixture, mx.array, mx.array]:
    """The mixture, and the row sums of both sides' exponentials unless `sums` has them."""
    q = temper(logits_q, top_q, temperature)
    p = temper(logits_p, top_p, temperature)
    sum_q, sum_p = sums if sums is not None else row_sums(q.exp, p.exp)
    prob_q, prob_p = q.exp / sum_q, p.exp / sum_p
    log_ratio = (p.gap - q.gap) * (1.0 / (SHRINK * temperature)) - mx.log(sum_p / sum_q)
    log_ratio = mx.minimum(mx.maximum(log_ratio, -_MAX_LOG_RATIO), _MAX_LOG_RATIO)
    ratio = (mx.minimum(prob_q, prob_p) + _TINY) / (mx.maximum(prob_q, prob_p) + _TINY)
    log_larger_over_m = -mx.log(0.5 + 0.5 * ratio)
    mixture = _Mixture(
        prob_q,
        prob_p,
        log_larger_over_m - mx.maximum(log_ratio, 0.0),
        log_larger_over_m + mx.minimum(log_ratio, 0.0),
    )
    return mixture, sum_q, sum_p


def forward(logits_q: mx.array, logits_p: mx.array, scaling: Scaling) -> tuple[mx.array, mx.array]:
    """Row losses [rows] and statistics (max_q, sum_q, max_p, sum_p, KL(q || m)) [rows, 5]."""
    top_q, top_p = row_maximum(logits_q), row_maximum(logits_p)
    m, sum_q, sum_p = _mix(logits_q, logits_p, top_q, top_p, scaling.temperature)
    kl_q = row_sum(m.q * m.log_q_over_m)
    kl_p = row_sum(m.p * m.log_p_over_m)
    loss = mx.minimum(mx.maximum(0.5 * (kl_q + kl_p), 0.0), LOG_2)
    loss = scaling.of_value(loss)
    return loss[:, 0], mx.concatenate([top_q, sum_q, top_p, sum_p, kl_q], axis=-1)


def gradient(
    logits_q: mx.array,
    logits_p: mx.array,
    cotangent: mx.array,
    statistics: mx.array,
    scaling: Scaling,
) -> mx.array:
    """Cotangent [rows] times q / 2T (log(q / m) - KL(q || m)) of each row [rows, V]."""
    top_q, sum_q, top_p, sum_p, kl_q = mx.split(statistics, 5, axis=-1)
    m, _, _ = _mix(logits_q, logits_p, top_q, top_p, scaling.temperature, (sum_q, sum_p))
    unit = m.q * (m.log_q_over_m - kl_q)
    scaled = unit * (0.5 * cotangent[:, None]) * scaling.of_gradient
    out = mx.where(cotangent[:, None] == 0, 0.0, scaled)
    return out.astype(logits_q.dtype)


def smooth_gradient(
    logits_q: mx.array, logits_p: mx.array, cotangent: mx.array, scaling: Scaling
) -> mx.array:
    """`gradient` as a differentiable function of float32 `logits_q` and `cotangent`."""
    q = probabilities(logits_q, scaling.temperature)
    p = probabilities(logits_p, scaling.temperature)
    # Both sides get _TINY so that log and its derivative stay finite at 0.
    log_ratio = mx.log(p + _TINY) - mx.log(q + _TINY)
    log_q_over_m = LOG_2 - mx.logaddexp(mx.array(0.0), log_ratio)
    kl_q = row_sum(q * log_q_over_m)
    scale = cotangent[:, None] * (0.5 * scaling.of_gradient)
    return scale * q * (log_q_over_m - kl_q)
