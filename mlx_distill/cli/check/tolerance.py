"""The accuracy that the losses promise.

value        1e-6 + 1e-6 |value|                for each row
sum, mean    1e-5 |value|, and their rows' share of 1e-6
gradient     |c| k (3e-6 max(p, q) + 1e-10)     for each entry
KL gradient  1e-5 |gradient| + 3e-7 |c| k       for each row, in L2

c is the row's cotangent, k = 1 / T, or T with scale_by_t2. An output in half precision may add
half a unit in the last place. Where a result has to be exact, the tolerance is 0.
"""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
import numpy as np

from mlx_distill.cli.check.calls import Call
from mlx_distill.cli.check.oracle import LN2, LossName, Matrix, Truth, as_float64, truth


class Expected(NamedTuple):
    """What a call should give, and the error allowed."""

    value: Matrix  # [rows], [1] when reduced
    value_tolerance: Matrix
    ceiling: float  # no value is above it
    gradient: Matrix  # [rows, V]
    gradient_tolerance: Matrix
    norm_tolerance: Matrix  # [rows]


def expect(loss: LossName, call: Call, q: Matrix, p: Matrix) -> Expected:
    """The expected result of `call` on student and teacher logits [rows, V]."""
    with np.errstate(all="ignore"):
        found = truth(loss, q, p, temperature=call.temperature, scale_by_t2=call.scale_by_t2)
        value, allowed, cotangent = _reduced(call, found)
        equal = (q == p).all(axis=-1)
        if call.reduction == "none":
            allowed[equal] = 0.0
        gradient = np.where(cotangent[:, None] == 0, 0.0, cotangent[:, None] * found.gradient)
        scale = np.abs(cotangent) * found.slope
        dtype = call.logits_q.dtype
        per_entry = scale[:, None] * (3e-6 * found.largest + 1e-10)
        per_entry += _half_ulp(np.abs(gradient) + per_entry, dtype)
        per_entry[equal | (cotangent == 0)] = 0.0
        per_entry[np.isneginf(q) & np.isneginf(p)] = 0.0
        rounding = _half_ulp(np.abs(gradient), dtype)
        per_row = 1e-5 * _norm(gradient) + 3e-7 * scale + _norm(rounding)
    return Expected(value, allowed, _ceiling(loss, call), gradient, per_entry, per_row)


def shares(got: Matrix, want: Matrix, allowed: Matrix) -> Matrix:
    """Errors as shares of what is allowed; inf where nan, an infinity or an exact 0 is missed."""
    with np.errstate(all="ignore"):
        ratio = np.abs(got - want) / allowed
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return np.where(same, 0.0, np.where(np.isnan(ratio), np.inf, ratio))


def _reduced(call: Call, found: Truth) -> tuple[Matrix, Matrix, Matrix]:
    """Value, error allowed, and the cotangent of each row."""
    rows, given = found.value, as_float64(call.cotangent).reshape(-1)
    weights = np.ones_like(rows) if call.weights is None else as_float64(call.weights).reshape(-1)
    weighted = np.where(weights == 0, 0.0, weights * rows)
    if call.reduction == "none":
        dtype = call.logits_q.dtype
        outside = np.abs(weighted) > mx.finfo(dtype).max
        value = np.where(outside, np.copysign(np.inf, weighted), weighted)
        allowed = 1e-6 * weights + 1e-6 * np.abs(value)
        allowed += np.where(weights == 0, 0.0, _half_ulp(np.abs(value) + allowed, dtype))
        return value, allowed, given * weights
    denominator = 1.0
    if call.reduction == "mean" and weights.sum() != 0:
        denominator = float(weights.sum())
    value = np.array([weighted.sum() / denominator])
    floor = 1e-6 * weights.sum() / denominator
    return value, 1e-5 * np.abs(value) + floor, given * weights / denominator


def _ceiling(loss: LossName, call: Call) -> float:
    if loss == "kl" or call.scale_by_t2 or call.weights is not None or call.reduction != "none":
        return np.inf
    step = _spacing(np.array(LN2), call.logits_q.dtype)
    return float(np.round(LN2 / step) * step)


def _half_ulp(size: Matrix, dtype: mx.Dtype) -> Matrix:
    return np.zeros_like(size) if dtype == mx.float32 else _spacing(size, dtype) / 2


def _spacing(size: Matrix, dtype: mx.Dtype) -> Matrix:
    """The distance from a number of that size to the next in `dtype`."""
    limits = mx.finfo(dtype)
    # Below the smallest normal number the spacing stays.
    exponent = np.frexp(np.maximum(np.nan_to_num(size), limits.smallest_normal))[1] - 1
    distance: Matrix = np.ldexp(limits.eps, exponent)
    return distance


def _norm(x: Matrix) -> Matrix:
    length: Matrix = np.linalg.norm(np.nan_to_num(x), axis=-1)
    return length
