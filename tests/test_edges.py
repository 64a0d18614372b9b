"""The edge table of the contract: what every row gives, whatever its logits hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

import oracle
from compare import assert_gradient, assert_matches_oracle, assert_value
from edge_rows import ORDINARY, POISON, VALID, spread, stack
from mlx_distill import js_div_loss, kl_div_loss
from oracle import number, to_float64
from subjects import INF, NAN, Loss, cotangent_like, value_and_gradient
from tolerance import reduction_tolerance, round_to

if TYPE_CHECKING:
    from mlx_distill import Backend, Reduction

valid_rows = pytest.mark.parametrize("case", VALID)
poison_rows = pytest.mark.parametrize("case", POISON)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0], ids=lambda t: f"T{t:g}")
@valid_rows
def test_edge_row_is_as_the_table_says(
    loss: Loss, backend: Backend, dtype: mx.Dtype, case: str, temperature: float
) -> None:
    q, p = stack([ORDINARY, VALID[case], ORDINARY], dtype)
    assert_matches_oracle(loss, q, p, {"temperature": temperature, "backend": backend})


@pytest.mark.parametrize("vocabulary", [5, 1000, 4095, 4096, 4097, 8192], ids=lambda v: f"V{v}")
@valid_rows
def test_edge_row_is_the_same_in_a_wide_row(
    loss: Loss, backend: Backend, case: str, vocabulary: int
) -> None:
    q, p = spread(VALID[case], vocabulary, mx.float32)
    assert_matches_oracle(loss, q, p, {"temperature": 0.5, "backend": backend})


@valid_rows
def test_edge_row_is_never_negative_nor_js_above_ln_2(
    loss: Loss, backend: Backend, dtype: mx.Dtype, case: str
) -> None:
    q, p = stack([VALID[case]], dtype)
    value = number(loss.function(q, p, backend=backend))
    assert value >= 0.0
    if loss.name == "js":
        assert value <= round_to(oracle.LN2, dtype)


@poison_rows
def test_poison_gives_nan_in_its_own_row_only(
    loss: Loss, backend: Backend, dtype: mx.Dtype, case: str
) -> None:
    q, p = stack([ORDINARY, POISON[case], ORDINARY], dtype)
    got = assert_matches_oracle(loss, q, p, {"backend": backend})
    assert np.isnan(got.value64).tolist() == [False, True, False]
    assert np.isnan(got.gradient64).all(axis=-1).tolist() == [False, True, False]


@poison_rows
def test_poison_of_weight_zero_counts_as_zero(
    loss: Loss, backend: Backend, dtype: mx.Dtype, case: str
) -> None:
    q, p = stack([ORDINARY, POISON[case], ORDINARY], dtype)
    reductions: list[Reduction] = ["none", "sum", "mean"]
    for reduction in reductions:
        for weights in (mx.array([2.0, 0.0, 1.0]), mx.array([True, False, True])):
            got = value_and_gradient(
                loss.function, q, p, weights=weights, reduction=reduction, backend=backend
            )
            w = to_float64(weights)
            found = oracle.rows(loss.name, q, p)
            given = np.array([-2.0, 0.5, 3.0]) if reduction == "none" else -2.0
            want = oracle.reduce_rows(found, reduction=reduction, weights=w, cotangent=given)
            if reduction == "none":
                assert_value(got.value, want.value)
                assert got.value64[1] == 0.0
            else:
                denominator = 1.0 if reduction == "sum" else w.sum()
                allowed = reduction_tolerance(float(want.value), w, denominator)
                assert float(got.value64) == pytest.approx(float(want.value), abs=allowed)
            assert_gradient(loss, got.gradient, found, want.row_cotangents)
            assert not got.gradient64[1].any()


@pytest.mark.parametrize("case", VALID | POISON)
def test_cotangent_zero_gives_gradient_zero_whatever_the_row_holds(
    loss: Loss, backend: Backend, dtype: mx.Dtype, case: str
) -> None:
    q, p = stack([ORDINARY, (VALID | POISON)[case], ORDINARY], dtype)
    for zero in (0.0, -0.0):
        cotangent = mx.array([1.0, zero, -2.0]).astype(dtype)
        got = value_and_gradient(loss.function, q, p, cotangent, backend=backend)
        assert got.gradient64[1].tolist() == [0.0] * 4
        assert got.gradient64[0].any()
        assert got.gradient64[2].any()


@poison_rows
def test_poison_that_counts_is_not_hidden_by_a_reduction(
    loss: Loss, backend: Backend, dtype: mx.Dtype, case: str
) -> None:
    q, p = stack([ORDINARY, POISON[case]], dtype)
    for weights in (None, mx.array([1.0, 0.5])):
        for reduction in ("sum", "mean"):
            value = loss.function(q, p, weights=weights, reduction=reduction, backend=backend)
            assert np.isnan(value.item())


def test_infinite_kl_is_not_hidden_by_a_reduction(backend: Backend, dtype: mx.Dtype) -> None:
    q, p = stack([ORDINARY, VALID["disjoint"]], dtype)
    for reduction in ("sum", "mean"):
        assert kl_div_loss(q, p, reduction=reduction, backend=backend).item() == INF


def test_entry_masked_in_both_changes_nothing(loss: Loss, backend: Backend) -> None:
    q, p = mx.array([[1.0, 2.0, 0.5]]), mx.array([[0.5, 1.5, 1.0]])
    column = mx.array([[-INF]])
    masked_q, masked_p = mx.concatenate([q, column], -1), mx.concatenate([p, column], -1)
    bare = value_and_gradient(loss.function, q, p, backend=backend)
    masked = value_and_gradient(loss.function, masked_q, masked_p, backend=backend)
    assert masked.value64 == pytest.approx(bare.value64, rel=1e-6)
    assert masked.gradient64[:, :3] == pytest.approx(bare.gradient64, rel=1e-5)
    assert masked.gradient64[0, 3] == 0.0


def test_one_sided_masks_add_to_js_half_the_mass_times_ln_2(backend: Backend) -> None:
    # q = p = 1/2 on entry 0; the other halves do not meet.
    q, p = mx.array([[0.0, 0.0, -INF]]), mx.array([[0.0, -INF, 0.0]])
    value = js_div_loss(q, p, backend=backend).item()
    assert value == pytest.approx(2 * 0.5 * oracle.LN2 / 2, rel=1e-6)


def test_one_hot_teacher_gives_the_cross_entropy(backend: Backend) -> None:
    q = mx.array([[1.0, 2.0, 3.0, 0.5], [-1.0, 0.0, 4.0, 2.0]])
    targets = mx.array([1, 3])
    teacher = mx.where(mx.arange(4) == targets[:, None], 0.0, -INF)
    got = kl_div_loss(q, teacher, backend=backend)
    want = mx.logsumexp(q, axis=-1) - mx.take_along_axis(q, targets[:, None], -1)[:, 0]
    assert mx.allclose(got, want, rtol=1e-6)


def test_lowest_finite_number_masks_as_minus_infinity_does(
    loss: Loss, backend: Backend, dtype: mx.Dtype
) -> None:
    q, p = stack([VALID["lowest_in_both"]], dtype)
    low = mx.arange(4) == 2
    by_inf_q, by_inf_p = mx.where(low, -INF, q).astype(dtype), mx.where(low, -INF, p).astype(dtype)
    for temperature in (0.3, 0.5, 1.0, 2.0):
        by_lowest = value_and_gradient(
            loss.function, q, p, temperature=temperature, backend=backend
        )
        by_inf = value_and_gradient(
            loss.function, by_inf_q, by_inf_p, temperature=temperature, backend=backend
        )
        found = oracle.rows(loss.name, by_inf_q, by_inf_p, temperature=temperature)
        for got in (by_lowest, by_inf):
            assert_value(got.value, found.value)
            assert_gradient(loss, got.gradient, found, to_float64(cotangent_like(got.value)))
            assert not to_float64(got.gradient)[:, 2].any()


def test_nan_weight_reaches_the_result(loss: Loss, backend: Backend) -> None:
    q, p = stack([ORDINARY, ORDINARY], mx.float32)
    weights = mx.array([1.0, NAN])
    assert np.isnan(loss.function(q, p, weights=weights, reduction="mean", backend=backend).item())


def test_negative_weights_count_negatively(loss: Loss, backend: Backend) -> None:
    q, p = stack([ORDINARY, VALID["gap_of_200"]], mx.float32)
    rows = to_float64(loss.function(q, p, backend=backend))
    weights = mx.array([2.0, -0.5])
    value = loss.function(q, p, weights=weights, reduction="sum", backend=backend).item()
    assert value == pytest.approx(2 * rows[0] - 0.5 * rows[1], rel=1e-6)
