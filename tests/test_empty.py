"""No rows at all: shapes kept, sums and means 0, never NaN."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import pytest

from subjects import Loss, value_and_gradient

if TYPE_CHECKING:
    from mlx_distill import Backend, Reduction

empty_shapes = pytest.mark.parametrize("shape", [(0, 5), (2, 0, 5), (0, 3, 4097), (0, 1)], ids=str)


@empty_shapes
def test_empty_rows_keep_their_shape(
    loss: Loss, backend: Backend, dtype: mx.Dtype, shape: tuple[int, ...]
) -> None:
    q = mx.zeros(shape, dtype=dtype)
    got = value_and_gradient(loss.function, q, q, backend=backend)
    assert got.value.shape == shape[:-1]
    assert got.gradient.shape == shape
    assert got.value.dtype == got.gradient.dtype == dtype


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
@empty_shapes
def test_empty_rows_reduce_to_zero(
    loss: Loss,
    backend: Backend,
    dtype: mx.Dtype,
    shape: tuple[int, ...],
    reduction: Reduction,
    *,
    weighted: bool,
) -> None:
    q = mx.zeros(shape, dtype=dtype)
    weights = mx.ones(shape[:-1]) if weighted else None
    got = value_and_gradient(
        loss.function, q, q, weights=weights, reduction=reduction, backend=backend
    )
    assert got.value.item() == 0.0
    assert got.value.dtype == mx.float32
    assert got.gradient.shape == shape


def test_empty_rows_with_a_normalizer_give_zero(loss: Loss, backend: Backend) -> None:
    q = mx.zeros((0, 5))
    for normalizer in (4.0, 0.0, mx.array(4.0)):
        value = loss.function(q, q, normalizer=normalizer, reduction="mean", backend=backend)
        assert value.item() == 0.0


@pytest.mark.parametrize("weights", [[0.0, 0.0], [False, False], [0, 0], [1.0, -1.0]], ids=str)
def test_weights_that_sum_to_zero_give_mean_zero_and_no_gradient(
    loss: Loss, backend: Backend, dtype: mx.Dtype, weights: list[float]
) -> None:
    q, p = mx.array([[1.0, 2.0], [0.0, 3.0]]).astype(dtype), mx.zeros((2, 2), dtype=dtype)
    got = value_and_gradient(
        loss.function, q, p, weights=mx.array(weights), reduction="mean", backend=backend
    )
    assert got.value.item() == 0.0
    assert not got.gradient64.any()


def test_normalizer_zero_gives_zero_and_no_gradient(loss: Loss, backend: Backend) -> None:
    q, p = mx.array([[1.0, 2.0]]), mx.zeros((1, 2))
    for normalizer in (0.0, 0, mx.array(0.0), mx.array(0)):
        got = value_and_gradient(
            loss.function, q, p, normalizer=normalizer, reduction="mean", backend=backend
        )
        assert got.value.item() == 0.0
        assert not got.gradient64.any()


def test_empty_module_call_is_zero(loss: Loss, backend: Backend) -> None:
    q = mx.zeros((0, 5))
    assert loss.module(backend=backend)(q, q).item() == 0.0
    assert loss.module(reduction="none", backend=backend)(q, q).shape == (0,)
