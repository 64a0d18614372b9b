"""Runs every mutant of the kernel texts: `python -m mutants [--jobs N] [FILE...]`."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from unittest.mock import patch

from host import build
from host.instrument import CompileError
from mlx_distill.errors import BackendError
from mlx_distill.kernels import handles
from mutants.equivalent import EQUIVALENT
from mutants.rules import Mutant, mutants
from mutants.selection import selection

DIRECTIONS = ("forward", "backward")
FILES = (
    *("rows.metal", "statistics.metal", "kl.metal", "js.metal"),
    *(f"{name}_{direction}.metal" for name in ("kl", "js") for direction in DIRECTIONS),
)
VERDICTS = ("survived", "killed", "not compiled", "error")
STOPPED = "stopped"  # crashed, or ran out of time: noticed too

# A mutant that goes through the whole selection needs some 15 seconds.
_SECONDS = 60


def main(arguments: Sequence[str]) -> int:
    """Return 0 if every mutant was killed, or is known to be equivalent."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--rule", help="only this one")
    parser.add_argument(
        "--equivalent", action="store_true", help="run the listed ones: each has to survive"
    )
    parser.add_argument("files", nargs="*", metavar="FILE", default=FILES)
    options = parser.parse_args(arguments)
    build.runtime()
    texts = {file: handles.read_kernel_text(file) for file in options.files}
    unchanged = Mutant("none", FILES[0], 1, "", "", "", handles.read_kernel_text(FILES[0]))
    for _, verdict in _verdicts([unchanged], options.jobs):
        if verdict != "survived":
            _say(f"the unchanged texts do not pass: {verdict}")
            return 1
    every = [
        mutant
        for file, text in texts.items()
        for mutant in mutants(file, text)
        if options.rule in (None, mutant.rule)
    ]
    known = {place for places in EQUIVALENT.values() for place in places}
    equivalent = [mutant for mutant in every if known.intersection(mutant.names())]
    every = equivalent if options.equivalent else [m for m in every if m not in equivalent]
    counts = {mutant.rule: Counter[str]() for mutant in (*every, *equivalent)}
    for mutant, verdict in _verdicts(every, options.jobs):
        counts[mutant.rule][verdict] += 1
        if verdict in ("survived", "error"):
            _say(f"{verdict}: {mutant}")
    for mutant in () if options.equivalent else equivalent:
        counts[mutant.rule]["equivalent"] += 1
    _table(counts)
    total = sum(counts.values(), Counter[str]())
    expected = ("survived",) if options.equivalent else ("killed", STOPPED, "not compiled")
    return 0 if total.total() == sum(total[v] for v in (*expected, "equivalent")) else 1


def _verdicts(every: Sequence[Mutant], jobs: int) -> Iterator[tuple[Mutant, str]]:
    # A process for each: a mutant may crash, or never end.
    context = multiprocessing.get_context("fork")
    running: dict[int, tuple[Mutant, BaseProcess]] = {}
    waiting = list(reversed(every))
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            process: BaseProcess = context.Process(target=_judge, args=(mutant,))
            process.start()
            running[process.sentinel] = (mutant, process)
        for sentinel in wait(list(running)):
            mutant, process = running.pop(int(str(sentinel)))
            process.join()
            code = process.exitcode or 0
            yield mutant, STOPPED if code < 0 else VERDICTS[code]


def _judge(mutant: Mutant) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    read = handles.read_kernel_text

    def changed(file: str) -> str:
        return mutant.text if file == mutant.file else read(file)

    # Killed by the tests, not by a warning; compiled a little faster; and with bounds for the
    # array at the end of a struct, which could otherwise be longer than it says.
    flags = (*build._KERNEL, "-w", "-O1", "-fstrict-flex-arrays=3")  # noqa: SLF001
    with patch.object(handles, "read_kernel_text", changed), patch.object(build, "_KERNEL", flags):
        os._exit(VERDICTS.index(_verdict(mutant.file)))


def _verdict(file: str) -> str:
    try:
        for check in selection(file):
            check()
    except AssertionError:
        return "killed"
    except BackendError as exc:
        if isinstance(exc.__cause__, CompileError):
            return "not compiled"
        traceback.print_exc()
        return "error"
    except Exception:  # noqa: BLE001  # reported, and fails the run
        traceback.print_exc()
        return "error"
    return "survived"


def _table(counts: dict[str, Counter[str]]) -> None:
    columns = ("killed", STOPPED, "not compiled", "equivalent", "survived", "error")
    _say(f"{'rule':26}{'mutants':>13}" + "".join(f"{column:>13}" for column in columns))
    for rule, count in (*counts.items(), ("all", sum(counts.values(), Counter[str]()))):
        numbers = [count.total(), *(count[column] for column in columns)]
        _say(f"{rule:26}" + "".join(f"{number:13}" for number in numbers))


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201  # a command prints


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
