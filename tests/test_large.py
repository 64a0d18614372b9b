"""More entries than 2^31 and 2^32: for GPUs, where such logits live."""

from __future__ import annotations

import mlx.core as mx
import pytest

from subjects import Loss, backends

KERNELS = backends()[1:]
VOCABULARY = 32768


@pytest.mark.slow
@pytest.mark.skipif(not KERNELS, reason="needs a GPU")
@pytest.mark.parametrize("entries", [2**31, 2**32])
def test_the_last_rows_of_huge_logits_are_right(loss: Loss, entries: int) -> None:
    rows = entries // VOCABULARY + 7
    base = mx.random.normal((2, VOCABULARY), dtype=mx.bfloat16, key=mx.random.key(0))
    # Each row has its own spread, so that a row read at a wrapped offset is another row.
    spread = (1 + mx.arange(rows) % 61).astype(mx.bfloat16)[:, None] / 16
    q, p = base[0] * spread, base[1] * spread

    def run(s: mx.array, t: mx.array) -> mx.array:
        return loss.function(s, t, backend=KERNELS[0])

    values, gradients = mx.vjp(lambda s: run(s, p), [q], [mx.ones((rows,), dtype=q.dtype)])
    for part in (slice(0, 61), slice(rows - 61, rows)):
        few_q, few_p = mx.contiguous(q[part]), mx.contiguous(p[part])
        want, slopes = mx.vjp(
            lambda s, t=few_p: run(s, t), [few_q], [mx.ones((61,), dtype=q.dtype)]
        )
        assert mx.array_equal(values[0][part], want[0])
        assert mx.array_equal(gradients[0][part], slopes[0])
