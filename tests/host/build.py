"""Compiles the generated source for the host, and makes every access in it visible."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from host.instrument import CompileError, instrument
from host.trace import Generated, KernelText

COMPILER_VARIABLE = "MLX_DISTILL_HOST_CLANG"
CACHE_VARIABLE = "MLX_DISTILL_HOST_CACHE"

# What the fibers are written for.
SUPPORTED = sys.platform == "linux" and platform.machine() == "x86_64"
OLDEST = 17  # with address spaces for half and bfloat

_HERE = Path(__file__).parent
_COMMON = ("-march=x86-64-v3", "-fPIC", "-fno-strict-aliasing", "-ffp-contract=off")
_KERNEL = (
    *("-std=c++14", "-O2", "-g", "-fno-builtin", "-fno-vectorize", "-fno-slp-vectorize"),
    *("-Xclang", "-fbfloat16-excess-precision=none", "-Xclang", "-ffloat16-excess-precision=none"),
    *("-Werror", "-Wimplicit-float-conversion", "-Wno-implicit-int-float-conversion"),
    *("-Wno-unknown-attributes", "-Wno-c++17-extensions"),
    "-fsanitize=bounds,signed-integer-overflow,shift",
    "-fsanitize-coverage=bb,trace-pc,trace-loads,trace-stores",
    *("-mllvm", "-sanitizer-coverage-prune-blocks=0"),
    # Inlined, a helper's line is known with the lines that called it.
    *("-mllvm", "-inline-threshold=100000"),
)

_THREADGROUP = re.compile(r"\bthreadgroup\s+(\w+)\s+(\w+)\s*((?:\[[^\]]*\])*)\s*;")
# Metal has no double: a literal without a suffix is a float.
_LITERAL = re.compile(r"(?<![\w.])((?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(?![\w.])")


class NoCompilerError(Exception):
    """This machine has no clang that can build the kernels for the host."""


@dataclass(frozen=True)
class Place:
    """A line of a kernel's text, and the lines that called it."""

    file: str
    line: int
    caller: Place | None

    def __str__(self) -> str:
        called = "" if self.caller is None else f" from {self.caller}"
        return f"{self.file}:{self.line}{called}"


class Compiled:
    """A loaded kernel, with what its numbers stand for."""

    def __init__(self, library: Path) -> None:
        facts = json.loads(library.with_suffix(".json").read_text())
        self.entry = ctypes.cast(ctypes.CDLL(str(library)).host_entry, ctypes.c_void_p)
        self.threadgroup_names: list[str] = facts["threadgroup"]
        self.blocks: list[list[tuple[str, int]]] = [
            [(file, line) for file, line in block] for block in facts["blocks"]
        ]
        self._places: dict[str, list[tuple[str, int]]] = facts["places"]

    def place(self, site: int) -> Place | None:
        """The place that the runtime knows as `site`."""
        found = None
        for file, line in reversed(self._places.get(str(site), [])):
            found = Place(file, line, found)
        return found


@cache
def compiler() -> str:
    """Return clang: the one that MLX_DISTILL_HOST_CLANG names, or the newest on the path."""
    named = os.environ.get(COMPILER_VARIABLE)
    usual = [*(f"clang++-{n}" for n in range(24, OLDEST - 1, -1)), "clang++"]
    for candidate in [named] if named else usual:
        if shutil.which(candidate) and _major(candidate) >= OLDEST:
            return candidate
    asked = f"{named!r} ({COMPILER_VARIABLE})" if named else "clang++-17 to clang++-24 or clang++"
    raise NoCompilerError(
        f"no clang of version {OLDEST} or newer: {asked}. Install one (Debian: apt-get install "
        f"clang-19), or name its clang++ in {COMPILER_VARIABLE}"
    )


def _major(clang: str) -> int:
    return int(_run([clang, "-dumpversion"]).split(".")[0])


@cache
def _version() -> str:
    return _run([compiler(), "--version"])


