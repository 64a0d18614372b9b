"""More entries than 2^31 and 2^32: for GPUs, where such logits live."""

from __future__ import annotations

from collections.abc import Iterator

import mlx.core as mx
import pytest

import oracle
from compare import assert_gradient, assert_value
from subjects import Loss, backends

KERNELS = backends()[1:]
VOCABULARY = 65536
CHECKED = 61  # rows at either end

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(not KERNELS, reason="needs a GPU that the kernels run on"),
]


@pytest.fixture(autouse=True)
def _memory() -> Iterator[None]:
    """Three arrays of 8.6 GB and their parts; none may outlive its test."""
    total = mx.device_info().get("total_memory", mx.device_info().get("memory_size", 0))
    if int(total) < 40e9:
        pytest.skip("needs 40 GB of memory on the GPU")
    mx.clear_cache()
    yield
    mx.clear_cache()


@pytest.mark.parametrize("entries", [2**31, 2**32], ids=["2^31", "2^32"])
def test_the_last_rows_of_huge_logits_are_right(loss: Loss, entries: int) -> None:
    rows = entries // VOCABULARY + 64
    base = mx.random.normal((2, VOCABULARY), dtype=mx.bfloat16, key=mx.random.key(0))
    # Each row has its own spread, so that a row read at a wrapped offset is another row.
    spread = (1 + mx.arange(rows) % CHECKED).astype(mx.bfloat16)[:, None] / 16
    q, p = base[0] * spread, base[1] * spread
    mx.eval(q, p)

    def run(s: mx.array, t: mx.array) -> mx.array:
        return loss.function(s, t, backend=KERNELS[0])

    values, gradients = mx.vjp(lambda s: run(s, p), [q], [mx.ones((rows,), dtype=q.dtype)])
    mx.eval(values, gradients)
    for part in (slice(0, CHECKED), slice(rows - CHECKED, rows)):
        few_q, few_p = mx.contiguous(q[part]), mx.contiguous(p[part])
        ones = mx.ones((CHECKED,), dtype=q.dtype)
        want, slopes = mx.vjp(lambda s, t=few_p: run(s, t), [few_q], [ones])
        assert mx.array_equal(values[0][part], want[0])
        assert mx.array_equal(gradients[0][part], slopes[0])
        found = oracle.rows(loss.name, few_q, few_p)
        assert_value(values[0][part], found.value)
        assert_gradient(loss, gradients[0][part], found, oracle.to_float64(ones))
