"""From one float32 loss per row to what the caller asked for."""

from __future__ import annotations

import mlx.core as mx

from mlx_distill._ops.options import Reduction
from mlx_distill._ops.sums import sum_last_axis


def as_rows(logits: mx.array) -> mx.array:
    """`logits` [..., V] as [rows, V]; by shape, since -1 is ambiguous when there is no row."""
    *lead, vocabulary = logits.shape
    rows = 1
    for dim in lead:
        rows *= dim
    return logits.reshape(rows, vocabulary)


def reduce_rows(
    rows: mx.array,
    shape: tuple[int, ...],
    *,
    weights: mx.array | None,
    normalizer: float | mx.array | None,
    reduction: Reduction,
    dtype: mx.Dtype,
) -> mx.array:
    """Weight and reduce float32 `rows` [n]; `shape` and `dtype` are those of `"none"`."""
    if weights is not None:
        if not mx.issubdtype(weights.dtype, mx.floating):
            weights = mx.stop_gradient(weights)  # astype would pass a cotangent back
        weights = weights.reshape(rows.shape).astype(mx.float32)
        # 0 * nan is nan, so a dropped row is replaced, not multiplied. A finite row stays:
        # the derivative with respect to its weight is its loss.
        rows = mx.where((weights == 0) & ~mx.isfinite(rows), 0.0, rows) * weights
    if reduction == "none":
        return rows.reshape(shape).astype(dtype)
    if reduction == "mean" and weights is not None and normalizer is None:
        # The mean does not change with the scale of the weights; their sum might overflow,
        # or be too small to be squared in its derivative.
        largest = mx.stop_gradient(mx.max(mx.abs(weights))) if rows.size else mx.array(1.0)
        usable = mx.isfinite(largest) & (largest > 0)
        scale = mx.where(usable, largest, 1.0)
        rows, weights = rows / scale, weights / scale
    total = sum_last_axis(rows)
    if reduction == "sum":
        return total
    if normalizer is not None:
        given = normalizer if isinstance(normalizer, mx.array) else mx.array(float(normalizer))
        denominator = mx.stop_gradient(given.astype(mx.float32))
    elif weights is not None:
        denominator = sum_last_axis(weights)
    else:
        denominator = mx.array(float(rows.size))
    empty = denominator == 0
    return mx.where(empty, 0.0, total / mx.where(empty, 1.0, denominator))
