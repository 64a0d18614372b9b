"""Float64 reference for both losses: values, gradients, reductions and every edge of the contract.

Scaled logits of float32 inputs reach 1e59 at the lowest temperature, which float64 holds, so no
row overflows here; a probability is 0 where it underflows float64 (745 nats below the maximum).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import mlx.core as mx
import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Name = Literal["kl", "js"]

LN2 = float(np.log(2.0))


class Rows(NamedTuple):
    """What one call should give per row, for a cotangent of one."""

    value: Matrix  # [...]
    gradient: Matrix  # [..., V]
    largest: Matrix  # [..., V], max(p, q)
    slope: float  # 1 / T, or T with scale_by_t2


class Reduced(NamedTuple):
    """A reduction and its derivatives, for the cotangent it was given."""

    value: Matrix
    row_cotangents: Matrix  # [...]
    gradient: Matrix  # [..., V]
    weights_gradient: Matrix  # [...]


def to_float64(x: mx.array) -> Matrix:
    """Return the exact entries of `x`."""
    return np.asarray(x.astype(mx.float32), dtype=np.float64)


def number(x: mx.array) -> float:
    """Return the only entry of `x`."""
    return float(to_float64(x).item())


def rows(
    name: Name,
    logits_q: mx.array,
    logits_p: mx.array,
    *,
    temperature: float = 1.0,
    scale_by_t2: bool = False,
) -> Rows:
    """Return the divergence of each row and its gradient with respect to `logits_q`."""
    with np.errstate(all="ignore"):
        log_q, q = _softmax(to_float64(logits_q), temperature)
        log_p, p = _softmax(to_float64(logits_p), temperature)
        value, gradient = (_kl if name == "kl" else _js)(log_q, q, log_p, p)
        scale = temperature**2 if scale_by_t2 else 1.0
        slope = scale / temperature
        gradient = np.where(np.isnan(value)[..., None], np.nan, gradient * slope)
        return Rows(value * scale, gradient, np.maximum(p, q), slope)


def _softmax(x: Matrix, temperature: float) -> tuple[Matrix, Matrix]:
    # An all -inf row, a +inf and a NaN all end as NaN in every entry: -inf - -inf, inf - inf.
    shifted = (x - x.max(axis=-1, keepdims=True)) / temperature
    exp = np.exp(shifted)
    total = exp.sum(axis=-1, keepdims=True)
    return shifted - np.log(total), exp / total


def _kl(log_q: Matrix, q: Matrix, log_p: Matrix, p: Matrix) -> tuple[Matrix, Matrix]:
    value = np.where(p == 0, 0.0, p * (log_p - log_q)).sum(axis=-1)
    return np.maximum(value, 0.0), q - p


def _js(log_q: Matrix, q: Matrix, log_p: Matrix, p: Matrix) -> tuple[Matrix, Matrix]:
    log_m = np.logaddexp(log_p, log_q) - LN2
    p_term = np.where(p == 0, 0.0, p * (log_p - log_m)).sum(axis=-1)
    ratio = np.where(q == 0, 0.0, log_q - log_m)
    q_term = (q * ratio).sum(axis=-1)
    value = np.clip(0.5 * (p_term + q_term), 0.0, LN2)
    return value, 0.5 * q * (ratio - q_term[..., None])


def reduce_rows(
    found: Rows,
    *,
    reduction: str,
    weights: Matrix | None = None,
    normalizer: float | None = None,
    cotangent: Matrix | float = 1.0,
) -> Reduced:
    """Return the reduction of `found`, its gradient, and that of the weights."""
    value = found.value
    w = np.ones_like(value) if weights is None else weights
    with np.errstate(all="ignore"):
        weighted = np.where(w == 0, 0.0, w * value)
        counted = np.where((w == 0) & ~np.isfinite(value), 0.0, value)
        c: Matrix = np.asarray(cotangent, dtype=np.float64)
        if reduction == "none":
            out, per_row, per_weight = weighted, c * w, c * counted
        elif reduction == "sum":
            out, per_row, per_weight = np.asarray(weighted.sum()), c * w, c * counted
        else:
            out, per_row, per_weight = _mean(weighted, counted, w, normalizer, c)
        zero = (per_row == 0)[..., None]
        gradient = np.where(zero, 0.0, per_row[..., None] * found.gradient)
    return Reduced(out, per_row, gradient, per_weight)


def _mean(
    weighted: Matrix, counted: Matrix, w: Matrix, normalizer: float | None, c: Matrix
) -> tuple[Matrix, Matrix, Matrix]:
    total = w.sum() if normalizer is None else normalizer
    if total == 0:
        zero = np.zeros_like(w)
        return np.zeros(()), zero, zero
    mean = np.asarray(weighted.sum() / total)
    centred = counted - mean if normalizer is None else counted
    return mean, c * w / total, c * centred / total
