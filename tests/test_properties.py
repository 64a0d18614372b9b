"""What holds for any logits, searched for counter-examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import oracle
from mlx_distill import js_div_loss
from oracle import to_float64
from subjects import Loss, value_and_gradient
from tolerance import gradient_tolerance, round_to, value_tolerance

if TYPE_CHECKING:
    from mlx_distill import Backend

# Multiples of 1/8 keep every shift below exact in float32.
entries = st.integers(-400, 400).map(lambda n: n / 8)
masks = st.sampled_from([0.0, 0.0, 0.0, -np.inf])
temperatures = st.sampled_from([0.5, 0.7, 1.0, 3.0])


@st.composite
def pairs(draw: st.DrawFn, *, masked: bool = False) -> tuple[mx.array, mx.array]:
    """Draw student and teacher logits of one shape; with masks, the first entry stays."""
    rows, vocabulary = draw(st.integers(1, 4)), draw(st.integers(1, 9))
    shape = (2, rows, vocabulary)
    size = 2 * rows * vocabulary
    x = np.array(draw(st.lists(entries, min_size=size, max_size=size))).reshape(shape)
    if masked:
        mask = np.array(draw(st.lists(masks, min_size=size, max_size=size))).reshape(shape)
        mask[..., 0] = 0.0
        x = x + mask
    both = x.astype(np.float32)
    return mx.array(both[0]), mx.array(both[1])


@given(pair=pairs(masked=True), temperature=temperatures)
def test_loss_is_never_negative(
    loss: Loss, backend: Backend, pair: tuple[mx.array, mx.array], temperature: float
) -> None:
    values = to_float64(loss.function(*pair, temperature=temperature, backend=backend))
    assert (values >= 0).all()


@given(pair=pairs(masked=True), temperature=temperatures)
def test_loss_is_exactly_zero_at_equality(
    loss: Loss, backend: Backend, pair: tuple[mx.array, mx.array], temperature: float
) -> None:
    q, _ = pair
    got = value_and_gradient(loss.function, q, q, temperature=temperature, backend=backend)
    assert not got.value64.any()
    assert not got.gradient64.any()


@given(
    pair=pairs(masked=True),
    shift_q=st.integers(-(2**14), 2**14),
    shift_p=st.integers(-(2**14), 2**14),
)
def test_loss_does_not_see_a_shift_of_all_logits_of_a_row(
    loss: Loss, backend: Backend, pair: tuple[mx.array, mx.array], shift_q: int, shift_p: int
) -> None:
    q, p = pair
    plain = value_and_gradient(loss.function, q, p, backend=backend)
    moved = value_and_gradient(loss.function, q + shift_q, p + shift_p, backend=backend)
    assert mx.array_equal(plain.value, moved.value, equal_nan=True)
    assert mx.array_equal(plain.gradient, moved.gradient, equal_nan=True)


@given(pair=pairs(masked=True), temperature=temperatures)
def test_js_is_symmetric_and_at_most_ln_2(
    backend: Backend, pair: tuple[mx.array, mx.array], temperature: float
) -> None:
    q, p = pair
    there = to_float64(js_div_loss(q, p, temperature=temperature, backend=backend))
    back = to_float64(js_div_loss(p, q, temperature=temperature, backend=backend))
    assert (np.abs(there - back) <= 2 * value_tolerance(there, mx.float32)).all()
    assert np.max(there) <= round_to(oracle.LN2, mx.float32)


@given(pair=pairs(masked=True), data=st.data())
def test_order_of_the_vocabulary_does_not_matter(
    loss: Loss, backend: Backend, pair: tuple[mx.array, mx.array], data: st.DataObject
) -> None:
    q, p = pair
    order = mx.array(data.draw(st.permutations(range(q.shape[-1]))))
    cotangent = mx.ones(q.shape[:-1])
    plain = value_and_gradient(loss.function, q, p, cotangent, backend=backend)
    mixed = value_and_gradient(loss.function, q[:, order], p[:, order], cotangent, backend=backend)
    want = plain.value64
    finite = np.isfinite(want)
    difference = np.abs(mixed.value64[finite] - want[finite])
    assert (difference <= 2 * value_tolerance(want[finite], mx.float32)).all()
    assert (np.isinf(mixed.value64) == np.isinf(want)).all()
    permuted = plain.gradient64[:, np.array(order)]
    largest = oracle.rows(loss.name, q, p).largest[:, np.array(order)]
    allowed = 2 * gradient_tolerance(permuted, largest, np.ones(len(want)), 1.0, mx.float32)
    assert (np.abs(mixed.gradient64 - permuted) <= allowed).all()


@given(pair=pairs(masked=True), data=st.data())
def test_order_of_the_rows_is_kept(
    loss: Loss, backend: Backend, pair: tuple[mx.array, mx.array], data: st.DataObject
) -> None:
    q, p = pair
    order = mx.array(data.draw(st.permutations(range(q.shape[0]))))
    cotangent = mx.ones(q.shape[:-1])
    plain = value_and_gradient(loss.function, q, p, cotangent, backend=backend)
    mixed = value_and_gradient(loss.function, q[order], p[order], cotangent, backend=backend)
    want = np.nan_to_num(plain.value64, posinf=np.inf)[np.array(order)]
    got = mixed.value64
    assert (np.isinf(got) == np.isinf(want)).all()
    finite = np.isfinite(want)
    allowed = 2 * value_tolerance(want[finite], mx.float32)
    assert (np.abs(got[finite] - want[finite]) <= allowed).all()
    assert np.allclose(mixed.gradient64, plain.gradient64[np.array(order)], rtol=1e-5, atol=1e-7)


@given(pair=pairs(), temperature=temperatures)
def test_gradient_of_a_row_sums_to_zero(
    loss: Loss, backend: Backend, pair: tuple[mx.array, mx.array], temperature: float
) -> None:
    got = value_and_gradient(loss.function, *pair, temperature=temperature, backend=backend)
    assert np.abs(got.gradient64.sum(axis=-1)).max() < 2e-5


@given(pair=pairs(masked=True), extra=st.integers(1, 5))
def test_entries_masked_in_both_can_be_appended(
    loss: Loss, backend: Backend, pair: tuple[mx.array, mx.array], extra: int
) -> None:
    q, p = pair
    mask = mx.full((q.shape[0], extra), -np.inf)
    cotangent = mx.ones(q.shape[:-1])
    plain = value_and_gradient(loss.function, q, p, cotangent, backend=backend)
    longer_q, longer_p = mx.concatenate([q, mask], -1), mx.concatenate([p, mask], -1)
    longer = value_and_gradient(loss.function, longer_q, longer_p, cotangent, backend=backend)
    assert np.allclose(longer.value64, plain.value64, rtol=2e-6, atol=2e-6)
    bare = longer.gradient64[:, : q.shape[1]]
    assert np.allclose(bare, plain.gradient64, rtol=1e-5, atol=1e-7)
    assert not longer.gradient64[:, q.shape[1] :].any()
