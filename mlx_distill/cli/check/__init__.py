"""`mlx-distill check`: every backend of this machine against NumPy in float64."""

from __future__ import annotations

import argparse
import json
import sys
from time import perf_counter
from typing import get_args

from mlx_distill._ops.backends import ResolvedBackend


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to its parser."""
    parser.add_argument(
        "--quick", action="store_true", help="fewer cases: one temperature, no huge logits"
    )
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    parser.add_argument(
        "--backend", choices=get_args(ResolvedBackend), help="only this backend; default: all found"
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only cases whose name contains TEXT"
    )


def run(args: argparse.Namespace) -> int:
    """Check, print, and return 0 if everything passed, 1 if not, 2 if nothing could run."""
    try:
        from mlx_distill.cli.check import machine, report, runner  # noqa: PLC0415 - need NumPy
    except ImportError as exc:
        if exc.name != "numpy":
            raise
        return _refuse("it needs NumPy: pip install 'mlx-distill[check]'")
    start = perf_counter()
    found = machine.describe_machine()
    chosen: list[ResolvedBackend] = [args.backend] if args.backend else found.available
    if args.backend and found.backends[args.backend]:
        return _refuse(found.backends[args.backend])
    lines = not args.json
    if lines:
        print("\n".join(report.header_lines(found)), flush=True)
    rows = []
    for row in runner.run_rows(chosen, quick=args.quick, only=args.only, progress=_progress):
        rows.append(row)
        _progress("")
        if lines:
            print("\n".join(report.row_lines(row)), flush=True)
    if not any(row.cases for row in rows):
        return _refuse(f"no case that can run here has {args.only!r} in its name")
    seconds = perf_counter() - start
    if lines:
        print(f"\n{report.last_line(rows, seconds)}")
    else:
        print(json.dumps(report.as_json(found, rows, seconds, quick=args.quick), allow_nan=False))
    return 1 if any(row.failed for row in rows) else 0


def _progress(case: str) -> None:
    """Show what runs, on a terminal: a line that the next one replaces."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{case}", end="", file=sys.stderr, flush=True)


def _refuse(message: str) -> int:
    print(f"mlx-distill check: {message}", file=sys.stderr)
    return 2
