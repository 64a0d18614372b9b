"""Faults that hostile testing found: each input once gave another number or an error of MLX."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

import oracle
from compare import assert_value
from mlx_distill import DistillError, OutOfRangeError, ShapePairMismatchError, kl_div_loss
from oracle import to_float64
from subjects import Loss, draw_logits

if TYPE_CHECKING:
    from mlx_distill import Backend


@pytest.mark.parametrize(
    ("vocabulary", "kept", "height", "shift"),
    [(131072, 3787, 8.173552513122559, 6.207495212554932), (32000, 172, 12.6346, 4.0442)],
)
def test_kl_of_a_student_whose_maximum_has_moved_is_right(
    backend: Backend, vocabulary: int, kept: int, height: float, shift: float
) -> None:
    p = np.zeros((1, vocabulary), dtype=np.float32)
    p[:, :kept] = height
    q = p.copy()
    q[:, 0] += np.float32(shift)
    student, teacher = mx.array(q), mx.array(p)
    found = oracle.rows("kl", student, teacher)
    assert_value(kl_div_loss(student, teacher, backend=backend), found.value)


@pytest.mark.parametrize(("temperature", "scale_by_t2"), [(1e-10, False), (1e10, True)])
def test_a_cotangent_beyond_range_over_the_temperature_leaves_equal_rows_at_zero(
    loss: Loss, backend: Backend, temperature: float, scale_by_t2: bool
) -> None:
    x = mx.array([[1e-10, 2e-10, -mx.inf]])

    def run(a: mx.array) -> mx.array:
        return loss.function(
            a, x * 1, temperature=temperature, scale_by_t2=scale_by_t2, backend=backend
        )

    assert not to_float64(mx.vjp(run, [x], [mx.array([1e30])])[1][0]).any()


@pytest.mark.parametrize("size", [1e-36, 1e-25, 1.0, 1e25, 1e37])
def test_a_mean_does_not_see_the_size_of_the_weights(
    loss: Loss, backend: Backend, size: float
) -> None:
    q, p = draw_logits((4, 5), std=1.0)
    shape = mx.array([1.0, 0.5, 0.0, 1.0])

    def mean(w: mx.array) -> mx.array:
        return loss.function(q, p, weights=w, reduction="mean", backend=backend)

    value, slopes = mx.value_and_grad(mean)(shape * size)
    want, slopes_at_one = mx.value_and_grad(mean)(shape)
    assert value.item() == pytest.approx(want.item(), rel=1e-6)
    assert to_float64(slopes) * size == pytest.approx(to_float64(slopes_at_one), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("normalizer", [1e-300, 1e-39, 1e39])
def test_a_normalizer_that_float32_cannot_hold_is_refused(loss: Loss, normalizer: float) -> None:
    x = mx.zeros((1, 3))
    with pytest.raises(OutOfRangeError, match="float32"):
        loss.function(x, x, reduction="mean", normalizer=normalizer)


def test_vmap_over_no_rows_keeps_the_shape(loss: Loss, plain: Backend) -> None:
    def run(a: mx.array, b: mx.array) -> mx.array:
        return loss.function(a, b, backend=plain)

    x = mx.zeros((0, 2, 5))
    try:
        assert mx.vmap(run)(x, x).shape == (0, 2)
    except DistillError as refused:
        assert "0" in str(refused)


def test_the_base_error_keeps_its_message() -> None:
    twin = pickle.loads(pickle.dumps(DistillError("hello")))
    assert str(twin) == "hello"


@pytest.mark.parametrize("shape", [(), (5,)])
def test_equal_shapes_do_not_name_a_vocabulary(shape: tuple[int, ...]) -> None:
    assert "vocabularies" not in str(ShapePairMismatchError("x: logits_p", shape, shape))
