"""What the sums of the library's Metal kernels keep: small entries, small differences."""

from __future__ import annotations

from unittest.mock import patch

import mlx.core as mx
import numpy as np
import pytest

from host.kernels import check, run
from host.run import Mode
from host.test_kernels import MODES, careful_lines
from mlx_distill._ops import launch
from subjects import Loss, draw_logits

modes = pytest.mark.parametrize("mode", ["exact", "poison_flush_contract"])


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("side", ["q", "p"])
def test_sums_keep_entries_that_are_lost_one_by_one(
    loss: Loss, dtype: mx.Dtype, side: str, masked: bool
) -> None:
    # Each adds a fifth of the last place to a sum that one entry has brought to a half.
    tail = np.full((1, 131072), -18.25, dtype=np.float32)
    tail[:, 0] = 0.0
    alone = np.full_like(tail, -40.0)
    alone[:, 0] = 0.0
    if masked:
        tail[:, 5] = alone[:, 5] = -np.inf
    q, p = (mx.array(x).astype(dtype) for x in ((tail, alone) if side == "q" else (alone, tail)))
    check(loss, q, p)


@modes
@pytest.mark.parametrize("vocabulary", [1000, 8192])
def test_confident_rows_near_convergence_are_right(loss: Loss, vocabulary: int, mode: str) -> None:
    # One entry holds 50 to 99.9 percent: what rounding takes from its row's sum is all of q - p.
    rng = np.random.default_rng(0)
    tail = np.exp(rng.normal(size=(64, vocabulary)))
    rest = np.logspace(-3, 0, 64)[:, None]
    logits_p = np.log(rest * tail / tail.sum(axis=-1, keepdims=True))
    logits_p[np.arange(64), rng.integers(vocabulary, size=64)] = 0.0
    logits_q = logits_p + 0.03 * rng.normal(size=logits_p.shape)
    q, p = (mx.array(x.astype(np.float32)) for x in (logits_q, logits_p))
    check(loss, q, p, mode=MODES[mode])


@modes
@pytest.mark.parametrize("first", ["q", "p"])
def test_maxima_may_come_one_after_the_other(
    loss: Loss, dtype: mx.Dtype, first: str, mode: str
) -> None:
    # With 256 threads one thread sees all three, if vectors are of 4 entries or of 8.
    early, late = draw_logits((9, 8192), std=1.0, dtype=dtype)
    early[:, 1023] += 150.0
    late[:, 1023 + 1024] += 200.0
    late[:, 1023 + 2048] += 400.0
    q, p = (early, late) if first == "q" else (late, early)
    for host in check(loss, q, p, mode=MODES[mode]):
        assert not careful_lines() & set().union(*(result.lines_run for result in host.results))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("grows", ["q", "p"])
def test_maximum_may_grow_step_by_step(loss: Loss, grows: str, seed: int) -> None:
    flat, up = draw_logits((2, 65536), std=0.1)
    flat[:, 0] = 11.0  # half of its row
    up += 2.0 * mx.floor(mx.arange(65536) / 1024)
    q, p = (up, flat) if grows == "q" else (flat, up)
    check(loss, q, p, mode=Mode(fast="perturb", seed=seed))


@modes
@pytest.mark.parametrize("vocabulary", [5, 33, 1000, 4097])
def test_rows_of_many_entries_are_right_when_read_again(
    loss: Loss, dtype: mx.Dtype, vocabulary: int, mode: str
) -> None:
    q, p = draw_logits((9, vocabulary), dtype=dtype)
    q[:, 1] = p[:, 1] = -mx.inf
    check(loss, q, p, mode=MODES[mode])
    # One maximum a row, as far above the rest as sums could not bear.
    for row in range(9):
        place = (257 * row + 256) % vocabulary
        q[row, place] = 300.0
        p[row, place] = 200.0
    check(loss, q, p, mode=MODES[mode])


@pytest.mark.parametrize("vocabulary", [5, 33, 1000])
def test_rows_of_cotangent_zero_may_lie_between_others(
    loss: Loss, dtype: mx.Dtype, vocabulary: int
) -> None:
    q, p = draw_logits((9, vocabulary), dtype=dtype)
    cotangent = mx.array([1.0, 0.0, 2.0] * 3)
    some = run(loss, q, p, cotangent)[0].gradient
    every = run(loss, q, p, mx.maximum(cotangent, 1.0))[0].gradient
    assert mx.array_equal(some, mx.where(cotangent[:, None] == 0, 0.0, every))


def test_groups_of_as_many_threads_as_metal_has_are_right(loss: Loss, dtype: mx.Dtype) -> None:
    q, p = draw_logits((9, 8193), dtype=dtype)
    with patch.object(launch, "_MAX_THREADS", 1024):
        check(loss, q, p, schedules=("serial", "reverse"))
        q[:, 1] = p[:, 1] = -mx.inf
        check(loss, q, p)
