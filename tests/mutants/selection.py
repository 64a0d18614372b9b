"""The host tests that a mutant goes through, the fastest and sharpest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import mlx.core as mx

from edge_rows import POISON, VALID
from host import test_kernels as host
from host import test_kernels_sums as sums
from host.test_kernels import MODES, OFFSETS
from subjects import LOSSES, Loss

Check = Callable[[], None]


def selection(file: str) -> Iterator[Check]:
    """Yield tests that can see a change in `file`, in an order that compiles as little as it can.

    Most mutants fail the first one. What a mutant survives it is compiled for several times.
    """
    losses = [loss for loss in LOSSES if file.startswith(loss.name)] or LOSSES
    for part in (_rows, _aligned_rows, _wide_rows, _half_rows, _contracted_rows):
        for loss in losses:
            yield from part(loss)


def _rows(loss: Loss) -> Iterator[Check]:
    right = host.test_value_and_gradient_are_right_under_every_schedule
    for vocabulary in (33, 4097, 5, 1000, 1):
        yield partial(right, loss, mx.float32, vocabulary, rows=9)
    yield partial(host.test_large_rows_are_right, loss, vocabulary=4095, rows=9)
    for vocabulary in (33, 1000):
        zero = sums.test_rows_of_cotangent_zero_may_lie_between_others
        yield partial(zero, loss, mx.float32, vocabulary)
        again = sums.test_rows_of_many_entries_are_right_when_read_again
        yield partial(again, loss, mx.float32, vocabulary, "exact")
    yield partial(sums.test_groups_of_as_many_threads_as_metal_has_are_right, loss, mx.float32)
    for side in "qp":
        after = sums.test_maxima_may_come_one_after_the_other
        yield partial(after, loss, mx.float32, side, "exact")
        for seed in range(4):
            yield partial(sums.test_maximum_may_grow_step_by_step, loss, side, seed)
    near = sums.test_confident_rows_near_convergence_are_right
    yield partial(near, loss, 1000, "exact")
    yield partial(host.test_ordinary_rows_are_read_once_and_by_vectors, loss, mx.float32, None)
    for sides in ("q", "p", "qp"):
        yield partial(host.test_maximum_may_come_late, loss, mx.float32, "exact", sides)
    yield partial(
        host.test_rows_that_are_read_again_are_as_precise, loss, mx.float32, MODES["flush"]
    )
    for name in ("exact", "poison", "flush", "perturb"):
        mode = MODES[name]
        yield partial(host.test_edge_rows_are_right, loss, mx.float32, mode)
        yield partial(host.test_same_bits_give_exactly_zero, loss, mx.float32, mode)
        yield partial(host.test_value_keeps_its_bounds, loss, mx.float32, mode, 1000)
        yield partial(host.test_one_side_may_be_flat, loss, mx.float32, mode, 4097)
        ends = host.test_edge_rows_are_right_at_the_ends_of_temperature
        yield partial(ends, loss, mx.float32, mode)


def _wide_rows(loss: Loss) -> Iterator[Check]:
    zero = host.test_row_of_cotangent_zero_has_gradient_zero
    for vocabulary in (4, 4097):
        yield partial(zero, loss, mx.float32, MODES["poison"], vocabulary)
    for case in (*VALID, *POISON):
        yield partial(
            host.test_edge_entries_of_wide_rows_are_right, loss, mx.float32, case, "exact"
        )
    for name in ("poison", "perturb"):
        yield partial(
            host.test_probability_is_zero_where_float64_has_zero, loss, mx.float32, MODES[name]
        )
        yield from _numbers(loss, name)

    lost = sums.test_sums_keep_entries_that_are_lost_one_by_one
    for side, masked in product("qp", (False, True)):
        yield partial(lost, loss, mx.float32, side, masked)


def _numbers(loss: Loss, mode: str) -> Iterator[Check]:
    test = host.test_numbers_that_metal_leaves_open_do_not_matter
    for spread_of in ("std_1", "std_20", "offset_q", "offset_both"):
        yield partial(test, loss, mx.float32, MODES[mode], spread_of)


def _half_rows(loss: Loss) -> Iterator[Check]:
    right = host.test_value_and_gradient_are_right_under_every_schedule
    for vocabulary in (5, 33, 1000, 4097):
        yield partial(right, loss, mx.bfloat16, vocabulary, rows=9)
    yield partial(host.test_large_rows_are_right, loss, vocabulary=32000, rows=9)
    for name in ("exact", "poison"):
        yield partial(host.test_edge_rows_are_right, loss, mx.bfloat16, MODES[name])


def _aligned_rows(loss: Loss) -> Iterator[Check]:
    right = host.test_rows_that_vector_loads_have_to_be_aligned_for_are_right
    for vocabulary in (33, 1, 5, 4097):
        for offsets in OFFSETS:
            yield partial(right, loss, mx.float32, vocabulary, offsets)
    yield partial(
        host.test_ordinary_rows_are_read_once_and_by_vectors, loss, mx.float32, OFFSETS[1]
    )


def _contracted_rows(loss: Loss) -> Iterator[Check]:
    for name in ("contract", "poison_flush_contract"):
        yield partial(host.test_same_bits_give_exactly_zero, loss, mx.float32, MODES[name])
        yield partial(host.test_edge_rows_are_right, loss, mx.float32, MODES[name])
        yield from _numbers(loss, name)