@cache
def runtime() -> ctypes.CDLL:
    """Return the runtime, built when one of its files has changed."""
    sources = sorted(_HERE.glob("*.cpp"))
    texts = [path.read_text() for path in (*sources, *sorted(_HERE.glob("*.h")))]
    library = _folder() / f"runtime-{_hash(_version(), *_COMMON, *texts)}.so"
    if not library.exists():
        with tempfile.TemporaryDirectory(dir=_folder()) as work:
            made = Path(work, "runtime.so")
            flags = ["-std=c++20", "-O2", *_COMMON, "-shared", "-o", str(made)]
            _run([compiler(), *flags, *map(str, sources), "-lm"])
            made.replace(library)
    return ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def compile_kernel(kernel: KernelText, generated: Generated, *, contract: bool) -> Compiled:
    """Return the kernel for the host, built unless the same text was before."""
    runtime()
    dialect = [
        (_HERE / name).read_text() for name in ("host.h", "dialect.h", "build.py", "instrument.py")
    ]
    mode = "-ffp-contract=fast" if contract else "-ffp-contract=off"
    key = _hash(_version(), *_COMMON, *_KERNEL, mode, *dialect, kernel.name, generated.text)
    return _load(kernel, generated, _folder() / f"{kernel.name}-{key}.so", mode)


_loaded: dict[Path, Compiled] = {}


def _load(kernel: KernelText, generated: Generated, library: Path, mode: str) -> Compiled:
    if library not in _loaded:
        if not library.exists():
            _build(kernel, generated, library, mode)
        _loaded[library] = Compiled(library)
    return _loaded[library]


def _build(kernel: KernelText, generated: Generated, library: Path, mode: str) -> None:
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        text, names = _translation_unit(kernel, generated)
        source, ir, made = (Path(folder, f"kernel.{kind}") for kind in ("cpp", "ll", "so"))
        source.write_text(text)
        flags = [*_COMMON, *_KERNEL, mode, f"-I{_HERE}", "-S", "-emit-llvm"]
        _run([compiler(), *flags, "-o", str(ir), str(source)])
        instrumented, facts = instrument(ir.read_text())
        ir.write_text(instrumented)
        flags = [*_COMMON, "-O1", "-Xclang", "-disable-llvm-passes", "-shared"]
        _run([compiler(), *flags, "-o", str(made), str(ir)])
        description = made.with_suffix(".json")
        description.write_text(json.dumps({"threadgroup": names, **facts}))
        description.replace(library.with_suffix(".json"))
        made.replace(library)


def _translation_unit(kernel: KernelText, generated: Generated) -> tuple[str, list[str]]:
    names: list[str] = []

    def slot(found: re.Match[str]) -> str:
        element, name, bounds = found.groups()
        names.append(name)
        whole = f"threadgroup {element} (*){bounds}"
        memory = f"host_slot({len(names) - 1}, sizeof({element}{bounds}), alignof({element}))"
        return f"threadgroup {element} (&{name}){bounds} = *({whole}){memory};"

    source = _LITERAL.sub(r"\1f", _THREADGROUP.sub(slot, kernel.source))
    header = _LITERAL.sub(r"\1f", kernel.header)
    before, after = generated.text.split(kernel.source)
    header = f'#line 1 "{kernel.name} header"\n{header}\n#line 1 "generated"\n'
    before = before.replace(kernel.header, header, 1)
    arguments = ", ".join(
        f"me.{p.name}"
        if p.buffer is None
        else f"*({p.type[:-1]}*)buffers[{p.buffer}]"
        if p.type.endswith("&")
        else f"({p.type})buffers[{p.buffer}]"
        for p in generated.parameters
    )
    entry = (
        f"void host_entry(void** buffers) {{ const host::Thread& me = *host::current; "
        f"{generated.call}({arguments}); }}"
    )
    body = f'#line 1 "{kernel.name}"\n{source}\n#line 1 "generated"\n{after}'
    return f'#include "dialect.h"\n{before}\n{body}\nextern "C" {entry}\n', names


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompileError(done.stderr)
    return done.stdout


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


@cache
def _folder() -> Path:
    named = os.environ.get(CACHE_VARIABLE)
    folder = Path(named or tempfile.mkdtemp(prefix="mlx-distill-host-"))
    if not named:
        atexit.register(shutil.rmtree, folder)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
