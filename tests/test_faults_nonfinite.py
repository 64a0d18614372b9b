"""Faults reported in public against distillation losses: NaN, infinities, nothing to average.

One test for each report, under its number; test_edges.py and test_empty.py hold its whole kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from mlx_distill import js_div_loss, kl_div_loss
from oracle import number
from subjects import INF, NAN, Loss, value_and_gradient

if TYPE_CHECKING:
    from mlx_distill import Backend

RTOL = 1e-5


def close(expected: list[float] | list[list[float]]) -> object:
    return pytest.approx(np.array(expected), rel=RTOL, abs=2e-8)


def ones(q: mx.array) -> mx.array:
    return mx.ones(q.shape[:-1])


def test_kd01_entry_masked_in_both_adds_nothing(backend: Backend) -> None:
    q, p = mx.array([[1.0, 2.0, -INF, 0.5]]), mx.array([[0.5, 1.5, -INF, 1.0]])
    kl = value_and_gradient(kl_div_loss, q, p, ones(q), backend=backend)
    assert kl.value64 == close([0.0912949992])
    assert kl.gradient64 == close([[0.0449001744, 0.122051328, 0.0, -0.166951503]])
    assert kl.gradient64[0, 2] == 0.0
    js = value_and_gradient(js_div_loss, q, p, ones(q), backend=backend)
    assert js.value64 == close([0.0204535021])
    assert js.gradient64 == close([[0.00922806628, 0.0250844849, 0.0, -0.0343125512]])
    assert js.gradient64[0, 2] == 0.0
    assert kl_div_loss(p, q, backend=backend).item() == pytest.approx(0.0756565034, rel=RTOL)


def test_kd03_entry_masked_in_student_only_gives_infinity_and_a_finite_gradient(
    backend: Backend,
) -> None:
    q, p = mx.array([[1.0, -INF, 3.0]]), mx.array([[1.0, 2.0, 3.0]])
    kl = value_and_gradient(kl_div_loss, q, p, ones(q), backend=backend)
    assert kl.value64.tolist() == [INF]
    assert kl.gradient64 == close([[0.0291723489, -0.244728471, 0.215556122]])
    js = value_and_gradient(js_div_loss, q, p, ones(q), backend=backend)
    assert js.value64 == close([0.0933745868])
    assert js.gradient64 == pytest.approx(np.zeros((1, 3)), abs=1e-6)
    assert kl_div_loss(p, q, backend=backend).item() == pytest.approx(0.280677953, rel=RTOL)


def test_kd04_padding_row_of_masks_with_weight_zero_does_not_count(backend: Backend) -> None:
    q = mx.array([[1.0, 2.0, 3.0], [-INF, -INF, -INF]])
    p = mx.array([[3.0, 2.0, 1.0], [-INF, -INF, -INF]])
    got = value_and_gradient(
        kl_div_loss,
        q,
        p,
        mx.array(1.0),
        weights=mx.array([1.0, 0.0]),
        reduction="mean",
        backend=backend,
    )
    assert got.value.item() == pytest.approx(1.15042077, rel=RTOL)
    want = [[-0.575210383, 0.0, 0.575210383], [0.0, 0.0, 0.0]]
    assert got.gradient64 == pytest.approx(np.array(want), rel=RTOL, abs=1e-6)
    assert got.gradient64[1].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("entry", range(3))
@pytest.mark.parametrize("side", ["student", "teacher"])
def test_kd06_nan_that_counts_is_not_hidden(
    loss: Loss, backend: Backend, side: str, entry: int
) -> None:
    q, p = mx.array([[1.0, 2.0, 3.0]]), mx.array([[3.0, 2.0, 1.0]])
    spoilt = mx.where(mx.arange(3) == entry, NAN, q if side == "student" else p)
    q, p = (spoilt, p) if side == "student" else (q, spoilt)
    for reduction in ("none", "sum", "mean"):
        value = loss.function(q, p, reduction=reduction, backend=backend)
        assert np.isnan(value.sum().item())


def test_kd07_js_of_far_apart_logits_is_finite_and_at_most_ln_2(backend: Backend) -> None:
    q = mx.array([[200.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    p = mx.array([[0.0, 200.0, 0.0], [300.0, 0.0, -300.0]])
    got = value_and_gradient(js_div_loss, q, p, ones(q), backend=backend)
    assert got.value64 == close([0.693147181, 0.318257084])
    want = [[0.0, 0.0, 0.0], [-0.154032707, 0.0770163534, 0.0770163534]]
    # A probability of 1 allows 3e-6; fast functions come within 1e-7.
    assert got.gradient64 == pytest.approx(np.array(want), rel=1e-6, abs=1e-7)


def test_kd09_js_of_an_entry_that_underflows_in_both_is_finite(backend: Backend) -> None:
    q, p = mx.array([[0.0, -150.0, 0.3]]), mx.array([[0.2, -150.0, 0.0]])
    got = value_and_gradient(js_div_loss, q, p, ones(q), backend=backend)
    assert got.value64 == close([0.0077470807])
    assert got.gradient64 == close([[-0.0306517748, 0.0, 0.0306517748]])


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_kd11_lowest_number_as_a_mask_survives_a_temperature_below_one(
    backend: Backend, name: str
) -> None:
    dtype: mx.Dtype = getattr(mx, name)
    lowest = mx.finfo(dtype).min
    q = mx.array([[1.0, 2.0, lowest]]).astype(dtype)
    p = mx.array([[2.0, 1.0, lowest]]).astype(dtype)
    cotangent = mx.ones((1,), dtype=dtype)
    got = value_and_gradient(kl_div_loss, q, p, cotangent, temperature=0.5, backend=backend)
    ulp = {"float32": 1e-5, "float16": 2.0**-11, "bfloat16": 2.0**-8}[name]
    assert got.value64 == pytest.approx(np.array([1.52318831]), rel=ulp)
    want = np.array([[-1.52318831, 1.52318831, 0.0]])
    assert got.gradient64 == pytest.approx(want, rel=ulp)
    assert got.gradient64[0, 2] == 0.0


def test_kd12_batch_without_a_supervised_token_gives_zero_and_no_gradient(
    loss: Loss, backend: Backend
) -> None:
    mx.random.seed(0)
    q, p = mx.random.normal((2, 3, 4)), mx.random.normal((2, 3, 4))
    got = value_and_gradient(
        loss.function, q, p, weights=mx.zeros((2, 3)), reduction="mean", backend=backend
    )
    assert got.value.item() == 0.0
    assert not got.gradient64.any()


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_kd13_prompt_mask_past_the_end_gives_zero_in_a_traced_loss(
    loss: Loss, backend: Backend, *, compiled: bool
) -> None:
    mx.random.seed(0)
    student = nn.Linear(8, 16)
    module = loss.module(backend=backend)

    def step(x: mx.array, p: mx.array, offset: mx.array) -> tuple[mx.array, mx.array]:
        weights = mx.broadcast_to(mx.arange(5) >= offset, (2, 5))
        value, gradients = nn.value_and_grad(student, lambda x: module(student(x), p, weights))(x)
        return value, gradients["weight"]

    run = mx.compile(step) if compiled else step
    x, p = mx.random.normal((2, 5, 8)), mx.random.normal((2, 5, 16))
    value, gradient = run(x, p, mx.array(9))
    assert value.item() == 0.0
    assert not mx.any(gradient != 0).item()
    value, gradient = run(x, p, mx.array(3))
    assert number(value) > 0.0
    assert mx.any(gradient != 0).item()


def test_kd14_no_tokens_keep_their_shape_and_give_zero(loss: Loss, backend: Backend) -> None:
    q = mx.zeros((0, 5))
    none = value_and_gradient(loss.function, q, q, backend=backend)
    assert none.value.shape == (0,)
    assert none.gradient.shape == (0, 5)
    assert loss.function(q, q, reduction="sum", backend=backend).item() == 0.0
    assert loss.function(q, q, reduction="mean", backend=backend).item() == 0.0
    longer = value_and_gradient(loss.function, mx.zeros((2, 0, 5)), mx.zeros((2, 0, 5)))
    assert longer.value.shape == (2, 0)
    assert longer.gradient.shape == (2, 0, 5)


@pytest.mark.parametrize("vocabulary", [5, 4095, 4096, 4097, 8192])
def test_kd59_masks_are_right_at_every_block_edge(backend: Backend, vocabulary: int) -> None:
    rest = mx.full((1, vocabulary - 4), -INF)
    q = mx.concatenate([rest, mx.array([[1.0, 2.0, -INF, 0.5]])], axis=-1)
    p = mx.concatenate([rest, mx.array([[0.5, 1.5, -INF, 1.0]])], axis=-1)
    assert kl_div_loss(q, p, backend=backend).item() == pytest.approx(0.0912949992, rel=RTOL)
    assert js_div_loss(q, p, backend=backend).item() == pytest.approx(0.0204535021, rel=RTOL)
    lowest = mx.finfo(mx.float32).min
    q, p = mx.maximum(q, lowest), mx.maximum(p, lowest)
    assert kl_div_loss(q, p, backend=backend).item() == pytest.approx(0.0912949992, rel=RTOL)
    assert js_div_loss(q, p, backend=backend).item() == pytest.approx(0.0204535021, rel=RTOL)
