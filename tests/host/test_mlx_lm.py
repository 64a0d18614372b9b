"""mlx-lm's kernels, whose text is captured while the test runs: what ours agree with, and why
ours take other forms."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterator
from typing import NamedTuple

import mlx.core as mx
import numpy as np
import pytest

import oracle
from compare import assert_value, assert_within
from host.kernels import Outputs, run
from host.run import Event, Mode, Schedule
from host.stand_in import HostKernel, HostMetal
from oracle import number, to_float64
from subjects import LOSSES, draw_logits
from tolerance import gradient_tolerance, value_tolerance

pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")


class Reference(NamedTuple):
    """The four kernels, and the host that they run on."""

    host: HostMetal
    kernels: dict[str, HostKernel]

    def run(
        self, name: str, q: mx.array, p: mx.array, *extra: mx.array, schedule: Schedule = "lockstep"
    ) -> tuple[list[mx.array], list[Event]]:
        rows, vocabulary = q.shape
        kernel = self.kernels[name]
        forward = name.endswith("forward")
        self.host.schedule = schedule
        self.host.results.clear()
        outputs = kernel(
            inputs=[q, p, *extra],
            output_shapes=[(rows,) if forward else q.shape for _ in kernel.output_names],
            output_dtypes=[q.dtype for _ in kernel.output_names],
            template=[("T", q.dtype), ("V", vocabulary)],
            grid=(1024, rows, 1),
            threadgroup=(1024, 1, 1),
        )
        return outputs, self.host.events

    def gradient(
        self, name: str, q: mx.array, p: mx.array, schedule: Schedule = "lockstep"
    ) -> tuple[mx.array, list[Event]]:
        ones = mx.ones(q.shape[0], dtype=q.dtype)
        extra = [ones] if name == "kl" else [ones, self.run("js_forward", q, p)[0][1]]
        (gradient,), events = self.run(f"{name}_backward", q, p, *extra, schedule=schedule)
        return gradient, events


@pytest.fixture(scope="module")
def reference() -> Iterator[Reference]:
    host = HostMetal(mode=Mode())
    kernels: dict[str, HostKernel] = {}

    def capture(**arguments: object) -> HostKernel:
        kernel = host.metal_kernel(**arguments)  # type: ignore[arg-type]  # as mlx-lm gives them
        kernels[kernel.kernel.name] = kernel
        return kernel

    with pytest.MonkeyPatch.context() as patch:
        losses = importlib.import_module("mlx_lm.tuner.losses")
        patch.setattr(losses, "can_run_metal", lambda: True)
        patch.setattr(mx.fast, "metal_kernel", capture)
        for divergence in ("kl", "js"):
            for direction in ("forward", "backward"):
                getattr(losses, f"_make_{divergence}_{direction}_kernel")()
        yield Reference(host, kernels)


KERNELS = ("kl_forward", "kl_backward", "js_forward", "js_backward")


def lines(reference: Reference, name: str) -> dict[int, str]:
    """Lines of a kernel's source by their numbers."""
    source = reference.kernels[name].kernel.source
    return dict(enumerate(source.splitlines(), start=1))


def events_of(
    reference: Reference, name: str, vocabulary: int, schedule: Schedule = "lockstep"
) -> list[Event]:
    q, p = draw_logits((2, vocabulary))
    if name.endswith("forward"):
        return reference.run(name, q, p, schedule=schedule)[1]
    return reference.gradient(name[:2], q, p, schedule)[1]


@pytest.mark.parametrize("vocabulary", [129, 1000, 4097])
@pytest.mark.parametrize("name", KERNELS)
def test_race_between_maxima_and_sums_is_found(
    reference: Reference, name: str, vocabulary: int
) -> None:
    events = events_of(reference, name, vocabulary)
    races = [event for event in events if event.kind == "race"]
    assert races
    text = lines(reference, name)
    for event in races:
        assert event.where.startswith("shared[")
        places = [re.fullmatch(rf"{name}:(\d+)", place) for place in (event.place, event.other)]
        written, read = (text[int(place[1])] for place in places if place)
        # Whoever came second: the sums are stored where others still read maxima.
        assert {re.sub(r"\s", "", x)[:3] for x in (written, read)} == {"sha", "max"}
    assert any("sum_exp" in text[int(e.place.split(":")[1])] for e in races)


# The bulk of a row, and its last entry, which alone falls to the second SIMD group at 129. In
# order, sums stand out where maxima are below 0; reversed, where the second group has the maximum.
@pytest.mark.parametrize(("schedule", "bulk", "last"), [("serial", -20, -5), ("reverse", 0, 12)])
@pytest.mark.parametrize("name", ["kl", "js"])
def test_race_makes_gradients_wrong_from_129_entries_on(
    reference: Reference, name: oracle.Name, schedule: Schedule, bulk: float, last: float
) -> None:
    for vocabulary, wrong in ((128, False), (129, True), (1000, True)):
        q, p = draw_logits((2, vocabulary), offset_q=bulk, offset_p=bulk)
        q[:, -1], p[:, -1] = last, last - 1
        want = oracle.rows(name, q, p).gradient
        got, _ = reference.gradient(name, q, p, schedule)
        error = np.abs(to_float64(got) - want).max() / np.abs(want).max()
        assert (not error < 0.05) == wrong, f"{vocabulary}: {error}"


