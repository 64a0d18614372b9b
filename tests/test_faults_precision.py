"""Faults reported in public against distillation losses: rounding, half precision, memory.

One test for each report, under its number; test_numerics.py holds its whole kind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

import oracle
from compare import assert_gradient
from mlx_distill import kl_div_loss
from oracle import to_float64
from subjects import Loss, bits, value_and_gradient

if TYPE_CHECKING:
    from mlx_distill import Backend


def float32(x: npt.NDArray[np.float64]) -> mx.array:
    return mx.array(x.astype(np.float32))


def test_kd15_equal_bfloat16_logits_give_zero_eager_and_compiled(
    loss: Loss, backend: Backend
) -> None:
    rng = np.random.default_rng(3)
    x = float32(50 * rng.normal(size=(2, 151936)) / 3).astype(mx.bfloat16)

    def run(q: mx.array, p: mx.array) -> mx.array:
        return loss.function(q, p, backend=backend)

    for function in (run, mx.compile(run)):
        assert to_float64(function(x, x)).tolist() == [0.0, 0.0]
        gradient = mx.grad(lambda q, f=function: f(q, x).astype(mx.float32).sum())(x)
        assert not to_float64(gradient).any()


def test_kd16_bfloat16_logits_near_convergence_keep_value_and_gradient(backend: Backend) -> None:
    rng = np.random.default_rng(11)
    base = 3 * rng.normal(size=(8, 32000))
    q = float32(base + 0.02 * rng.normal(size=base.shape)).astype(mx.bfloat16)
    p = float32(base).astype(mx.bfloat16)
    want = [
        0.000238013218,
        0.000454606925,
        0.000382052697,
        0.000495061751,
        0.00083839879,
        0.000596756282,
        0.000383635655,
        0.000195655206,
    ]
    total = kl_div_loss(q, p, reduction="sum", backend=backend)
    assert total.item() == pytest.approx(sum(want), rel=1e-3)
    got = value_and_gradient(kl_div_loss, q, p, mx.ones(8, dtype=mx.bfloat16), backend=backend)
    # A bfloat16 output rounds a value that is right to 1e-3.
    assert got.value64 == pytest.approx(np.array(want), rel=1e-3 + 2.0**-8)
    assert np.linalg.norm(got.gradient64) == pytest.approx(0.0182208757, rel=1e-3)
    first = np.array([9.37298838e-10, 1.18081557e-08, 1.44737936e-07, -6.99111106e-10])
    assert got.gradient64[0, :4] == pytest.approx(first, rel=1e-2, abs=1e-10)
    exact = oracle.rows("kl", q, p).gradient
    assert np.linalg.norm(got.gradient64 - exact) < 1e-2 * np.linalg.norm(exact)


@pytest.mark.parametrize(("reduction", "want"), [("sum", 269927.722), ("mean", 3.85611032)])
def test_kd18_float16_rows_do_not_overflow_their_sum(
    backend: Backend, reduction: str, want: float
) -> None:
    left = mx.zeros((70000, 2), dtype=mx.float16).at[:, 0].add(4.0)
    value = kl_div_loss(
        left, left[:, ::-1], reduction="sum" if reduction == "sum" else "mean", backend=backend
    )
    assert value.dtype == mx.float32
    assert value.item() == pytest.approx(want, rel=1e-5)


def test_kd20_tiny_divergence_is_never_negative_and_keeps_its_gradient(backend: Backend) -> None:
    rng = np.random.default_rng(5)
    base = 8 * rng.normal(size=(32, 50000))
    q, p = float32(base + 1e-4 * rng.normal(size=base.shape)), float32(base)
    got = value_and_gradient(kl_div_loss, q, p, mx.ones(32), backend=backend)
    assert np.min(got.value64) >= 0.0
    assert np.min(got.value64) == pytest.approx(4.38434778e-11, abs=1e-6)
    assert np.max(got.value64) == pytest.approx(2.21755719e-08, abs=1e-6)
    exact = oracle.rows("kl", q, p).gradient
    assert np.linalg.norm(exact) == pytest.approx(0.000204814371, rel=1e-6)
    assert np.linalg.norm(got.gradient64 - exact) < 0.1 * np.linalg.norm(exact)
    assert got.gradient64.any(axis=-1).all()


def test_kd22_no_epsilon_biases_value_or_gradient(backend: Backend) -> None:
    q, p = mx.array([[0.0, -20.0, -40.0]]), mx.array([[-40.0, -20.0, 0.0]])
    got = value_and_gradient(kl_div_loss, q, p, mx.ones(1), backend=backend)
    assert got.value64 == pytest.approx(np.array([39.9999999]), rel=1e-6)
    want = np.array([[0.999999998, 0.0, -0.999999998]])
    assert got.gradient64 == pytest.approx(want, rel=1e-6, abs=1e-12)


def test_kd56_gradients_at_a_wide_vocabulary_are_bitwise_equal_and_right(
    loss: Loss, backend: Backend
) -> None:
    rng = np.random.default_rng(6)
    q, p = (float32(20 * rng.normal(size=(2, 151936))) for _ in range(2))

    def run(s: mx.array) -> mx.array:
        return loss.function(s, p, reduction="sum", backend=backend)

    together = [mx.grad(run)(q) for _ in range(4)]
    mx.eval(*together)
    assert len({bits(gradient) for gradient in together}) == 1
    assert_gradient(loss, together[0], oracle.rows(loss.name, q, p), np.ones(2))
