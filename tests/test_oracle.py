"""The oracle and the tolerances hold what they are trusted for."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest

import oracle
from compare import assert_gradient, assert_value
from oracle import Matrix
from subjects import INF, NAN, Loss, draw_logits
from tolerance import half_ulp

QUARTERS = mx.array([[0.0, math.log(3.0)]])  # q = [1/4, 3/4]
HALVES = mx.array([[0.0, 0.0]])  # p = [1/2, 1/2]


def test_closed_forms_come_out_of_the_oracle() -> None:
    kl = oracle.rows("kl", QUARTERS, HALVES)
    js = oracle.rows("js", QUARTERS, HALVES)
    assert kl.value == pytest.approx([0.5 * (2 * math.log(2) - math.log(3))], rel=1e-7)
    assert kl.gradient == pytest.approx(np.array([[-0.25, 0.25]]), rel=1e-7)
    assert js.value == pytest.approx([0.03382208], rel=1e-6)


@pytest.mark.parametrize("temperature", [0.7, 3.0])
@pytest.mark.parametrize("scale_by_t2", [False, True])
def test_gradient_of_the_oracle_is_the_slope_of_its_value(
    loss: Loss, temperature: float, *, scale_by_t2: bool
) -> None:
    q, p = draw_logits((1, 5), std=2.0)
    found = oracle.rows(loss.name, q, p, temperature=temperature, scale_by_t2=scale_by_t2)
    step = 2.0**-7
    for j in range(5):
        move = mx.zeros((1, 5)).at[0, j].add(step)
        up, down = (
            oracle.rows(loss.name, at, p, temperature=temperature, scale_by_t2=scale_by_t2).value
            for at in (q + move, q - move)
        )
        assert found.gradient[0, j] == pytest.approx((up - down)[0] / (2 * step), abs=1e-4)


@pytest.mark.parametrize(
    ("q", "p", "kl", "js"),
    [
        ([0.0, -INF], [0.0, -INF], 0.0, 0.0),
        ([0.0, 0.0], [0.0, -INF], oracle.LN2, None),
        ([0.0, -INF], [0.0, 0.0], INF, None),
        ([0.0, -INF], [0.0, -800.0], 0.0, 0.0),
        ([0.0, -INF], [0.0, -700.0], INF, 0.0),
        ([0.0, -INF], [-INF, 0.0], INF, oracle.LN2),
        ([-INF, -INF], [0.0, 0.0], NAN, NAN),
        ([0.0, 0.0], [-INF, -INF], NAN, NAN),
        ([0.0, INF], [0.0, 0.0], NAN, NAN),
        ([0.0, NAN], [0.0, 0.0], NAN, NAN),
        ([0.0, -3e38], [0.0, 0.0], 1.5e38, None),
        ([3e38, -3e38], [-3e38, 3e38], 6e38, oracle.LN2),
    ],
    ids=str,
)
def test_edges_are_built_into_the_oracle(
    q: list[float], p: list[float], kl: float, js: float | None
) -> None:
    logits_q, logits_p = mx.array([q]), mx.array([p])
    assert oracle.rows("kl", logits_q, logits_p).value == pytest.approx(
        [kl], rel=1e-6, abs=1e-12, nan_ok=True
    )
    if js is not None:
        assert oracle.rows("js", logits_q, logits_p).value == pytest.approx(
            [js], rel=1e-6, abs=1e-12, nan_ok=True
        )


def test_half_a_unit_in_the_last_place_is_what_the_formats_say() -> None:
    size = np.array([1.0, 1.99, 2.0, 0.0])
    assert half_ulp(size, mx.float16).tolist() == [2.0**-11, 2.0**-11, 2.0**-10, 2.0**-25]
    assert half_ulp(size, mx.bfloat16)[:3].tolist() == [2.0**-8, 2.0**-8, 2.0**-7]
    assert half_ulp(size, mx.float32).tolist() == [0.0] * 4


def test_a_gradient_of_zeros_fails_at_a_wide_vocabulary(loss: Loss) -> None:
    q, p = draw_logits((1, 151936), std=1.0)
    found = oracle.rows(loss.name, q, p)
    with pytest.raises(AssertionError, match="gradient"):
        assert_gradient(loss, mx.zeros_like(q), found, np.ones(1))


@pytest.mark.parametrize("wrong", [1.0 + 3e-6, NAN, INF])
def test_a_value_outside_its_tolerance_fails(wrong: float) -> None:
    assert_value(mx.array([1.0 + 1e-6]), np.ones(1))
    with pytest.raises(AssertionError, match="value"):
        assert_value(mx.array([wrong]), np.ones(1))


def test_weight_gradient_of_the_oracle_is_the_slope_of_its_mean() -> None:
    q, p = draw_logits((3, 4))
    found = oracle.rows("kl", q, p)
    weights = np.array([1.0, 0.5, 2.0])

    def mean(w: Matrix) -> float:
        return float(oracle.reduce_rows(found, reduction="mean", weights=w).value)

    slopes = oracle.reduce_rows(found, reduction="mean", weights=weights).weights_gradient
    for j in range(3):
        move = 1e-6 * np.eye(3)[j]
        slope = (mean(weights + move) - mean(weights - move)) / 2e-6
        assert slopes[j] == pytest.approx(slope, rel=1e-6)