def test_last_barrier_of_kl_forward_orders_nothing(reference: Reference) -> None:
    events = events_of(reference, "kl_forward", 4097)
    weak = [event for event in events if event.kind.startswith("race across a barrier")]
    text = lines(reference, "kl_forward")
    stored, read = (
        next(n for n, line in text.items() if re.sub(r"\s", "", line) == statement)
        for statement in ("shared[simd_group_id]=kl;", "kl=shared[simd_lane_id];")
    )
    assert (f"kl_forward:{read}", f"kl_forward:{stored}") in {
        (event.place, event.other) for event in weak
    }
    assert "mem_none" in text[read - 1]


def ours(name: str, q: mx.array, p: mx.array) -> Outputs:
    (loss,) = (loss for loss in LOSSES if loss.name == name)
    return run(loss, q, p, mx.ones(q.shape[0]))[0]


@pytest.mark.parametrize("vocabulary", [1, 5, 33, 128, 1000, 4096, 4097])
@pytest.mark.parametrize("name", ["kl", "js"])
def test_ours_agree_where_the_reference_is_right(
    reference: Reference, name: oracle.Name, vocabulary: int
) -> None:
    # In lockstep its race does no harm, and these logits keep within what its forms can hold.
    q, p = draw_logits((3, vocabulary), std=2.0)
    got = ours(name, q, p)
    value = to_float64(reference.run(f"{name}_forward", q, p)[0][0])
    gradient = to_float64(reference.gradient(name, q, p)[0])
    found = oracle.rows(name, q, p)
    # Twice the tolerance: each side may use its own.
    allowed = value_tolerance(found.value, q.dtype)
    assert_within(to_float64(got.loss), value, 2 * allowed, "value")
    allowed = gradient_tolerance(found.gradient, found.largest, np.ones(3), 1.0, q.dtype)
    assert_within(to_float64(got.gradient), gradient, 2 * allowed, "gradient")


INF = float("inf")
WRONG = {
    "kl_of_a_token_masked_in_both": ("kl", [1.0, 2.0, -INF], [2.0, 1.0, -INF], "nan"),
    "kl_of_a_token_masked_by_the_teacher": ("kl", [1.0, 2.0, 3.0], [2.0, 1.0, -INF], "nan"),
    "js_of_a_token_masked_in_both": ("js", [1.0, 2.0, -INF], [2.0, 1.0, -INF], "nan"),
    "js_of_a_token_masked_by_the_teacher": ("js", [1.0, 2.0, 3.0], [2.0, 1.0, -INF], "nan"),
    "js_of_a_log_ratio_of_90": ("js", [90.0, 0.0, 0.0], [0.0, 0.0, 0.0], "nan or infinite"),
}


@pytest.mark.parametrize("case", WRONG)
def test_value_that_the_reference_loses_is_finite_in_ours(reference: Reference, case: str) -> None:
    name, student, teacher, lost = WRONG[case]
    q, p = mx.array([student]), mx.array([teacher])
    value = number(reference.run(f"{name}_forward", q, p)[0][0])
    assert math.isnan(value) if lost == "nan" else not math.isfinite(value)
    got = ours(name, q, p)
    assert_value(got.loss, oracle.rows("kl" if name == "kl" else "js", q, p).value)
    assert np.isfinite(to_float64(got.gradient)).all()


def test_offset_that_costs_the_reference_its_accuracy_costs_ours_nothing(
    reference: Reference,
) -> None:
    q, p = draw_logits((3, 1000), offset_q=1e4, offset_p=1e4)
    want = oracle.rows("kl", q, p).value
    theirs = to_float64(reference.run("kl_forward", q, p)[0][0])
    assert np.abs(theirs - want).max() > 1e-4
    assert_value(ours("kl", q, p).loss, want)


def test_half_precision_costs_the_reference_its_js_gradient(reference: Reference) -> None:
    q, p = draw_logits((9, 1000), std=5.0, dtype=mx.bfloat16)
    want = oracle.rows("js", q, p).gradient
    theirs, got = reference.gradient("js", q, p)[0], ours("js", q, p).gradient
    off, ours_off = (
        (np.abs(to_float64(x) - want).max(axis=-1) / np.abs(want).max(axis=-1)).max()
        for x in (theirs, got)
    )
    assert off > 0.2
    assert ours_off < 2**-8
