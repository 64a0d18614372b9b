"""More entries than 32 bits can count, where there is memory for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import mlx.core as mx
import numpy as np

from mlx_distill import OutOfRangeError
from mlx_distill.cli.check.calls import (
    Call,
    Outcome,
    Subject,
    cotangent_for,
    on_gpu,
    run_call,
    to_dtype,
)
from mlx_distill.cli.check.judge import Verdict, judge, worst

_TOO_MANY_ROWS = 2**31 - 1
_VOCABULARY = 32768
_ROWS = 7  # compared at each place
# What logits and gradients of student and teacher may take, so that nothing swaps.
_PART_OF_MEMORY = 1 / 3
# A row that is read at a wrapped offset is another one: 61 divides no power of two.
_SPREADS = 61


def large_cases(subject: Subject) -> Iterator[tuple[str, Callable[[], Verdict]]]:
    """Names and bodies of the cases."""
    if subject.backend != "mlx":
        yield "too-many-rows", partial(_too_many_rows, subject)
    for power in (31, 32):
        yield f"2-to-{power}-entries", partial(_many_entries, subject, 2**power)


def _too_many_rows(subject: Subject) -> Verdict:
    """More rows than a grid has, refused before any launch."""
    logits = mx.broadcast_to(mx.zeros((1, 1), dtype=subject.dtype), (_TOO_MANY_ROWS, 1))
    cotangent = mx.broadcast_to(mx.zeros((1,), dtype=subject.dtype), (_TOO_MANY_ROWS,))
    try:
        run_call(subject, Call(logits, logits, cotangent, ()))
    except OutOfRangeError:
        return Verdict(1)
    return Verdict(1, error="expected OutOfRangeError")


def _many_entries(subject: Subject, entries: int) -> Verdict:
    """A few rows from both ends and the middle of so many."""
    rows = entries // _VOCABULARY + _ROWS
    needed = 4 * rows * _VOCABULARY * subject.dtype.size / _PART_OF_MEMORY
    if _gpu_memory() < needed:
        return Verdict(0, not_run=f"{entries} entries need a GPU with {needed / 1e9:.0f} GB")
    base = np.random.default_rng(7).standard_normal((2, _VOCABULARY), dtype=np.float32)
    spread = ((1 + mx.arange(rows) % _SPREADS) / 16).astype(subject.dtype)[:, None]
    q, p = (to_dtype(side, subject.dtype) * spread for side in base)
    call = Call(q, p, cotangent_for((rows,), subject.dtype), ())
    mx.eval(q, p)
    outcome = run_call(subject, call)
    found = []
    for start in (0, rows // 2, rows - _ROWS):
        part = slice(start, start + _ROWS)
        labels = tuple(f"row {i}" for i in range(rows)[part])
        of_few = Call(q[part], p[part], call.cotangent[part], labels)
        outcome_of_few = Outcome(*(x[part] for x in outcome))
        found.append(judge(subject.loss, of_few, outcome_of_few))
    return Verdict(
        sum(verdict.rows for verdict in found),
        worst(verdict.value for verdict in found),
        worst(verdict.gradient for verdict in found),
        tuple(miss for verdict in found for miss in verdict.misses),
        "".join(verdict.error for verdict in found),
    )


def _gpu_memory() -> int:
    """Bytes of memory of the default device, if it is a GPU; else 0."""
    if not on_gpu():
        return 0
    info = mx.device_info()
    sizes = [info.get(key) for key in ("memory_size", "total_memory")]
    return max((size for size in sizes if isinstance(size, int)), default=0)
