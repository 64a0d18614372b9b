"""Checks of the arrays that a caller passes, in the order of the reference."""

from __future__ import annotations

from numbers import Real

import mlx.core as mx

from mlx_distill._ops.options import check_number
from mlx_distill.errors import (
    ArgumentTypeError,
    DtypeMismatchError,
    OutOfRangeError,
    RankMismatchError,
    ShapePairMismatchError,
    UnsupportedDtypeError,
)

_INT32_MAX = 2**31 - 1
_LOGITS_DTYPES = (mx.float32, mx.float16, mx.bfloat16)
_ARRAY = "an mlx.core.array (convert with mx.array)"


def check_array(context: str, value: object) -> None:
    if not isinstance(value, mx.array):
        raise ArgumentTypeError(context, _ARRAY, type(value).__name__)


def check_logits(name: str, logits_q: mx.array, logits_p: mx.array) -> None:
    """Check rank, shape, size and dtype of a student and teacher pair.

    Reads `ndim`, `shape` and `dtype` only: no array work, and anything that has the three
    will do.
    """
    rank = "rank (must be >= 2; reshape rank-1 [V] to [1, V])"
    for side, logits in (("logits_q", logits_q), ("logits_p", logits_p)):
        if logits.ndim < 2:
            raise RankMismatchError(f"{name}: {side} {rank}", logits.ndim, logits.shape)
    if logits_q.shape != logits_p.shape:
        raise ShapePairMismatchError(
            f"{name}: logits_q vs logits_p shape", logits_q.shape, logits_p.shape
        )
    if logits_q.shape[-1] == 0:
        raise OutOfRangeError(f"{name}: logits last dimension", "must be > 0", "0")
    for dim in logits_q.shape:
        if dim > _INT32_MAX:
            raise OutOfRangeError(f"{name}: shape dim", "must fit in i32", str(dim))
    if logits_q.dtype != logits_p.dtype:
        raise DtypeMismatchError(dtype_name(logits_q.dtype), dtype_name(logits_p.dtype))
    if logits_q.dtype not in _LOGITS_DTYPES:
        raise UnsupportedDtypeError(
            f"{name}: logits dtype (cast with .astype(mx.float32) before calling)",
            dtype_name(logits_q.dtype),
            [dtype_name(dtype) for dtype in _LOGITS_DTYPES],
        )


def check_weights(name: str, weights: mx.array | None, shape: tuple[int, ...]) -> None:
    if weights is None:
        return
    check_array(f"{name}: weights", weights)
    if weights.shape != shape:
        raise ShapePairMismatchError(f"{name}: weights vs logits.shape[:-1]", shape, weights.shape)
    _check_real(f"{name}: weights dtype", weights)


def check_normalizer(name: str, normalizer: float | mx.array | None, reduction: str) -> None:
    """Check the denominator of a mean: a number or a 0-d array, and only with `mean`."""
    if normalizer is None:
        return
    context = f"{name}: normalizer"
    if isinstance(normalizer, mx.array):
        if normalizer.ndim != 0:
            raise ShapePairMismatchError(f"{context} shape", (), normalizer.shape)
        _check_real(f"{context} dtype", normalizer)
    elif isinstance(normalizer, bool) or not isinstance(normalizer, Real):
        expected = "a float or a 0-d mlx.core.array"
        raise ArgumentTypeError(context, expected, type(normalizer).__name__)
    else:
        check_number(context, normalizer)
    if reduction != "mean":
        raise OutOfRangeError(
            context, 'must be None unless reduction is "mean"', f"reduction={reduction!r}"
        )


def dtype_name(dtype: mx.Dtype) -> str:
    return str(dtype).rpartition(".")[2]


def _check_real(context: str, value: mx.array) -> None:
    if mx.issubdtype(value.dtype, mx.complexfloating):
        supported = ("bool", "integer", "floating")
        raise UnsupportedDtypeError(context, dtype_name(value.dtype), supported)
