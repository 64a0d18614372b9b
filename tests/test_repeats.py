"""The same call gives the same bits, every time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import pytest

from subjects import Loss, bits, draw_logits, value_and_gradient

if TYPE_CHECKING:
    from mlx_distill import Backend


@pytest.mark.parametrize("shape", [(5, 7), (64, 1000), (9, 4097), (2, 151936)], ids=str)
def test_repeated_runs_are_bitwise_equal(
    loss: Loss, backend: Backend, dtype: mx.Dtype, shape: tuple[int, int]
) -> None:
    q, p = draw_logits(shape, std=20.0, dtype=dtype)
    runs = {
        (bits(got.value), bits(got.gradient))
        for got in (value_and_gradient(loss.function, q, p, backend=backend) for _ in range(10))
    }
    assert len(runs) == 1


def test_fifty_runs_at_a_wide_vocabulary_are_bitwise_equal(loss: Loss, backend: Backend) -> None:
    q, p = draw_logits((4, 32000), std=20.0)
    runs = {
        bits(value_and_gradient(loss.function, q, p, backend=backend).gradient) for _ in range(50)
    }
    assert len(runs) == 1


def test_gradients_evaluated_together_equal_one_alone(loss: Loss, backend: Backend) -> None:
    q, p = draw_logits((8, 32000), std=20.0)

    def run(s: mx.array) -> mx.array:
        return loss.function(s, p, reduction="sum", backend=backend)

    together = [mx.grad(run)(q) for _ in range(4)]
    mx.eval(*together)
    alone = mx.grad(run)(q)
    assert {bits(gradient) for gradient in together} == {bits(alone)}


def test_reductions_are_bitwise_equal_each_time(loss: Loss, backend: Backend) -> None:
    q, p = draw_logits((5000, 16))
    for reduction in ("sum", "mean"):
        runs = {bits(loss.function(q, p, reduction=reduction, backend=backend)) for _ in range(10)}
        assert len(runs) == 1
