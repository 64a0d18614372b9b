"""Rows in chunks that bound the memory, and the arithmetic that divergences share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import mlx.core as mx

from mlx_distill._ops.options import Scaling
from mlx_distill._ops.sums import sum_last_axis

# A chunk and its temporaries stay in one core's cache; on a GPU, where a launch costs
# microseconds, a chunk is large enough to hide that.
_CHUNK_BYTES_CPU = 1 << 19
_CHUNK_BYTES_GPU = 1 << 24

# Each chunk costs some 0.1 MB of graph on the heap, which no memory counter shows.
_MAX_CHUNKS = 1024
# MLX queues up to some hundred operations ahead of the CPU; an array with a reader still
# queued is copied instead of updated in place. This many chunks are more than that.
_GROUP = 4

LOG_2 = math.log(2.0)
# Scaled by 2 ** -32, no gap between finite float32 numbers overflows, and none comes near
# the stand-in for the gap of a -inf entry.
SHRINK = 2.0**-32
MASKED = 1e35

Forward: TypeAlias = Callable[[mx.array, mx.array, Scaling], tuple[mx.array, mx.array]]
Gradient: TypeAlias = Callable[[mx.array, mx.array, mx.array, mx.array, Scaling], mx.array]


class Tempered(NamedTuple):
    """One side's rows of logits [rows, V], measured from their row's maximum.

    A row that holds nan or +inf or nothing finite is nan in `log2` and `exp`.
    """

    gap: mx.array  # (x - top) * SHRINK, not below -MASKED
    log2: mx.array  # the tempered gap in base 2
    exp: mx.array  # 2 ** log2


def row_maximum(logits: mx.array) -> mx.array:
    """Row maxima [rows, 1] in float32; nan where the row holds nan."""
    return mx.max(logits, axis=-1, keepdims=True).astype(mx.float32)


def temper(logits: mx.array, top: mx.array, temperature: float) -> Tempered:
    x = logits.astype(mx.float32)
    gap = mx.maximum(x * SHRINK - top * SHRINK, -MASKED)
    log2 = gap * (1.0 / (SHRINK * LOG_2 * temperature))
    # power(2, x) is three times as fast as exp(x) on the CPU, and more accurate.
    return Tempered(gap, log2, mx.power(2.0, log2))


def row_sum(x: mx.array) -> mx.array:
    """Row sums [rows, 1] of [rows, V]."""
    return sum_last_axis(x)[:, None]


def row_sums(exp_q: mx.array, exp_p: mx.array) -> tuple[mx.array, mx.array]:
    """Row sums [rows, 1] of both sides, whose ratio is right where the sides are alike.

    Next to a probability near 1 a sum drops some 6e-8 of it, and q - p is made of what the
    two sums drop. The sum of the differences has nothing to drop.
    """
    sum_p = row_sum(exp_p)
    change = row_sum(exp_q - exp_p)
    alike = mx.abs(change) < 0.5 * sum_p
    return mx.where(alike, sum_p + change, row_sum(exp_q)), sum_p


def probabilities(logits: mx.array, temperature: float) -> mx.array:
    """Tempered softmax of float32 `logits` [rows, V], differentiable."""
    exp = temper(logits, mx.stop_gradient(row_maximum(logits)), temperature).exp
    return exp / row_sum(exp)


def forward_in_chunks(
    forward: Forward, logits_q: mx.array, logits_p: mx.array, scaling: Scaling
) -> tuple[mx.array, mx.array]:
    """Row losses [rows] and row statistics [rows, n] of `forward`, chunk by chunk."""
    bounds = _chunk_bounds(logits_q)
    if len(bounds) <= 1:  # mx.depends has no vmap and no jvp
        return forward(logits_q, logits_p, scaling)
    losses: list[mx.array] = []
    statistics: list[mx.array] = []
    for start, stop in bounds:
        chunk = [logits_q[start:stop], logits_p[start:stop]]
        if losses:
            chunk = mx.depends(chunk, [losses[-1]])
        row_losses, row_statistics = forward(chunk[0], chunk[1], scaling)
        losses.append(row_losses)
        statistics.append(row_statistics)
    return mx.concatenate(losses), mx.concatenate(statistics)


def gradient_in_chunks(
    gradient: Gradient,
    logits_q: mx.array,
    logits_p: mx.array,
    cotangent: mx.array,
    statistics: mx.array,
    scaling: Scaling,
) -> mx.array:
    """d loss / d logits_q [rows, V] in its dtype, chunk by chunk into one array."""
    bounds = _chunk_bounds(logits_q)
    if len(bounds) <= 1:
        return gradient(logits_q, logits_p, cotangent, statistics, scaling)
    out = mx.zeros_like(logits_q)
    before: list[mx.array] = []
    for group in _groups(bounds):
        pieces: list[mx.array] = []
        for start, stop in group:
            chunk = [logits_q[start:stop], logits_p[start:stop]]
            if before:
                chunk = mx.depends(chunk, before)
            piece = gradient(
                chunk[0], chunk[1], cotangent[start:stop], statistics[start:stop], scaling
            )
            pieces.append(piece)
            before = [piece]
        start = group[0][0]
        out[start : group[-1][1]] = mx.concatenate(pieces)
        # A copy of one element: to wait for `out` itself would keep it from being
        # updated in place.
        before = [out[start, :1] * 1]
    return out


def _groups(bounds: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Runs of _GROUP chunks, a shorter one first: it alone has no update to wait for."""
    first = len(bounds) % _GROUP
    starts = range(first, len(bounds), _GROUP)
    groups = [bounds[i : i + _GROUP] for i in starts]
    return [bounds[:first], *groups] if first else groups


def _chunk_bounds(logits: mx.array) -> list[tuple[int, int]]:
    rows, vocabulary = logits.shape
    on_gpu = mx.default_device().type == mx.DeviceType.gpu
    budget = _CHUNK_BYTES_GPU if on_gpu else _CHUNK_BYTES_CPU
    step = max(1, budget // (4 * vocabulary), math.ceil(rows / _MAX_CHUNKS))
    return [(i, min(i + step, rows)) for i in range(0, rows, step)]
