"""Every kind of fault, planted in a small kernel, is found, and named with line and location."""

from __future__ import annotations

import re
from typing import NamedTuple

import mlx.core as mx
import pytest

from host.instrument import CompileError
from host.planted import N, run
from host.run import SCHEDULES, Event, Schedule, run_kernel
from host.trace import KernelText

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"


class Fault(NamedTuple):
    """A kernel, and what must be said of it."""

    source: str
    kind: str
    where: str
    place: str
    other: str = ""
    complete: bool = True


WEAK = "race across a barrier without the memory's flag"

FAULTS = {
    "no_barrier": Fault(
        "threadgroup float s[64];\ns[t] = q[t];\nout[t] = s[t ^ 33];",
        "race",
        r"s\[\d+\]",
        "planted:3",
        "planted:2",
    ),
    "read_before_the_next_write": Fault(
        f"threadgroup float s[2];\nif (lane == 0) s[simd] = q[t];\n{BARRIER}\n"
        "float x = s[simd ^ 1];\nif (lane == 0) s[simd] = x;\nout[t] = x;",
        "race",
        r"s\[[01]\]",
        "planted:[45]",
        "planted:[45]",
    ),
    "two_writers": Fault(
        "threadgroup float s[1];\nout[t] = q[t];\ns[0] = q[t];",
        "race",
        r"s\[0\]",
        "planted:3",
        "planted:3",
    ),
    "barrier_for_no_memory": Fault(
        "threadgroup float s[64];\ns[t] = q[t];\nthreadgroup_barrier(mem_flags::mem_none);\n"
        "out[t] = s[t ^ 33];",
        WEAK,
        r"s\[\d+\]",
        "planted:4",
        "planted:2",
    ),
    "barrier_for_device_memory": Fault(
        "threadgroup float s[64];\ns[t] = q[t];\nthreadgroup_barrier(mem_flags::mem_device);\n"
        "out[t] = s[t ^ 33];",
        WEAK,
        r"s\[\d+\]",
        "planted:4",
        "planted:2",
    ),
    "barrier_for_threadgroup_memory_only": Fault(
        f"out[t] = q[t];\n{BARRIER}\nif (t == 0) out[1] = out[2];",
        WEAK,
        r"out\[[12]\]",
        "planted:3",
        "planted:1",
    ),
    "simd_function_is_no_barrier": Fault(
        "threadgroup float s[64];\ns[t] = q[t];\nfloat x = simd_sum(q[t]);\nout[t] = x + s[t ^ 1];",
        "race",
        r"s\[\d+\]",
        "planted:4",
        "planted:2",
    ),
    "read_past_the_end": Fault(
        "\nfloat x = q[t + 1];\nout[t] = x;", "out of bounds", r"q\[64\]", "planted:2", "", False
    ),
    "read_before_the_start": Fault(
        "\nout[t] = q[int(t) - 1];", "out of bounds", r"q\[-1\]", "planted:2", "", False
    ),
    "read_far_away": Fault(
        "\nout[t] = q[t * 1000000];", "out of bounds", r"q\[\d{7,}\]", "planted:2", "", False
    ),
    "write_past_the_end": Fault(
        "\nout[t + 1] = q[t];", "out of bounds", r"out\[64\]", "planted:2", "", False
    ),
    "write_past_threadgroup_memory": Fault(
        "threadgroup float s[63];\nthreadgroup float* at = s;\nat[t] = q[t];\nout[t] = 0.0;",
        "out of bounds",
        r"s\[63\]",
        "planted:3",
        "",
        False,
    ),
    "wild_pointer": Fault(
        "\nout[t] = *reinterpret_cast<const device float*>(ulong(64 + t * 4));",
        "out of bounds",
        "",
        "planted:2",
        "",
        False,
    ),
    "unwritten_output": Fault("if (t != 5)\nout[t] = q[t];", "unwritten output", r"out\[5\]", ""),
    "unwritten_threadgroup_memory": Fault(
        "threadgroup float s[64];\nif (t != 7) s[t] = q[t];\n" + BARRIER + "\nout[t] = s[t ^ 1];",
        "read of unwritten memory",
        r"s\[7\]",
        "planted:4",
    ),
    "unwritten_output_read": Fault(
        "\nout[t] = out[t] + 1.0;", "read of unwritten memory", r"out\[\d+\]", "planted:2"
    ),
    "write_to_an_input": Fault(
        "out[t] = q[t];\n((device float*)q)[t] = 0.0;",
        "write to an input",
        r"q\[\d+\]",
        "planted:2",
    ),
    "barrier_in_a_branch": Fault(
        f"out[t] = q[t];\nif (t < 40) {{\n{BARRIER}\n}}",
        "divergence",
        "",
        "planted:3",
        "",
        False,
    ),
    "barriers_in_two_branches": Fault(
        f"out[t] = q[t];\nif (t < 32) {{\n{BARRIER}\n}} else {{\n{BARRIER}\n}}",
        "divergence",
        "",
        "planted:[35]",
        "planted:[35]",
        False,
    ),
    "simd_function_in_a_branch": Fault(
        "float x = q[t];\nif (lane < 16)\nx = simd_sum(x);\nout[t] = x;",
        "divergence",
        "",
        "planted:3",
        "",
        False,
    ),
    "misaligned_vector": Fault(
        "\nfloat4 v = *reinterpret_cast<const device float4*>(q + min(t, 60u));\nout[t] = v.x;",
        "misaligned access",
        r"q\[\d+\]",
        "planted:2",
        "",
        False,
    ),
    "integer_overflow": Fault(
        "\nint big = 2147483647; big += int(q[1]) + int(t);\nout[t] = float(big);",
        "undefined behaviour",
        "",
        "",
        "",
        False,
    ),
    "index_outside_a_local_array": Fault(
        "\nfloat v[4] = {q[t], 0.0, 0.0, 0.0}; float x = 0.0;\n"
        "for (int i = 0; i < int(q[5]); i++) x += v[i];\nout[t] = x;",
        "undefined behaviour",
        "",
        "",
        "",
        False,
    ),
}


