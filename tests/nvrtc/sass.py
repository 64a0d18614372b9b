"""Machine code as text: which loops it has, and how they reach memory."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nvrtc.compiler import cuda

_LABEL = re.compile(r"^(\.L_\w+):")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+ )?([A-Z]\w*(?:\.\w+)*)(.*)")
_TARGET = re.compile(r"`\((\.L_\w+)\)")


class Loop(NamedTuple):
    """The instructions between a label and a branch back to it, by name."""

    instructions: tuple[str, ...]

    def loads(self) -> list[str]:
        return [name for name in self.instructions if name.startswith("LDG")]

    def stores(self) -> list[str]:
        return [name for name in self.instructions if name.startswith("STG")]


class Code(NamedTuple):
    """A kernel's instructions, and the innermost of its loops that load from global memory."""

    instructions: tuple[str, ...]
    loops: tuple[Loop, ...]

    def local_memory(self) -> list[str]:
        """The instructions that go to a stack."""
        return [name for name in self.instructions if name.startswith(("LDL", "STL"))]

    def vector_loops(self) -> list[Loop]:
        """The loops that load 16 bytes at once."""
        return [loop for loop in self.loops if any(is_vector(name) for name in loop.loads())]


def is_vector(instruction: str) -> bool:
    """Whether a global load or store moves 16 bytes."""
    return ".128" in instruction


def listing(cubin: bytes, folder: Path) -> str:
    """Return what nvdisasm prints for `cubin`."""
    binary = folder / "kernel.cubin"
    binary.write_bytes(cubin)
    command = [str(cuda() / "bin" / "nvdisasm"), "-c", str(binary)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def parse(text: str) -> Code:
    """Find the instructions and the loops in a listing."""
    names: list[str] = []
    labels: dict[str, int] = {}
    spans: list[tuple[int, int]] = []
    for line in text.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(names)
        elif found := _INSTRUCTION.match(line):
            names.append(found[1])
            target = _TARGET.search(found[2]) if found[1].startswith("BRA") else None
            # Only a branch back finds its label here already.
            if target and target[1] in labels:
                spans.append((labels[target[1]], len(names)))
    # Code out of line branches back as well, over loops that are none of its own.
    loading = [span for span in spans if _loop(names, span).loads()]
    inner = [a for a in loading if not any(a != b and a[0] <= b[0] < b[1] <= a[1] for b in loading)]
    return Code(tuple(names), tuple(_loop(names, span) for span in inner))


def _loop(names: Sequence[str], span: tuple[int, int]) -> Loop:
    return Loop(tuple(names[slice(*span)]))
