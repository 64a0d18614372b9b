"""Every line of the library's Metal kernels, run on the host."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby, product
from operator import itemgetter

import mlx.core as mx
import numpy as np
import pytest

from edge_rows import ORDINARY, POISON, VALID, spread, stack
from host.kernels import check, run
from host.run import SCHEDULES, Mode
from oracle import to_float64
from subjects import DTYPES, LOSSES, Loss, draw_logits

MODES = {
    "exact": Mode(),
    "poison": Mode(fast="poison"),
    "flush": Mode(flush_denormals=True, sums="down"),
    "contract": Mode(contract=True, sums="tree"),
    "poison_flush_contract": Mode("poison", flush_denormals=True, contract=True, sums="down"),
    "perturb": Mode(fast="perturb", sums="tree"),
    "perturb_flush": Mode(fast="perturb", flush_denormals=True, seed=1),
    "perturb_contract": Mode(fast="perturb", contract=True, sums="down", seed=2),
}
modes = pytest.mark.parametrize("mode", MODES.values(), ids=MODES)

# The standard deviation of the logits, and an offset on all of q and of p.
SPREADS = {
    "std_1": (1.0, 0.0, 0.0),
    "std_5": (5.0, 0.0, 0.0),
    "std_20": (20.0, 0.0, 0.0),
    "offset_q": (3.0, 1e4, 0.0),
    "offset_p": (3.0, 0.0, 1e4),
    "offset_both": (3.0, 1e4, 1e4),
}


def draw(kind: str, shape: tuple[int, int], dtype: mx.Dtype) -> tuple[mx.array, mx.array]:
    std, offset_q, offset_p = SPREADS[kind]
    return draw_logits(shape, std=std, offset_q=offset_q, offset_p=offset_p, dtype=dtype)


@pytest.mark.parametrize("rows", [1, 2, 8, 9])
@pytest.mark.parametrize("vocabulary", [1, 2, 3, 5, 33, 1000, 4097])
def test_value_and_gradient_are_right_under_every_schedule(
    loss: Loss, dtype: mx.Dtype, vocabulary: int, rows: int
) -> None:
    q, p = draw_logits((rows, vocabulary), dtype=dtype)
    for temperature, seed in ((1.0, rows), (0.7, vocabulary)):
        check(loss, q, p, temperature=temperature, schedules=SCHEDULES, seed=seed)


@pytest.mark.parametrize("vocabulary", [4095, 4096, 8192, 32000])
@pytest.mark.parametrize("rows", [1, 9])
def test_large_rows_are_right(loss: Loss, vocabulary: int, rows: int) -> None:
    dtype = list(DTYPES.values())[vocabulary % 3]
    q, p = draw_logits((rows, vocabulary), dtype=dtype)
    check(loss, q, p, temperature=3.0, scale_by_t2=True, schedules=("serial", "random"))


@modes
@pytest.mark.parametrize("spread_of", SPREADS)
def test_numbers_that_metal_leaves_open_do_not_matter(
    loss: Loss, dtype: mx.Dtype, mode: Mode, spread_of: str
) -> None:
    for vocabulary, temperature in ((5, 1.0), (33, 3.0), (1000, 0.7), (4097, 1.0)):
        q, p = draw(spread_of, (3, vocabulary), dtype)
        check(loss, q, p, temperature=temperature, mode=mode, schedules=("reverse",))


@modes
def test_edge_rows_are_right(loss: Loss, dtype: mx.Dtype, mode: Mode) -> None:
    rows = [ORDINARY, *VALID.values(), *POISON.values()]
    for temperature in (0.7, 1.0, 3.0):
        check(loss, *stack(rows, dtype), temperature=temperature, mode=mode)


# The gradient at the lowest temperature is out of float16's range.
@modes
@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=["float32", "bfloat16"])
def test_edge_rows_are_right_at_the_ends_of_temperature(
    loss: Loss, dtype: mx.Dtype, mode: Mode
) -> None:
    rows = [ORDINARY, *VALID.values(), *POISON.values()]
    for temperature in (1e-20, 1e20):
        check(loss, *stack(rows, dtype), temperature=temperature, mode=mode)


@pytest.mark.parametrize("mode", ["exact", "poison_flush_contract"])
@pytest.mark.parametrize("case", [*VALID, *POISON])
def test_edge_entries_of_wide_rows_are_right(
    loss: Loss, dtype: mx.Dtype, case: str, mode: str
) -> None:
    row = (VALID | POISON)[case]
    check(loss, *spread(row, 4097, dtype), mode=MODES[mode], schedules=("serial", "reverse"))


@modes
def test_same_bits_give_exactly_zero(loss: Loss, dtype: mx.Dtype, mode: Mode) -> None:
    for vocabulary in (1, 3, 33, 1000, 4097):
        q, _ = draw_logits((9, vocabulary), std=20.0, dtype=dtype)
        q[:, 1:2] = -mx.inf
        outputs, _ = run(loss, q, q, mx.ones(9), temperature=0.7, mode=mode)
        assert not outputs.loss.any()
        assert not outputs.gradient.any()


@modes
@pytest.mark.parametrize("vocabulary", [4, 4097])
def test_row_of_cotangent_zero_has_gradient_zero(
    loss: Loss, dtype: mx.Dtype, mode: Mode, vocabulary: int
) -> None:
    for row in [*VALID.values(), *POISON.values()]:
        q, p = stack([row], dtype) if vocabulary == 4 else spread(row, vocabulary, dtype)
        outputs, _ = run(loss, q, p, mx.zeros(1), mode=mode)
        assert np.array_equal(to_float64(outputs.gradient), np.zeros(q.shape))


def test_every_line_of_the_kernels_runs(record_property: Callable[[str, object], None]) -> None:
    lines: set[tuple[str, int]] = set()
    ran: set[tuple[str, int]] = set()
    rows = [ORDINARY, *VALID.values(), *POISON.values()]
    for loss, dtype in product(LOSSES, DTYPES.values()):
        hosts = check(loss, *stack(rows, dtype))
        for vocabulary in (1, 33, 4097, 32000):
            hosts += check(loss, *draw_logits((9, vocabulary), std=20.0, dtype=dtype))
        hosts.append(run(loss, *draw_logits((2, 33)), mx.zeros(2))[1])
        for result in (result for host in hosts for result in host.results):
            lines |= result.lines
            ran |= result.lines_run
    for file, of_file in groupby(sorted(lines), key=itemgetter(0)):
        there = set(of_file)
        record_property("kernel lines", f"{file}: {len(there & ran)} of {len(there)} lines ran")
    assert len(lines) > 100
    assert not lines - ran, sorted(lines - ran)


@pytest.mark.host_full
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9])
@pytest.mark.parametrize("vocabulary", [1, 2, 3, 4, 5, 31, 33, 1000, 4095, 4096, 4097, 8192, 32000])
@modes
def test_whole_grid(loss: Loss, dtype: mx.Dtype, vocabulary: int, rows: int, mode: Mode) -> None:
    for kind, temperature in product(("std_1", "std_20", "offset_both"), (1.0, 0.7)):
        q, p = draw(kind, (rows, vocabulary), dtype)
        schedules = SCHEDULES if kind == "std_1" else ("random",)
        check(loss, q, p, temperature=temperature, mode=mode, schedules=schedules, seed=rows)
