"""Forward and backward of a divergence as one differentiable row operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias, cast

import mlx.core as mx

from mlx_distill._ops import launch
from mlx_distill._ops.backends import ResolvedBackend
from mlx_distill._ops.options import Scaling
from mlx_distill._ops.plain import Forward, Gradient, forward_in_chunks, gradient_in_chunks
from mlx_distill.kernels.handles import KernelHandle

SmoothGradient: TypeAlias = Callable[[mx.array, mx.array, mx.array, Scaling], mx.array]
Arrays: TypeAlias = Sequence[mx.array]
RowOp: TypeAlias = Callable[[mx.array, mx.array], tuple[mx.array, mx.array]]
GradientOp: TypeAlias = Callable[[mx.array, mx.array, mx.array, mx.array], mx.array]


@dataclass(frozen=True)
class Divergence:
    """What sets one divergence apart from the next.

    Attributes:
        forward: row losses and statistics in plain MLX operations.
        gradient: d loss / d logits_q in plain MLX operations.
        smooth_gradient: the same from logits and cotangent alone, in operations that MLX
            can differentiate; for derivatives of the gradient.
        statistics: how many numbers a row's statistics are.
        forward_kernel: the kernel that stands for `forward`.
        backward_kernel: the kernel that stands for `gradient`.
    """

    forward: Forward
    gradient: Gradient
    smooth_gradient: SmoothGradient
    statistics: int
    forward_kernel: KernelHandle
    backward_kernel: KernelHandle


def row_losses(
    divergence: Divergence,
    logits_q: mx.array,
    logits_p: mx.array,
    scaling: Scaling,
    backend: ResolvedBackend,
) -> mx.array:
    """The loss of each row, float32 [rows], of student and teacher logits [rows, V]."""
    if logits_q.shape[0] == 0:
        return mx.zeros((0,), dtype=mx.float32)
    return _row_op(divergence, scaling, backend)(logits_q, logits_p)[0]


@lru_cache(maxsize=256)
def _row_op(divergence: Divergence, scaling: Scaling, backend: ResolvedBackend) -> RowOp:
    """(loss [rows], statistics [rows, n]); only the loss is differentiable."""

    def forward(logits_q: mx.array, logits_p: mx.array) -> tuple[mx.array, mx.array]:
        if backend == "mlx":
            return forward_in_chunks(divergence.forward, logits_q, logits_p, scaling)
        return launch.forward(
            divergence.forward_kernel,
            backend,
            logits_q,
            logits_p,
            scaling,
            divergence.statistics,
        )

    gradient = _gradient_op(divergence, scaling, backend)
    op = mx.custom_function(forward)
    typed_op = cast(RowOp, op)

    @op.vjp
    def _(primals: Arrays, cotangents: Arrays, outputs: Arrays) -> tuple[mx.array, mx.array]:
        logits_q, logits_p = primals
        out = gradient(logits_q, logits_p, cotangents[0], mx.stop_gradient(outputs[1]))
        return out, mx.zeros_like(logits_p)

    @op.jvp
    def _(primals: Arrays, tangents: Sequence[mx.array | None]) -> tuple[mx.array, mx.array]:
        logits_q, logits_p = (x.astype(mx.float32) for x in primals)
        loss, statistics = forward(logits_q, logits_p)
        along = tangents[0]
        if along is None:  # the teacher alone moves, and it has no derivative
            return mx.zeros_like(loss), mx.zeros_like(statistics)
        unit = gradient(logits_q, logits_p, mx.ones_like(loss), statistics)
        return (unit * along.astype(mx.float32)).sum(axis=-1), mx.zeros_like(statistics)

    @op.vmap
    def _(inputs: Arrays, axes: Sequence[int | None]) -> tuple[Arrays, tuple[int, ...]]:
        return _over_rows(typed_op, inputs, axes)

    return typed_op


def _gradient_op(divergence: Divergence, scaling: Scaling, backend: ResolvedBackend) -> GradientOp:
    """d loss / d logits_q, differentiable in turn with respect to logits_q and cotangent.

    The statistics are a function of the logits, so its derivatives start from the logits
    again and take the statistics as constants.
    """

    def gradient(
        logits_q: mx.array, logits_p: mx.array, cotangent: mx.array, statistics: mx.array
    ) -> mx.array:
        if backend == "mlx":
            return gradient_in_chunks(
                divergence.gradient, logits_q, logits_p, cotangent, statistics, scaling
            )
        return launch.gradient(
            divergence.backward_kernel,
            backend,
            logits_q,
            logits_p,
            cotangent,
            statistics,
            scaling,
        )

    def smooth(primals: Arrays) -> tuple[Callable[[mx.array, mx.array], mx.array], Arrays]:
        """The gradient as a function of logits_q and cotangent, and where it is taken."""
        logits_q, logits_p, cotangent, statistics = primals
        # Rows without weight must not pass nan on to a second derivative.
        dropped = ((cotangent == 0) & ~mx.isfinite(statistics.sum(axis=-1)))[:, None]
        at_q, at_p = (mx.where(dropped, 0.0, x.astype(mx.float32)) for x in (logits_q, logits_p))
        return (lambda q, c: divergence.smooth_gradient(q, at_p, c, scaling)), (at_q, cotangent)

    op = mx.custom_function(gradient)
    typed_op = cast(GradientOp, op)

    @op.vjp
    def _(primals: Arrays, cotangent: mx.array, _output: mx.array) -> tuple[mx.array, ...]:
        function, at = smooth(primals)
        along = [cotangent.astype(mx.float32)]
        _, (of_q, of_cotangent) = mx.vjp(function, list(at), along)
        logits_q, logits_p, _, statistics = primals
        return (
            of_q.astype(logits_q.dtype),
            mx.zeros_like(logits_p),
            of_cotangent,
            mx.zeros_like(statistics),
        )

    @op.jvp
    def _(primals: Arrays, tangents: Sequence[mx.array | None]) -> mx.array:
        function, at = smooth(primals)
        directions = [
            mx.zeros_like(x) if tangent is None else tangent.astype(mx.float32)
            for x, tangent in zip(at, (tangents[0], tangents[2]), strict=True)
        ]
        _, (out,) = mx.jvp(function, list(at), directions)
        return out.astype(primals[0].dtype)

    @op.vmap
    def _(inputs: Arrays, axes: Sequence[int | None]) -> tuple[mx.array, int]:
        (out,), _ = _over_rows(lambda *rows: (typed_op(*rows),), inputs, axes)
        return out, 0

    return typed_op


def _over_rows(
    op: Callable[..., Sequence[mx.array]], inputs: Arrays, axes: Sequence[int | None]
) -> tuple[tuple[mx.array, ...], tuple[int, ...]]:
    """`op` over a mapped axis: rows are independent, so the mapped axis becomes more rows."""
    size = next(x.shape[axis] for x, axis in zip(inputs, axes, strict=True) if axis is not None)
    stacked: list[mx.array] = []
    rows = 0
    for x, axis in zip(inputs, axes, strict=True):
        full = mx.broadcast_to(x, (size, *x.shape)) if axis is None else mx.moveaxis(x, axis, 0)
        rows = full.shape[1]
        stacked.append(full.reshape(size * rows, *full.shape[2:]))
    outputs = op(*stacked)
    shaped = tuple(out.reshape(size, rows, *out.shape[1:]) for out in outputs)
    return shaped, (0,) * len(shaped)
