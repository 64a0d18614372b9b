"""What a type checker sees of the public API; checked by mypy and pyright, never run.

A `type: ignore` here is an expectation: mypy reports one that hides no error.
"""

from __future__ import annotations

from typing import Literal, assert_type

import mlx.core as mx
import mlx.nn as nn

import mlx_distill
from mlx_distill import (
    Backend,
    BackendError,
    DistillError,
    JSDivLoss,
    KLDivLoss,
    OutOfRangeError,
    RankMismatchError,
    Reduction,
    ShapePairMismatchError,
    UnsupportedDtypeError,
    js_div_loss,
    kl_div_loss,
)

q = mx.zeros((2, 5))
p = mx.zeros((2, 5))
w = mx.ones((2,))

assert_type(mlx_distill.__version__, str)

# Functions: one return type whatever the reduction.
assert_type(kl_div_loss(q, p), mx.array)
assert_type(js_div_loss(q, p, reduction="mean", normalizer=3.0), mx.array)
assert_type(kl_div_loss(q, p, weights=w, reduction="mean", normalizer=mx.array(3.0)), mx.array)
assert_type(js_div_loss(q, p, temperature=2, scale_by_t2=True, backend="mlx"), mx.array)

# Modules: options at construction, read-only; weights and normalizer at the call.
kl = KLDivLoss(temperature=2.0, scale_by_t2=True, reduction="sum", backend="cuda")
js = JSDivLoss()
assert_type(kl, KLDivLoss)
assert_type(js(q, p), mx.array)
assert_type(kl(q, p, w, 4.0), mx.array)
assert_type(kl(q, p, weights=w, normalizer=mx.array(4)), mx.array)
assert_type(kl.temperature, float)
assert_type(kl.scale_by_t2, bool)
assert_type(kl.reduction, Literal["none", "sum", "mean"])
assert_type(kl.backend, Literal["auto", "metal", "cuda", "mlx"])
module: nn.Module = kl
assert_type(kl.eval(), KLDivLoss)

reduction: Reduction = "none"
backend: Backend = "metal"
assert_type(kl_div_loss(q, p, reduction=reduction, backend=backend), mx.array)

kl_div_loss(q, p, 2.0)  # type: ignore[call-arg]
kl_div_loss(q)  # type: ignore[call-arg]
kl_div_loss([[1.0]], p)  # type: ignore[arg-type]
kl_div_loss(q, p, reduction="batchmean")  # type: ignore[arg-type]
kl_div_loss(q, p, weights=[1.0])  # type: ignore[arg-type]
js_div_loss(q, p, backend="cpu")  # type: ignore[arg-type]
KLDivLoss(2.0)  # type: ignore[call-arg]
JSDivLoss(reduction="avg")  # type: ignore[arg-type]
kl.temperature = 3.0  # type: ignore[misc]


def fields(error: DistillError) -> object:
    """Match on errors as their `__match_args__` promise."""
    match error:
        case RankMismatchError(context, actual, actual_shape):
            assert_type(context, str)
            assert_type(actual, int)
            assert_type(actual_shape, tuple[int, ...])
            return context
        case ShapePairMismatchError(_, expected, got):
            assert_type(expected, tuple[int, ...])
            return got
        case UnsupportedDtypeError(_, dtype, supported):
            assert_type(dtype, str)
            assert_type(supported, tuple[str, ...])
            return dtype
        case OutOfRangeError(_, requirement, value):
            assert_type((requirement, value), tuple[str, str])
            return value
        case BackendError(message):
            assert_type(message, str)
            return message
        case _:
            return None


value_error: ValueError = RankMismatchError("logits", 1, (5,))
runtime_error: RuntimeError = BackendError("no kernel")
