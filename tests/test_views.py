"""Inputs and cotangents that are not row-contiguous give what their copies give."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

from compare import assert_matches_oracle
from subjects import Loss, draw_logits, value_and_gradient

if TYPE_CHECKING:
    from mlx_distill import Backend

View = Callable[[mx.array], mx.array]

VIEWS: dict[str, View] = {
    "reversed_rows": lambda x: x[::-1],
    "reversed_vocabulary": lambda x: x[:, ::-1],
    "transposed": lambda x: x.T,
    "strided_vocabulary": lambda x: x[:, ::2],
    "strided_rows": lambda x: x[1::2, 3:],
    "offset_by_one_entry": lambda x: x[:, 1:],
    "three_axes_transposed": lambda x: x.reshape(6, 5, -1).transpose(1, 0, 2),
    "vocabulary_moved_last": lambda x: mx.moveaxis(x.reshape(6, 5, -1), 0, 2),
    "one_row_broadcast": lambda x: mx.broadcast_to(x[:1], (4, x.shape[1])),
    "one_entry_broadcast": lambda x: mx.broadcast_to(x[:, :1], (x.shape[0], 7)),
    "strided_view": lambda x: mx.as_strided(x, (4, 8), (3, 1), 2),
}

# The size of a vocabulary that one vector load does not divide, and one that it does.
shapes = pytest.mark.parametrize("shape", [(6, 10), (6, 4100)], ids=str)
views = pytest.mark.parametrize("view", VIEWS)


@views
@shapes
def test_views_of_both_inputs_give_what_copies_give(
    loss: Loss, backend: Backend, dtype: mx.Dtype, shape: tuple[int, int], view: str
) -> None:
    q, p = draw_logits(shape, dtype=dtype)
    assert_matches_oracle(loss, VIEWS[view](q), VIEWS[view](p), {"backend": backend})


@views
def test_a_view_beside_a_copy_gives_what_copies_give(
    loss: Loss, backend: Backend, view: str
) -> None:
    q, p = draw_logits((6, 10))
    q, p = VIEWS[view](q), VIEWS[view](p)
    copy = mx.array(np.array(p))
    assert_matches_oracle(loss, q, copy, {"backend": backend})
    assert_matches_oracle(loss, mx.array(np.array(q)), p, {"backend": backend})


@views
def test_views_give_what_copies_give_when_compiled(loss: Loss, backend: Backend, view: str) -> None:
    q, p = draw_logits((6, 10))
    viewed, copied = VIEWS[view], VIEWS[view](p)

    def of_view(a: mx.array) -> mx.array:
        return loss.function(viewed(a), copied, reduction="sum", backend=backend)

    value, gradient = mx.compile(mx.value_and_grad(of_view))(q)
    want_value, want_gradient = mx.value_and_grad(of_view)(q)
    assert mx.allclose(value, want_value, rtol=1e-6)
    assert mx.allclose(gradient, want_gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ["broadcast", "broadcast_rows", "transposed", "strided", "back"])
def test_cotangents_of_any_layout_reach_the_gradient(
    loss: Loss, backend: Backend, dtype: mx.Dtype, kind: str
) -> None:
    q, p = draw_logits((3, 4, 11), dtype=dtype)
    grid = mx.arange(1, 13).reshape(3, 4).astype(dtype)
    cotangent = {
        "broadcast": mx.broadcast_to(mx.array(-2.0, dtype=dtype), (3, 4)),
        "broadcast_rows": mx.broadcast_to(grid[:, :1], (3, 4)),
        "transposed": mx.arange(1, 13).reshape(4, 3).astype(dtype).T,
        "strided": mx.arange(24).reshape(3, 8).astype(dtype)[:, ::2],
        "back": grid[::-1, ::-1],
    }[kind]
    assert_matches_oracle(loss, q, p, {"backend": backend}, cotangent=cotangent)


def test_weights_of_any_layout_apply_to_their_rows(loss: Loss, backend: Backend) -> None:
    q, p = draw_logits((3, 4, 11))
    grid = mx.arange(12.0).reshape(4, 3)
    for weights in (
        grid.T,
        mx.arange(24.0).reshape(3, 8)[:, ::-2],
        mx.broadcast_to(grid[0], (4, 3)).T,
    ):
        copy = mx.array(np.array(weights))
        for reduction in ("none", "sum", "mean"):
            got = value_and_gradient(
                loss.function, q, p, weights=weights, reduction=reduction, backend=backend
            )
            want = value_and_gradient(
                loss.function, q, p, weights=copy, reduction=reduction, backend=backend
            )
            assert mx.array_equal(got.value, want.value)
            assert mx.array_equal(got.gradient, want.gradient)
