"""The result as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from mlx_distill.cli.check.judge import Miss
from mlx_distill.cli.check.machine import Machine
from mlx_distill.cli.check.runner import Failure, Row

_TABLE = "{:<7}  {:<4}  {:<8}  {:<7}  {:>5}  {:>7}  {:>8}  {}"
_MAX_SHOWN = 3  # failures of a row of the table, misses of a failure


def header_lines(machine: Machine) -> Iterator[str]:
    """What the check runs on, and the head of the table."""
    yield "mlx-distill check"
    yield "versions  " + ", ".join(f"{name} {text}" for name, text in machine.versions.items())
    yield f"platform  {machine.platform}"
    yield "device    " + ", ".join(f"{name} {value}" for name, value in machine.device.items())
    for backend, reason in machine.backends.items():
        yield f"backend   {backend} " + (f"not available here: {reason}" if reason else "found")
    yield ""
    yield "cases: rows of logits compared with float64, or runs compared with the first"
    yield "value, gradient: the worst error as a share of the tolerance, at most 1; half precision"
    yield "    comes close, since the tolerance there is little more than the output's own rounding"
    yield ""
    yield _TABLE.format("backend", "loss", "dtype", "group", "cases", "value", "gradient", "result")


def row_lines(row: Row) -> Iterator[str]:
    """One row of the table, and what failed in it."""
    result = f"FAIL ({row.failed})" if row.failed else "pass" if row.cases else "not run"
    result += f", {row.note}" if row.note else ""
    yield _TABLE.format(
        *row.subject, row.group, row.cases, _share(row.value), _share(row.gradient), result
    )
    shown: set[str] = set()
    for failure in row.failures[:_MAX_SHOWN]:
        yield from _failure_lines(failure, shown)
    yield from _and_more(row.failures, "  ")


def last_line(rows: Sequence[Row], seconds: float) -> str:
    """The whole result in one line."""
    cases, failed = sum(row.cases for row in rows), sum(row.failed for row in rows)
    if not failed:
        return f"passed: {cases} cases in {seconds:.0f} s"
    return (
        f"FAILED: {failed} of {cases} cases in {seconds:.0f} s; "
        "please report it with all of this output"
    )


def as_json(
    machine: Machine, rows: Sequence[Row], seconds: float, *, quick: bool
) -> dict[str, object]:
    """The same as a JSON object; a number that is not finite becomes a string."""
    return {
        "versions": machine.versions,
        "platform": machine.platform,
        "device": machine.device,
        "backends": {
            backend: {"available": not reason, "reason": reason}
            for backend, reason in machine.backends.items()
        },
        "quick": quick,
        "rows": [_row_object(row) for row in rows],
        "failures": [_failure_object(failure) for row in rows for failure in row.failures],
        "cases": sum(row.cases for row in rows),
        "failed": sum(row.failed for row in rows),
        "seconds": round(seconds, 3),
        "passed": not any(row.failed for row in rows),
    }


def _failure_lines(failure: Failure, shown: set[str]) -> Iterator[str]:
    yield f"  {failure.case}"
    if failure.error:
        # A compiler's message is long, and the same in every case.
        text = "as above" if failure.error in shown else failure.error
        shown.add(failure.error)
        yield from (f"    {line}" for line in text.splitlines())
    for miss in failure.misses[:_MAX_SHOWN]:
        yield f"    {miss.what} at {list(miss.at)}, {miss.row}"
        times = f"{miss.share:.4g} times the tolerance" if math.isfinite(miss.share) else "exactly"
        yield f"      got {miss.got:.9g}, expected {miss.expected:.9g}, {times}"
    yield from _and_more(failure.misses, "    ")
    yield f"    again: {_again(failure)}"


def _and_more(items: Sequence[object], indent: str) -> Iterator[str]:
    if len(items) > _MAX_SHOWN:
        yield f"{indent}and {len(items) - _MAX_SHOWN} more, see --json"


def _again(failure: Failure) -> str:
    backend = failure.case.partition("/")[0]
    return f"mlx-distill check --backend {backend} --only {failure.case}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.3f}" if share < 1000 else f"{share:.1e}"


def _row_object(row: Row) -> dict[str, object]:
    return {
        "backend": row.subject.backend,
        "loss": row.subject.loss,
        "dtype": row.subject.dtype_name,
        "group": row.group,
        "cases": row.cases,
        "failed": row.failed,
        "value": _number(row.value),
        "gradient": _number(row.gradient),
        "seconds": round(row.seconds, 3),
        "note": row.note,
        "passed": not row.failed,
    }


def _failure_object(failure: Failure) -> dict[str, object]:
    return {
        "case": failure.case,
        "error": failure.error,
        "misses": [_miss_object(miss) for miss in failure.misses],
        "again": _again(failure),
    }


def _miss_object(miss: Miss) -> dict[str, object]:
    numbers = {name: _number(getattr(miss, name)) for name in ("got", "expected", "share")}
    return {"what": miss.what, "row": miss.row, "at": list(miss.at), **numbers}


def _number(x: float | None) -> float | str | None:
    return x if x is None or math.isfinite(x) else str(x)
