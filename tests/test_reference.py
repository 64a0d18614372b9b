"""What the reference implementation promises in its own tests, in our words.

Kernel handles, arities and templates are in test_kernel_handles.py.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import mlx.core as mx
import pytest

from mlx_distill import (
    DtypeMismatchError,
    OutOfRangeError,
    RankMismatchError,
    ShapePairMismatchError,
    UnsupportedDtypeError,
    js_div_loss,
    kl_div_loss,
)
from oracle import number, to_float64
from subjects import Loss, draw_logits

if TYPE_CHECKING:
    from mlx_distill import Backend

# q = [1/4, 3/4] and p = [1/2, 1/2]
Q, P = [0.0, math.log(3.0)], [0.0, 0.0]
KL = 0.5 * (2 * math.log(2.0) - math.log(3.0))
JS = 0.03382208


def gradients(loss: Loss, q: mx.array, p: mx.array, backend: Backend) -> tuple[mx.array, mx.array]:
    def total(s: mx.array, t: mx.array) -> mx.array:
        return loss.function(s, t, backend=backend).sum()

    for_q, for_p = mx.grad(total, argnums=(0, 1))(q, p)
    return for_q, for_p


def test_kl_of_halves_and_quarters_is_its_closed_form(backend: Backend) -> None:
    value = kl_div_loss(mx.array([Q]), mx.array([P]), backend=backend)
    assert value.shape == (1,)
    assert value.item() == pytest.approx(KL, abs=1e-6)
    assert value.item() == pytest.approx(0.143841, abs=1e-6)


def test_js_of_halves_and_quarters_is_its_closed_form(backend: Backend) -> None:
    value = js_div_loss(mx.array([Q]), mx.array([P]), backend=backend)
    assert value.shape == (1,)
    assert value.item() == pytest.approx(JS, abs=1e-6)


def test_kl_gradient_is_q_minus_p_and_the_teacher_gets_none(backend: Backend) -> None:
    def total(s: mx.array, t: mx.array) -> mx.array:
        return kl_div_loss(s, t, backend=backend).sum()

    for_q, for_p = mx.grad(total, argnums=(0, 1))(mx.array([Q]), mx.array([P]))
    assert for_q.tolist() == [pytest.approx([-0.25, 0.25], abs=1e-6)]
    assert for_p.tolist() == [[0.0, 0.0]]


def test_js_gradient_sums_to_zero_and_is_not_zero(backend: Backend) -> None:
    def total(s: mx.array, t: mx.array) -> mx.array:
        return js_div_loss(s, t, backend=backend).sum()

    for_q, for_p = mx.grad(total, argnums=(0, 1))(mx.array([Q]), mx.array([P]))
    assert abs(number(for_q.sum())) < 1e-6
    assert number(mx.abs(for_q).max()) > 1e-2
    assert for_p.tolist() == [[0.0, 0.0]]


def test_identical_rows_have_no_divergence(loss: Loss, backend: Backend) -> None:
    x = mx.array([[0.3, -1.2, 2.5, 0.0]])
    assert loss.function(x, mx.array(x), backend=backend).item() == 0.0


def test_batched_rows_are_independent(backend: Backend) -> None:
    q, p = mx.array([Q, [0.7, 0.7]]), mx.array([P, [0.7, 0.7]])
    for function, want in ((kl_div_loss, KL), (js_div_loss, JS)):
        value = function(q, p, backend=backend)
        assert value.shape == (2,)
        assert value[0].item() == pytest.approx(want, abs=1e-6)
        assert value[1].item() == 0.0


def test_leading_axes_stay_and_the_last_goes(loss: Loss, backend: Backend) -> None:
    q, p = draw_logits((3, 5, 7))
    assert loss.function(q, p, backend=backend).shape == (3, 5)
    for_q, for_p = gradients(loss, q, p, backend)
    assert for_q.shape == for_p.shape == (3, 5, 7)
    assert not to_float64(for_p).any()


def test_float32_float16_and_bfloat16_are_taken(
    loss: Loss, backend: Backend, dtype: mx.Dtype
) -> None:
    ones = mx.ones((1, 4), dtype=dtype)
    assert loss.function(ones, ones, backend=backend).dtype == dtype


def test_shapes_that_differ_are_refused(loss: Loss) -> None:
    with pytest.raises(ShapePairMismatchError) as caught:
        loss.function(mx.ones((2, 4)), mx.ones((2, 8)))
    assert caught.value.expected == (2, 4)
    assert caught.value.actual == (2, 8)
    assert loss.prefix in caught.value.context


def test_dtypes_that_differ_are_refused(loss: Loss) -> None:
    with pytest.raises(DtypeMismatchError) as caught:
        loss.function(mx.ones((2, 4)), mx.ones((2, 4), dtype=mx.float16))
    assert caught.value.expected == "float32"
    assert caught.value.got == "float16"


@pytest.mark.parametrize("shape", [(), (4,)], ids=str)
def test_ranks_below_two_are_refused(loss: Loss, shape: tuple[int, ...]) -> None:
    with pytest.raises(RankMismatchError) as caught:
        loss.function(mx.ones(shape), mx.ones(shape))
    assert loss.prefix in caught.value.context
    assert "rank" in caught.value.context
    assert caught.value.actual == len(shape)


def test_a_rank_one_teacher_is_a_rank_error_not_a_shape_error(loss: Loss) -> None:
    with pytest.raises(RankMismatchError) as caught:
        loss.function(mx.ones((1, 4)), mx.ones((4,)))
    assert "logits_p" in caught.value.context
    assert caught.value.actual == 1
    assert caught.value.actual_shape == (4,)


def test_an_empty_last_axis_is_refused_before_its_dtype(loss: Loss) -> None:
    for dtype in (mx.float32, mx.int32):
        with pytest.raises(OutOfRangeError) as caught:
            loss.function(mx.ones((1, 0), dtype=dtype), mx.ones((1, 0), dtype=dtype))
        assert caught.value.requirement == "must be > 0"
        assert caught.value.value == "0"


def test_integer_logits_are_refused(loss: Loss) -> None:
    ones = mx.ones((1, 4), dtype=mx.int32)
    with pytest.raises(UnsupportedDtypeError) as caught:
        loss.function(ones, ones)
    assert loss.prefix in caught.value.context
    assert caught.value.dtype == "int32"
    assert caught.value.supported == ("float32", "float16", "bfloat16")
