"""What only a GPU can show: full size, many rows, and the same bits under real scheduling."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import pytest

from compare import assert_matches_oracle
from subjects import Loss, Outcome, backends, draw_logits, value_and_gradient

KERNELS = backends()[1:]
SHAPE = (512, 151936)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not KERNELS, reason="needs a GPU that the kernels run on"),
]


@pytest.fixture(autouse=True)
def _memory() -> Iterator[None]:
    yield
    mx.clear_cache()


def draw(seed: int, dtype: mx.Dtype) -> tuple[mx.array, mx.array]:
    """Return logits of std 20, made on the GPU."""
    both = 20 * mx.random.normal((2, *SHAPE), key=mx.random.key(seed))
    q, p = both[0].astype(dtype), both[1].astype(dtype)
    mx.eval(q, p)
    return q, p


def same_bits(a: mx.array, b: mx.array) -> bool:
    """Compare where the arrays are: copies of fifty runs would take longer than the runs."""
    as_integers = {4: mx.uint32, 2: mx.uint16}[a.dtype.size]
    return bool(mx.array_equal(a.view(as_integers), b.view(as_integers)).item())


def test_fifty_runs_at_full_size_are_bitwise_equal(loss: Loss, dtype: mx.Dtype) -> None:
    q, p = draw(0, dtype)

    def run() -> Outcome:
        return value_and_gradient(loss.function, q, p, backend=KERNELS[0])

    first = run()
    assert mx.isfinite(first.value).all()
    assert mx.any(first.gradient != 0)
    for _ in range(49):
        again = run()
        assert same_bits(again.value, first.value)
        assert same_bits(again.gradient, first.gradient)


def test_four_gradients_in_one_evaluation_are_those_of_four(loss: Loss) -> None:
    pairs = [draw(seed, mx.float32) for seed in range(4)]

    def gradient(q: mx.array, p: mx.array) -> mx.array:
        def run(s: mx.array) -> mx.array:
            return loss.function(s, p, reduction="sum", backend=KERNELS[0])

        slopes: mx.array = mx.grad(run)(q)
        return slopes

    together = [gradient(*pair) for pair in pairs]
    mx.eval(together)
    for pair, found in zip(pairs, together, strict=True):
        assert same_bits(found, gradient(*pair))


@pytest.mark.parametrize("shape", [(70_000, 33), (2_000_000, 5)], ids=str)
def test_many_rows_are_right(loss: Loss, dtype: mx.Dtype, shape: tuple[int, int]) -> None:
    q, p = draw_logits(shape, dtype=dtype)
    assert_matches_oracle(loss, q, p, {"backend": KERNELS[0], "temperature": 0.7})
