"""Runs one launch of a kernel and says what went wrong in it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress
from typing import Literal

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from host.build import Compiled, compile_kernel, runtime
from host.trace import Generated, KernelText, Output, TemplateValue, generate

Schedule = Literal["lockstep", "serial", "reverse", "random"]
SCHEDULES: tuple[Schedule, ...] = ("lockstep", "serial", "reverse", "random")

_KINDS = (
    "race",
    "race across a barrier without the memory's flag",
    "read of unwritten memory",
    "unwritten output",
    "out of bounds",
    "misaligned access",
    "write to an input",
    "divergence",
    "undefined behaviour",
)
_FAST = ("exact", "poison", "perturb")
_SUMS = ("up", "down", "tree")
_BUFFERS, _EVENTS, _THREADS = 32, 64, 1024
_NOWHERE = 2**32 - 1


@dataclass(frozen=True)
class Mode:
    """Numbers that Metal leaves open.

    fast: the fast functions as good as libm; poison for inf, nan, denormals and what a log
        does not take; or off by up to Metal's bounds.
    """

    fast: Literal["exact", "poison", "perturb"] = "exact"
    flush_denormals: bool = False
    contract: bool = False
    sums: Literal["up", "down", "tree"] = "up"
    seed: int = 0


@dataclass(frozen=True)
class Event:
    """One kind of failure between one pair of places, and how often it was seen."""

    kernel: str
    kind: str
    where: str
    place: str
    other: str
    note: str
    threads: tuple[int, int]
    count: int

    def __str__(self) -> str:
        at = f"at {self.place}" if self.place else ""
        other = f"with {self.other}" if self.other else ""
        parts = [f"{self.kernel}: {self.kind}", self.where, at, self.note, other]
        parts.append(f"threads {self.threads[0]} and {self.threads[1]}, {self.count} times")
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Result:
    """What a launch wrote, and its failures. `complete` is False where it had to be abandoned."""

    kernel: str
    outputs: dict[str, mx.array]
    events: list[Event]
    complete: bool
    lines_run: frozenset[tuple[str, int]] = field(repr=False)
    lines: frozenset[tuple[str, int]] = field(repr=False)

    def kinds(self) -> set[str]:
        return {event.kind for event in self.events}


class _Buffer(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("cell", ctypes.c_uint64),
        ("output", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
    )


class _Launch(ctypes.Structure):
    _fields_ = (
        ("entry", ctypes.c_void_p),
        ("grid", ctypes.c_uint32 * 3),
        ("group", ctypes.c_uint32 * 3),
        ("buffers", ctypes.c_void_p),
        ("count", ctypes.c_uint32),
        ("schedule", ctypes.c_int),
        ("seed", ctypes.c_uint64),
        ("fast", ctypes.c_int),
        ("sum_order", ctypes.c_int),
        ("flush", ctypes.c_int),
        ("number_seed", ctypes.c_uint32),
        ("blocks", ctypes.c_void_p),
    )


class _Event(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int),
        ("memory", ctypes.c_uint32),
        ("element", ctypes.c_int64),
        ("site", ctypes.c_uint32),
        ("thread", ctypes.c_uint32),
        ("other_site", ctypes.c_uint32),
        ("other_thread", ctypes.c_uint32),
        ("count", ctypes.c_uint64),
        ("note", ctypes.c_char * 256),
    )


# Arrays as their bits, in unsigned integers; shapes in signed ones.
Raw = npt.NDArray[np.integer]

_generated: dict[object, Generated] = {}


def run_kernel(
    kernel: KernelText,
    *,
    inputs: Mapping[str, mx.array],
    outputs: Mapping[str, Output],
    grid: tuple[int, int, int],
    threadgroup: tuple[int, int, int],
    template: Mapping[str, TemplateValue] | None = None,
    schedule: Schedule = "lockstep",
    seed: int = 0,
    mode: Mode | None = None,
    offsets: Mapping[str, int] | None = None,
) -> Result:
    """Run `kernel` on the host; `grid` counts threads. The random schedule follows `seed`.

    An array that `offsets` names begins that many elements beyond a multiple of 16 bytes.
    """
    mode = mode or Mode()
    generated = _generate(kernel, inputs, outputs, template or {})
    compiled = compile_kernel(kernel, generated, contract=mode.contract)
    arrays = [
        _bytes_of(p.name, inputs, outputs) for p in generated.parameters if p.buffer is not None
    ]
    names = [p.name for p in generated.parameters if p.buffer is not None]
    buffers = (_Buffer * len(arrays))(
        *(
            _Buffer(
                a.ctypes.data,
                a.nbytes,
                a.itemsize,
                name in outputs,
                (offsets or {}).get(name, -1) * a.itemsize,
            )
            for name, a in zip(names, arrays, strict=True)
        )
    )
    blocks = np.zeros(len(compiled.blocks), dtype=np.uint8)
    launch = _Launch(
        compiled.entry,
        grid,
        threadgroup,
        ctypes.cast(buffers, ctypes.c_void_p),
        len(arrays),
        SCHEDULES.index(schedule),
        seed,
        _FAST.index(mode.fast),
        _SUMS.index(mode.sums),
        mode.flush_denormals,
        mode.seed,
        blocks.ctypes.data,
    )
    found = (_Event * _EVENTS)()
    host_run = runtime().host_run
    host_run.restype = ctypes.c_uint32
    state: int = host_run(ctypes.byref(launch), found, _EVENTS)
    return Result(
        kernel.name,
        {
            name: _array_of(a, *outputs[name])
            for name, a in zip(names, arrays, strict=True)
            if name in outputs
        },
        [_event(kernel.name, compiled, names, e) for e in found[: state & 0x7FFFFFFF]],
        complete=state >> 31 == 0,
        lines_run=frozenset(chain(*compress(compiled.blocks, blocks))),
        lines=frozenset(chain(*compiled.blocks)),
    )


def _generate(
    kernel: KernelText,
    inputs: Mapping[str, mx.array],
    outputs: Mapping[str, Output],
    template: Mapping[str, TemplateValue],
) -> Generated:
    # What the signature depends on.
    like = tuple((name, a.dtype, a.ndim == 0, a.size < 8) for name, a in inputs.items())
    made = tuple((name, dtype) for name, (_, dtype) in outputs.items())
    key = (kernel, like, made, tuple(template.items()))
    if key not in _generated:
        _generated[key] = generate(kernel, inputs, outputs, template)
    return _generated[key]


def _bytes_of(name: str, inputs: Mapping[str, mx.array], outputs: Mapping[str, Output]) -> Raw:
    if name in inputs:
        return _as_integers(inputs[name])
    if name in outputs:
        shape, dtype = outputs[name]
        return np.zeros(int(np.prod(shape)), dtype=f"u{dtype.size}")
    array, _, what = name.rpartition("_")
    if array in inputs and what == "shape":
        return np.array(inputs[array].shape, dtype=np.int32)
    raise NotImplementedError(f"a kernel parameter that is not modelled: {name}")


def _as_integers(x: mx.array) -> Raw:
    kind = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}[x.dtype.size]
    return np.asarray(mx.contiguous(x.reshape(-1)).view(kind))


def _array_of(raw: Raw, shape: Sequence[int], dtype: mx.Dtype) -> mx.array:
    return mx.array(raw).view(dtype).reshape(shape)


def _event(kernel: str, compiled: Compiled, names: Sequence[str], found: _Event) -> Event:
    memory = [*names, *[""] * (_BUFFERS - len(names)), *compiled.threadgroup_names]
    where = "" if found.memory == _NOWHERE else f"{memory[found.memory]}[{found.element}]"
    return Event(
        kernel,
        _KINDS[found.kind],
        where,
        str(compiled.place(found.site) or ""),
        str(compiled.place(found.other_site) or ""),
        found.note.decode(),
        (found.thread % _THREADS, found.other_thread % _THREADS),
        found.count,
    )
