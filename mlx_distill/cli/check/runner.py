"""Every case of every row of the table, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from time import perf_counter
from typing import NamedTuple, TypeAlias

import numpy as np

from mlx_distill._ops.backends import ResolvedBackend
from mlx_distill.cli.check.accuracy import VOCABULARIES, accuracy_calls, repeat_call
from mlx_distill.cli.check.calls import DTYPES, LOSSES, Build, Subject, run_call
from mlx_distill.cli.check.edges import edge_calls
from mlx_distill.cli.check.judge import Miss, Verdict, run_and_judge, worst
from mlx_distill.cli.check.large import large_cases
from mlx_distill.cli.check.oracle import as_float64, as_integers

Case: TypeAlias = tuple[str, Callable[[], Verdict]]

_REPEATS = 10
# A kernel that does not compile fails in every case, and each time anew.
_MAX_ERRORS = 3


class Failure(NamedTuple):
    """One case that failed, with what went wrong in it."""

    case: str
    misses: tuple[Miss, ...]
    error: str


class Row(NamedTuple):
    """One row of the table."""

    subject: Subject
    group: str
    cases: int  # rows of logits that were compared
    failed: int
    value: float | None  # worst of its cases
    gradient: float | None
    seconds: float
    failures: tuple[Failure, ...]
    note: str  # what was not run


def run_rows(
    backends: Sequence[ResolvedBackend], *, quick: bool, only: str, progress: Callable[[str], None]
) -> Iterator[Row]:
    """The rows of the table, each when it is ready; those without a case of that name not.

    `progress` is told each case before it runs: some faults of a GPU end the process.
    """
    for subject in map(Subject._make, product(backends, LOSSES, DTYPES)):
        for group, cases in _groups(subject, quick=quick):
            row = _run_row(subject, group, cases, only, progress)
            if row.cases or row.note:
                yield row


def _groups(subject: Subject, *, quick: bool) -> Iterator[tuple[str, Iterator[Case]]]:
    for vocabulary in VOCABULARIES:
        calls = accuracy_calls(vocabulary, subject.dtype, quick=quick)
        yield f"V{vocabulary}", ((name, partial(_compare, subject, build)) for name, build in calls)
    calls = edge_calls(subject.dtype, quick=quick)
    yield "edges", ((name, partial(_compare, subject, build)) for name, build in calls)
    yield "repeats", iter([(f"{_REPEATS}-runs", partial(_repeat, subject))])
    if not quick:
        yield "large", large_cases(subject)


def _compare(subject: Subject, build: Build) -> Verdict:
    return run_and_judge(subject, build())


def _repeat(subject: Subject) -> Verdict:
    """The same call several times, bit by bit."""
    call = repeat_call(subject.dtype)
    first = run_call(subject, call)
    misses = []
    for run in range(1, _REPEATS):
        again = run_call(subject, call)
        for what, x, y in zip(("value", "gradient"), first[:2], again[:2], strict=True):
            differs = as_integers(x) != as_integers(y)
            if differs.any():
                index = tuple(map(int, np.unravel_index(int(differs.argmax()), differs.shape)))
                row = f"run {run} against run 0, {int(differs.sum())} entries differ"
                pair = float(as_float64(y)[index]), float(as_float64(x)[index])
                misses.append(Miss(what, row, index, *pair, np.inf))
    return Verdict(_REPEATS, misses=tuple(misses))


def _run_row(
    subject: Subject,
    group: str,
    cases: Iterator[Case],
    only: str,
    progress: Callable[[str], None],
) -> Row:
    start = perf_counter()
    verdicts: dict[str, Verdict] = {}
    skipped = 0
    for name, run in cases:
        case = "/".join((*subject, group, name))
        if only not in case:
            continue
        if sum(bool(verdict.error) for verdict in verdicts.values()) >= _MAX_ERRORS:
            skipped += 1
            continue
        progress(case)
        verdicts[case] = _guarded(run)
    failures = [
        Failure(case, verdict.misses, verdict.error)
        for case, verdict in verdicts.items()
        if verdict.misses or verdict.error
    ]
    found = list(verdicts.values())
    notes = [verdict.not_run for verdict in found if verdict.not_run]
    if skipped:
        notes.append(f"{skipped} calls left out after {_MAX_ERRORS} errors")
    return Row(
        subject,
        group,
        cases=sum(verdict.rows for verdict in found),
        failed=sum(_failed(verdict) for verdict in found),
        value=worst(verdict.value for verdict in found),
        gradient=worst(verdict.gradient for verdict in found),
        seconds=perf_counter() - start,
        failures=tuple(failures),
        note="; ".join(notes),
    )


def _failed(verdict: Verdict) -> int:
    if verdict.error:
        return verdict.rows
    return min(verdict.rows, len({(miss.row, miss.at[:1]) for miss in verdict.misses}))


def _guarded(run: Callable[[], Verdict]) -> Verdict:
    try:
        return run()
    except Exception as exc:  # noqa: BLE001 - whatever a kernel raises, the others still run
        return Verdict(1, error=f"{type(exc).__name__}: {exc}")
