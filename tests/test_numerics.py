"""Value and gradient against float64, within the promised tolerances."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

from compare import assert_matches_oracle
from subjects import Loss, Options, draw_logits

if TYPE_CHECKING:
    from mlx_distill import Backend

VOCABULARIES = (1, 7, 1000, 4095, 4096, 4097, 32000, 151936)
TEMPERATURES = (0.7, 1.0, 3.0)
OFFSETS = {"none": (0.0, 0.0), "q": (1e4, 0.0), "p": (0.0, 1e4), "both": (1e4, 1e4)}

# One row for each spread of the logits and each place of the offset.
GRID = list(product((1.0, 5.0, 20.0), OFFSETS))
LABELS = [f"std {std:g} offset {where}" for std, where in GRID]


@pytest.mark.parametrize("temperature", TEMPERATURES, ids=lambda t: f"T{t:g}")
@pytest.mark.parametrize("vocabulary", VOCABULARIES, ids=lambda v: f"V{v}")
def test_value_and_gradient_match_float64(
    loss: Loss, backend: Backend, dtype: mx.Dtype, vocabulary: int, temperature: float
) -> None:
    offsets = np.array([OFFSETS[where] for _, where in GRID])
    q, p = draw_logits(
        (len(GRID), vocabulary),
        std=np.array([[std] for std, _ in GRID]),
        offset_q=offsets[:, :1],
        offset_p=offsets[:, 1:],
        dtype=dtype,
    )
    options: Options = {"temperature": temperature, "backend": backend}
    assert_matches_oracle(loss, q, p, options, labels=LABELS)


@pytest.mark.parametrize("temperature", TEMPERATURES, ids=lambda t: f"T{t:g}")
@pytest.mark.parametrize("vocabulary", [7, 4097], ids=lambda v: f"V{v}")
def test_t_squared_scales_value_and_gradient(
    loss: Loss, backend: Backend, dtype: mx.Dtype, vocabulary: int, temperature: float
) -> None:
    q, p = draw_logits((5, vocabulary), std=5.0, dtype=dtype, seed=1)
    options: Options = {"temperature": temperature, "scale_by_t2": True, "backend": backend}
    assert_matches_oracle(loss, q, p, options)


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (3, 7), (2, 3, 5, 11), (257, 3)], ids=str)
def test_every_shape_keeps_its_leading_axes(
    loss: Loss, backend: Backend, shape: tuple[int, ...]
) -> None:
    q, p = draw_logits(shape, seed=2)
    got = assert_matches_oracle(loss, q, p, {"temperature": 0.7, "backend": backend})
    assert got.value.shape == shape[:-1]
    assert got.gradient.shape == shape


@pytest.mark.parametrize("noise", [1e-1, 1e-2, 1e-3, 1e-4])
@pytest.mark.parametrize("vocabulary", [1000, 50000], ids=lambda v: f"V{v}")
def test_near_equal_logits_keep_a_gradient_that_is_right(
    loss: Loss, backend: Backend, vocabulary: int, noise: float
) -> None:
    base, step = draw_logits((4, vocabulary), std=1.0, seed=3)
    options: Options = {"temperature": 1.0, "backend": backend}
    got = assert_matches_oracle(loss, 8 * base + noise * step, 8 * base, options)
    assert got.gradient64.any(axis=-1).all()


@pytest.mark.parametrize("vocabulary", [1000, 4097, 50000], ids=lambda v: f"V{v}")
def test_confident_rows_near_convergence_keep_a_gradient_that_is_right(
    loss: Loss, backend: Backend, vocabulary: int
) -> None:
    # One entry holds 50 to 99.9 percent: what rounding takes from its row's sum is all of q - p.
    rng = np.random.default_rng(0)
    tail = np.exp(rng.normal(size=(64, vocabulary)))
    rest = np.logspace(-3, 0, 64)[:, None]
    logits_p = np.log(rest * tail / tail.sum(axis=-1, keepdims=True))
    logits_p[np.arange(64), rng.integers(vocabulary, size=64)] = 0.0
    logits_q = logits_p + 0.03 * rng.normal(size=logits_p.shape)
    q, p = (mx.array(x.astype(np.float32)) for x in (logits_q, logits_p))
    assert_matches_oracle(loss, q, p, {"backend": backend})


@pytest.mark.parametrize("scale", [1e-3, 1e-10, 1e10, 1e20])
def test_small_and_large_cotangents_scale_the_gradient(
    loss: Loss, backend: Backend, scale: float
) -> None:
    q, p = draw_logits((3, 1000), seed=4)
    cotangent = mx.array([scale, -scale, 0.0])
    assert_matches_oracle(loss, q, p, {"backend": backend}, cotangent=cotangent)


@pytest.mark.parametrize("temperature", [1e-20, 1e-3, 1e3, 1e20])
def test_temperatures_at_the_ends_of_their_range_are_right(
    loss: Loss, backend: Backend, temperature: float
) -> None:
    q, p = draw_logits((3, 100), seed=5)
    assert_matches_oracle(loss, q, p, {"temperature": temperature, "backend": backend})


def test_float_int_and_numpy_temperatures_give_the_same(loss: Loss, backend: Backend) -> None:
    q, p = draw_logits((3, 100), seed=6)
    want = loss.function(q, p, temperature=2.0, backend=backend)
    for same in (2, np.float64(2.0)):
        assert mx.array_equal(loss.function(q, p, temperature=same, backend=backend), want)


def test_auto_gives_what_its_backend_gives(loss: Loss, backend: Backend) -> None:
    q, p = draw_logits((3, 100), seed=7)
    chosen = "mlx" if mx.default_device().type == mx.DeviceType.cpu else backend
    auto = loss.function(q, p)
    named = loss.function(q, p, backend=chosen)
    assert mx.allclose(auto, named, rtol=1e-6, atol=1e-6)


def test_inputs_are_never_written(loss: Loss, backend: Backend, dtype: mx.Dtype) -> None:
    q, p = draw_logits((5, 4097), dtype=dtype, seed=8)
    before = np.array(q.astype(mx.float32)), np.array(p.astype(mx.float32))
    assert_matches_oracle(loss, q, p, {"backend": backend})
    assert np.array_equal(np.array(q.astype(mx.float32)), before[0])
    assert np.array_equal(np.array(p.astype(mx.float32)), before[1])
