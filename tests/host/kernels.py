"""The library's own kernels on the host, launched as the library launches them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import mlx.core as mx
import numpy as np

import oracle
from compare import assert_gradient, assert_value, assert_within
from host.run import Mode, Schedule
from host.stand_in import HostMetal
from mlx_distill._ops import launch
from mlx_distill._ops.options import Scaling
from mlx_distill.kernels import handles
from oracle import Matrix, Rows
from subjects import Loss, bits
from tolerance import gradient_tolerance, largest_finite, value_tolerance

DIVERGENCES = {
    "kl": (handles.KL_FORWARD, handles.KL_BACKWARD, 4),
    "js": (handles.JS_FORWARD, handles.JS_BACKWARD, 5),
}

_ALIGNED = Path(__file__).with_name("aligned.h").read_text()


class Offsets(NamedTuple):
    """Where rows begin, in elements beyond a multiple of 16 bytes."""

    logits_q: int
    logits_p: int
    gradient: int


class Outputs(NamedTuple):
    """What the two kernels of a divergence wrote."""

    loss: mx.array
    statistics: mx.array
    gradient: mx.array

    def bits(self) -> tuple[bytes, ...]:
        return tuple(bits(x) for x in self)


@contextmanager
def on_host(host: HostMetal) -> Iterator[HostMetal]:
    """Let the library build its Metal kernels for the host."""

    def named(file: str) -> str:
        text = f'#line 1 "{file}"\n{read(file)}'
        if host.offsets and file == "metal.h":
            text += f'\n#line 1 "aligned.h"\n{_ALIGNED}'
        return text

    read = handles.read_kernel_text
    with (
        patch.object(mx.fast, "metal_kernel", host.metal_kernel),
        patch.object(handles, "read_kernel_text", named),
        patch.dict(handles._COMPILED, clear=True),  # noqa: SLF001  # or MLX's stay in use
    ):
        yield host


def run(
    loss: Loss,
    q: mx.array,
    p: mx.array,
    cotangent: mx.array,
    *,
    temperature: float = 1.0,
    scale_by_t2: bool = False,
    schedule: Schedule = "lockstep",
    seed: int = 0,
    mode: Mode | None = None,
    offsets: Offsets | None = None,
) -> tuple[Outputs, HostMetal]:
    """Run forward and backward; fail on any event. `offsets` brings the vector loads of CUDA."""
    forward, backward, statistics = DIVERGENCES[loss.name]
    scaling = Scaling(temperature, scale_by_t2)
    places = {} if offsets is None else offsets._asdict()
    with on_host(HostMetal(schedule, mode or Mode(), seed, places)) as host:
        value, saved = launch.forward(forward, "metal", q, p, scaling, statistics)
        gradient = launch.gradient(backward, "metal", q, p, cotangent, saved, scaling)
    how = f"{schedule} schedule, seed {seed}, {host.mode}"
    assert not host.events, "\n".join([how, *map(str, host.events)])
    return Outputs(value, saved, gradient), host


def check(
    loss: Loss,
    q: mx.array,
    p: mx.array,
    *,
    temperature: float = 1.0,
    scale_by_t2: bool = False,
    mode: Mode | None = None,
    schedules: tuple[Schedule, ...] = ("lockstep",),
    seed: int = 0,
    offsets: Offsets | None = None,
) -> list[HostMetal]:
    """Fail unless value and gradient are right, and the same bits under each schedule."""
    cotangent = mx.array(np.resize(np.array([-2.0, 0.5, 3.0], dtype=np.float32), q.shape[0]))
    hosts = []
    first: Outputs | None = None
    for schedule in schedules:
        got, host = run(
            loss,
            q,
            p,
            cotangent,
            temperature=temperature,
            scale_by_t2=scale_by_t2,
            schedule=schedule,
            seed=seed,
            mode=mode,
            offsets=offsets,
        )
        hosts.append(host)
        if first is None:
            first = got
            found = oracle.rows(loss.name, q, p, temperature=temperature, scale_by_t2=scale_by_t2)
            c = oracle.to_float64(cotangent)
            if mode is not None and mode.fast == "perturb":
                _assert_perturbed(got, found, q, p, c, temperature)
            else:
                assert_value(got.loss, found.value)
                assert_gradient(loss, got.gradient, found, c)
        assert got.bits() == first.bits(), f"{schedule} with seed {seed} differs"
    return hosts


def _assert_perturbed(
    got: Outputs, found: Rows, q: mx.array, p: mx.array, c: Matrix, temperature: float
) -> None:
    """To first order. An exponential e units off moves its entry by 1.2e-7 e max(p, q), and a
    share of that goes to every entry through the sum. The value has each probability once with
    its log-ratio and once in the log of a sum, and 4 units more where a second, precise function
    sees the entry. e is 3 + 2 |z|, z the argument of exp2, which is 1 below the gap to the
    maximum, and 1 more for an inner maximum that grew.
    """
    with np.errstate(all="ignore"):
        below_q, below_p = (_below_maximum(x) / temperature for x in (q, p))
        ratio = below_p - below_q - _log_sum(below_p) + _log_sum(below_q)
        units = 6 - 2 / np.log(2) * np.minimum(below_q, below_p)
        off = 1.2e-7 * units * found.largest
        growth = 1.2e-7 * (units + 4) * found.largest * (2 + np.abs(ratio))
    # Entries of probability 0 add nothing.
    off, growth = (np.nan_to_num(x, nan=0.0, posinf=0.0) for x in (off, growth))
    off += np.nan_to_num(found.largest) * off.sum(axis=-1, keepdims=True)
    want, slope = c[:, None] * found.gradient, found.slope
    allowed = gradient_tolerance(want, np.nan_to_num(found.largest), c, slope, got.gradient.dtype)
    allowed += np.abs(c)[:, None] * slope * off
    assert_within(oracle.to_float64(got.gradient), want, allowed, "gradient")
    value = np.where(found.value > largest_finite(mx.float32), np.inf, found.value)
    allowed = value_tolerance(value, mx.float32) + growth.sum(axis=-1) * slope * temperature
    assert_within(oracle.to_float64(got.loss), value, allowed, "value")


def _below_maximum(x: mx.array) -> Matrix:
    x64 = oracle.to_float64(x)
    gap: Matrix = x64 - x64.max(axis=-1, keepdims=True)
    return gap


def _log_sum(x: Matrix) -> Matrix:
    log_sum: Matrix = np.log(np.exp(x).sum(axis=-1, keepdims=True))
    return log_sum