def found(events: list[Event], fault: Fault) -> bool:
    return any(
        event.kernel == "planted"
        and event.kind == fault.kind
        and re.fullmatch(fault.where, event.where)
        and re.fullmatch(fault.place, event.place)
        and (not fault.other or re.fullmatch(fault.other, event.other))
        for event in events
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault_is_found_under_every_schedule(name: str, schedule: Schedule) -> None:
    fault = FAULTS[name]
    result = run(fault.source, schedule=schedule, seed=3)
    assert found(result.events, fault), [str(event) for event in result.events]
    # What is read too early may also be unwritten.
    assert result.kinds() <= {fault.kind, "read of unwritten memory"}
    assert result.complete == fault.complete


def test_race_that_only_a_simd_function_keeps_apart_is_told_from_others() -> None:
    source = "threadgroup float s[64];\ns[t] = q[t];\nfloat x = {};\nout[t] = x + s[t ^ {}];"
    for call, distance, note in (
        ("simd_sum(q[t])", 1, "only a SIMD function lies between"),
        ("simd_sum(q[t])", 33, ""),
        ("q[t]", 1, ""),
    ):
        events = run(source.format(call, distance)).events
        assert {event.note for event in events if event.kind == "race"} == {note}


def test_place_of_undefined_behaviour_is_in_the_note() -> None:
    (event,) = run(FAULTS["integer_overflow"].source).events
    assert event.note == "planted:2: signed integer overflow"


def test_fault_in_a_helper_is_named_with_its_caller() -> None:
    header = "inline float next(const device float* from) {\n    return from[64];\n}\n"
    (event,) = run("\nout[t] = next(q);", header=header).events
    assert event.place == "planted header:2 from planted:2"
    assert "planted: out of bounds, q[64], at planted header:2 from planted:2" in str(event)


def test_threadgroups_that_share_an_output_race() -> None:
    result = run("\nout[t] = q[t];", threads=2 * N, schedule="lockstep")
    (event,) = result.events
    assert (event.kind, event.place, event.other) == ("race", "planted:2", "planted:2")


def test_threadgroup_memory_is_unwritten_again_for_the_next_threadgroup() -> None:
    source = """
        threadgroup float s[64];
        if (threadgroup_position_in_grid.x == 0) s[t] = q[t];
        out[thread_position_in_grid.x] = s[t];"""
    result = run(source, threads=2 * N, size=2 * N, schedule="lockstep")
    assert result.kinds() == {"read of unwritten memory"}
    assert mx.isnan(result.outputs["out"][N:]).all()
    assert not mx.isnan(result.outputs["out"][:N]).any()


def test_unwritten_output_is_nan() -> None:
    for dtype in (mx.float32, mx.float16, mx.bfloat16):
        result = run("if (t != 5) out[t] = static_cast<T>(q[t]);", dtype=dtype)
        assert mx.isnan(result.outputs["out"]).tolist() == [t == 5 for t in range(N)]


REFUSED = {
    "constant_as_device": "out[t] = first(few);",
    "device_as_constant": "out[t] = *(const constant float*)(q + t);",
    "threadgroup_as_device": "threadgroup float s[64]; s[t] = q[t]; out[t] = first(s);",
    "pointer_without_an_address_space": "const float* at = q; out[t] = at[t];",
    "cast_out_of_the_address_space": "const float* at = (const float*)q; out[t] = at[t];",
    "function_that_is_not_modelled": "out[t] = metal::tanh(q[t]);",
    "function_of_the_c_library": "out[t] = expf(q[t]);",
    "attribute_that_is_not_modelled": "out[t] = q[t] + float(threads_per_grid.x);",
    "double": "double x = 1.0; out[t] = float(x) * q[t];",
    "double_literal": "out[t] = q[t] * 1.0L;",
    "float_into_bfloat": "bfloat x = q[t]; out[t] = float(x);",
    "mixed_types_in_max": "out[t] = max(q[t], 0);",
    "atomics": "atomic_uint n; out[t] = q[t];",
}


@pytest.mark.parametrize("name", REFUSED)
def test_mistake_does_not_compile(name: str) -> None:
    header = "inline float first(const device float* from) { return from[0]; }\n"
    source = "uint t = thread_position_in_grid.x;\n" + REFUSED[name]
    with pytest.raises(CompileError):
        run_kernel(
            KernelText("planted", source, header),
            inputs={"q": mx.zeros(N), "few": mx.zeros(7)},
            outputs={"out": ((N,), mx.float32)},
            grid=(N, 1, 1),
            threadgroup=(N, 1, 1),
        )


def test_error_names_the_line_of_the_kernel() -> None:
    with pytest.raises(CompileError, match=r"planted:3:\d+: error: .*tanh"):
        run("\n\nout[t] = metal::tanh(q[t]);")


def test_helper_with_a_device_pointer_compiles_from_8_elements_on() -> None:
    header = "inline float first(const device float* from) { return from[0]; }\n"
    run("out[t] = first(q);", header=header, q=mx.zeros(8))
    with pytest.raises(CompileError, match="address space"):
        run("out[t] = first(q);", header=header, q=mx.zeros(7))
