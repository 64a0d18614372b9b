"""Every line of the library's Metal kernels, run on the host."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby, product
from operator import itemgetter

import mlx.core as mx
import numpy as np
import pytest

import oracle
from edge_rows import ORDINARY, POISON, VALID, spread, stack
from host.kernels import Offsets, check, run
from host.run import SCHEDULES, Mode
from mlx_distill.kernels.handles import read_kernel_text
from oracle import to_float64
from subjects import DTYPES, LOSSES, Loss, draw_logits
from tolerance import largest_finite, round_to

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
    "offset_below": (3.0, -1e4, -1e4),
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
    for temperature, seed in ((1.0, rows), (0.7, vocabulary), (3.0, 0)):
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


# Both sides alike, and each of the three apart. The last rows begin elsewhere than the first.
OFFSETS = [Offsets(0, 0, 0), Offsets(1, 1, 1), Offsets(3, 2, 3), Offsets(1, 1, 0), Offsets(0, 1, 1)]


@pytest.mark.parametrize("offsets", OFFSETS, ids=lambda offsets: "".join(map(str, offsets)))
@pytest.mark.parametrize("vocabulary", [1, 2, 5, 8, 33, 1000, 4097])
def test_rows_that_vector_loads_have_to_be_aligned_for_are_right(
    loss: Loss, dtype: mx.Dtype, vocabulary: int, offsets: Offsets
) -> None:
    q, p = draw_logits((9, vocabulary), dtype=dtype)
    check(loss, q, p, temperature=0.7, schedules=SCHEDULES, seed=vocabulary, offsets=offsets)
    check(loss, q[:1], p[:1], mode=MODES["poison_flush_contract"], offsets=offsets)


@pytest.mark.parametrize("case", [*VALID, *POISON])
def test_edge_entries_are_right_where_vector_loads_have_to_be_aligned(
    loss: Loss, dtype: mx.Dtype, case: str
) -> None:
    q, p = spread((VALID | POISON)[case], 4097, dtype)
    check(loss, q, p, mode=MODES["poison"], offsets=Offsets(1, 1, 1))


@pytest.mark.parametrize("offsets", [None, Offsets(1, 1, 1)], ids=["metal", "aligned"])
def test_ordinary_rows_are_read_once_and_by_vectors(
    loss: Loss, dtype: mx.Dtype, offsets: Offsets | None
) -> None:
    ran: set[tuple[str, int]] = set()
    for spread_of, vocabulary in product(SPREADS, (1, 5, 33, 1000, 4097)):
        q, p = draw(spread_of, (9, vocabulary), dtype)
        for host in check(loss, q, p, offsets=offsets):
            ran = ran.union(*(result.lines_run for result in host.results))
    assert not careful_lines() & ran
    files = ["rows.metal", "statistics.metal"] + ["js.metal"] * (loss.name == "js")
    vectors = {place for file in files for place in lines_with(file, "load_vector<T>(")}
    assert vectors <= ran


@modes
def test_probability_is_zero_where_float64_has_zero(
    loss: Loss, dtype: mx.Dtype, mode: Mode
) -> None:
    # In nats below the maximum: float64 ends at 745. The loss is +inf before that.
    for gap in (150.0, 360.0, 700.0, 740.0, 760.0, 1000.0, 1400.0):
        q = mx.array([[0.0, -mx.inf, 1.0, 0.5]] * 3).astype(dtype)
        p = mx.array([[0.0, -gap, -1.0, 0.25]] * 3).astype(dtype)
        check(loss, q, p, mode=mode)


@modes
@pytest.mark.parametrize("vocabulary", [33, 4097])
def test_one_side_may_be_flat(loss: Loss, dtype: mx.Dtype, mode: Mode, vocabulary: int) -> None:
    peaked, flat = draw_logits((9, vocabulary), dtype=dtype)
    peaked[:, 0] = 20.0
    for q, p in ((peaked, 0.01 * flat), (0.01 * flat, peaked)):
        check(loss, q.astype(dtype), p.astype(dtype), mode=mode)


@pytest.mark.parametrize("mode", ["exact", "poison_flush_contract"])
@pytest.mark.parametrize("sides", ["q", "p", "qp"])
def test_maximum_may_come_late(loss: Loss, dtype: mx.Dtype, mode: str, sides: str) -> None:
    rows = dict(zip("qp", draw_logits((9, 4097), std=1.0, dtype=dtype), strict=True))
    for place in (2047, 4096):
        for side in sides:
            rows[side][:, place] = rows[side][:, place] + 0.1 * place
        for below in ("", *"qp"):
            q, p = (x - 1000.0 * (side == below) for side, x in rows.items())
            hosts = check(loss, q, p, mode=MODES[mode])
            hosts += check(loss, q / 1024, p / 1024, mode=MODES[mode], temperature=1 / 1024)
            hosts += check(loss, q, p, mode=MODES[mode], temperature=4.0)
            for host in hosts:
                assert not careful_lines() & set().union(*(r.lines_run for r in host.results))


@modes
def test_rows_that_are_read_again_are_as_precise(loss: Loss, dtype: mx.Dtype, mode: Mode) -> None:
    p, _ = draw_logits((65, 4), std=0.5, dtype=dtype)
    p[:, 3] = -mx.inf
    for far in (-100.0, -30000.0):
        q = mx.array([[0.0, far, 0.5, -mx.inf]] * 65).astype(dtype)
        check(loss, q, p, mode=mode)
    # A probability below float32's, times the largest gap of logits.
    for gap in (97.0, 99.0, 101.0):
        for low in (-largest_finite(dtype), -0.25 * largest_finite(dtype)):
            q = mx.array([[0.0, low, 1.0, 0.5]] * 3).astype(dtype)
            p = mx.array([[0.0, -gap, 0.5, 0.25]] * 3).astype(dtype)
            check(loss, q, p, mode=mode)
        q = mx.array([[0.0, -largest_finite(dtype), 1.0, -mx.inf]] * 3).astype(dtype)
        p = mx.array([[0.0, -gap, 0.5, -mx.inf]] * 3).astype(dtype)
        check(loss, q, p, mode=mode)


@pytest.mark.parametrize("depth", [88.0, 95.0])
@pytest.mark.parametrize(("vocabulary", "masked"), [(1024, 512), (5, 1)])
def test_a_block_that_only_the_student_masks_counts(
    loss: Loss, dtype: mx.Dtype, vocabulary: int, masked: int, depth: float
) -> None:
    # The block is the whole share of some threads, whose own maximum lies 2 ** -126 down.
    block = mx.arange(vocabulary) >= vocabulary - masked
    for low in (-largest_finite(dtype), -0.25 * largest_finite(dtype)):
        q = mx.broadcast_to(mx.where(block, low, 0.0), (2, vocabulary)).astype(dtype)
        p = mx.broadcast_to(mx.where(block, -depth, 0.0), (2, vocabulary)).astype(dtype)
        outputs, _ = run(loss, q, p, mx.ones(2), mode=MODES["exact"])
        want = oracle.rows(loss.name, q, p).value
        # float32 rounds an exponent of -127 by 4e-6, and the term is all of the loss.
        assert to_float64(outputs.loss) == pytest.approx(want, rel=1e-5, abs=1e-6)


@modes
@pytest.mark.parametrize("vocabulary", [33, 1000])
def test_value_keeps_its_bounds(loss: Loss, dtype: mx.Dtype, mode: Mode, vocabulary: int) -> None:
    q, noise = draw_logits((65, vocabulary), dtype=dtype)
    far = mx.zeros(q.shape, dtype=dtype)
    far[:, : vocabulary // 2] = -mx.inf
    near = (q + 1e-3 * noise).astype(dtype)
    for p_of, q_of in ((q, near), (far + q, (far + q)[:, ::-1])):
        outputs, _ = run(loss, q_of, p_of, mx.ones(65), mode=mode)
        value = to_float64(outputs.loss)
        assert (value >= 0).all()
        assert loss.name == "kl" or (value <= round_to(np.log(2), mx.float32)).all()


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


def careful_lines() -> set[tuple[str, int]]:
    """Return the lines of the pass that ordinary rows do not need."""
    lines = read_kernel_text("statistics.metal").split("\n")
    first = next(i for i, line in enumerate(lines) if " careful_statistics(" in line)
    return {("statistics.metal", i + 1) for i in range(first, lines.index("}", first) + 1)}


def lines_with(file: str, text: str) -> set[tuple[str, int]]:
    lines = read_kernel_text(file).split("\n")
    return {(file, i) for i, line in enumerate(lines, start=1) if text in line}


def test_every_line_of_the_kernels_runs(record_property: Callable[[str, object], None]) -> None:
    lines: set[tuple[str, int, str]] = set()
    ran: set[tuple[str, int, str]] = set()
    rows = [ORDINARY, *VALID.values(), *POISON.values()]
    for loss, dtype in product(LOSSES, DTYPES.values()):
        hosts = check(loss, *stack(rows, dtype))
        for vocabulary in (1, 33, 4097, 32000):
            hosts += check(loss, *draw_logits((9, vocabulary), std=20.0, dtype=dtype))
        hosts.append(run(loss, *draw_logits((2, 33)), mx.zeros(2))[1])
        for result in (result for host in hosts for result in host.results):
            lines |= {(*line, result.kernel) for line in result.lines}
            ran |= {(*line, result.kernel) for line in result.lines_run}
    for file, of_file in groupby(sorted(lines), key=itemgetter(0)):
        there = {line for _, line, _ in of_file}
        missed = {line for name, line, _ in lines - ran if name == file}
        ratio = f"{len(there - missed)} of {len(there)}"
        record_property("kernel lines", f"{file}: {ratio} lines ran in every kernel that has them")
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
    for offsets in OFFSETS:
        check(loss, *draw("std_5", (rows, vocabulary), dtype), mode=mode, offsets=offsets)
