"""Student and teacher alike: exactly 0, and never below 0 near it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

import oracle
from compare import assert_value
from mlx_distill import js_div_loss
from oracle import to_float64
from subjects import INF, Loss, draw_logits, value_and_gradient
from tolerance import round_to

if TYPE_CHECKING:
    from mlx_distill import Backend

wide_and_narrow = pytest.mark.parametrize(
    "vocabulary", [1, 2, 7, 1000, 4095, 4096, 4097, 151936], ids=lambda v: f"V{v}"
)


@pytest.mark.parametrize("temperature", [0.7, 1.0, 4.0], ids=lambda t: f"T{t:g}")
@wide_and_narrow
def test_same_bits_give_exactly_zero(
    loss: Loss, backend: Backend, dtype: mx.Dtype, vocabulary: int, temperature: float
) -> None:
    q, _ = draw_logits((2, vocabulary), std=50 / 3, dtype=dtype)
    copy = mx.array(q)
    got = value_and_gradient(loss.function, q, copy, temperature=temperature, backend=backend)
    assert not got.value64.any()
    assert not got.gradient64.any()


@wide_and_narrow
def test_same_bits_give_exactly_zero_when_compiled(
    loss: Loss, backend: Backend, dtype: mx.Dtype, vocabulary: int
) -> None:
    q, _ = draw_logits((2, vocabulary), std=50 / 3, dtype=dtype, seed=1)

    def run(a: mx.array, b: mx.array) -> mx.array:
        return loss.function(a, b, reduction="sum", backend=backend)

    value, gradient = mx.compile(mx.value_and_grad(run))(q, mx.array(q))
    assert value.item() == 0.0
    assert not to_float64(gradient).any()


def test_same_bits_with_masks_offsets_and_extremes_give_exactly_zero(
    loss: Loss, backend: Backend, dtype: mx.Dtype
) -> None:
    largest = mx.finfo(dtype).max
    rows = [
        [1.0, -INF, 3.0, 0.1],
        [-INF, -INF, 0.3, -INF],
        [1e4, 9.9e3, 1.01e4, -1e4],
        [largest, -largest, 0.0, 1.0],
        [-largest, -largest, -largest, -INF],
    ]
    q = mx.array(rows, dtype=mx.float32).astype(dtype)
    for temperature in (0.5, 1.0, 3.0):
        got = value_and_gradient(loss.function, q, q, temperature=temperature, backend=backend)
        assert not got.value64.any()
        assert not got.gradient64.any()


@pytest.mark.parametrize("noise", [1e-7, 1e-5, 1e-3, 1e-1])
@pytest.mark.parametrize("vocabulary", [2, 1000, 50000], ids=lambda v: f"V{v}")
def test_near_equal_rows_are_never_negative(
    loss: Loss, backend: Backend, dtype: mx.Dtype, vocabulary: int, noise: float
) -> None:
    base, step = draw_logits((4, vocabulary), std=1.0, seed=2)
    q, p = (8 * base + noise * step).astype(dtype), (8 * base).astype(dtype)
    values = to_float64(loss.function(q, p, backend=backend))
    assert (values >= 0).all()


@pytest.mark.parametrize("std", [1.0, 20.0, 1000.0])
def test_js_never_exceeds_ln_2_as_its_dtype_rounds_it(
    backend: Backend, dtype: mx.Dtype, std: float
) -> None:
    q, p = draw_logits((64, 1000), std=std, dtype=dtype, seed=3)
    values = to_float64(js_div_loss(q, p, backend=backend))
    assert np.max(values) <= round_to(oracle.LN2, dtype)
    apart = np.full((2, 2), -np.inf, dtype=np.float32)
    np.fill_diagonal(apart, 0.0)
    student, teacher = (mx.array(x).astype(dtype) for x in (apart, apart[::-1].copy()))
    ends = to_float64(js_div_loss(student, teacher, backend=backend))
    assert np.max(ends) <= round_to(oracle.LN2, dtype)
    assert_value(js_div_loss(student, teacher, backend=backend), np.full(2, oracle.LN2))


def test_scale_by_t2_bounds_js_by_t_squared_ln_2(backend: Backend) -> None:
    q, p = mx.array([[900.0, 0.0]]), mx.array([[0.0, 900.0]])
    value = js_div_loss(q, p, temperature=3.0, scale_by_t2=True, backend=backend).item()
    assert value == pytest.approx(9 * oracle.LN2, rel=1e-6)
