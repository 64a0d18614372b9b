"""NVRTC through ctypes, called as MLX calls it."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from nvrtc.mlx_source import MlxTexts

_LOG = "--ptxas-options=-v"
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


class CompileError(Exception):
    """NVRTC refused a kernel; the message is its log."""


@dataclass(frozen=True)
class Resources:
    """What a kernel takes of a multiprocessor, in registers a thread and in bytes."""

    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int


@dataclass(frozen=True)
class Cubin:
    """Machine code for one architecture, and ptxas's account of it."""

    code: bytes
    resources: Resources


@cache
def cuda() -> Path:
    """Return the folder that holds the CUDA wheels."""
    return Path(str(distribution("nvidia-cuda-nvrtc").locate_file("nvidia/cu13")))


def compile_source(source: str, name: str, architecture: str, texts: MlxTexts) -> Cubin:
    """Compile the kernel `name` in `source` with MLX's options, and have ptxas report."""
    log, code = _compile(source, name, [*_options(architecture, texts), _LOG], texts)
    used, stack, shared = _USED.search(log), _STACK.search(log), _SHARED.search(log)
    if used is None or stack is None:
        raise CompileError(f"no report of registers and stack in {log!r}")
    of_shared = int(shared[1]) if shared else 0
    return Cubin(code, Resources(int(used[1]), of_shared, *map(int, stack.groups())))


def compile_silently(source: str, name: str, architecture: str, texts: MlxTexts) -> bytes:
    """Compile with MLX's options and no other."""
    return _compile(source, name, _options(architecture, texts), texts)[1]


def _options(architecture: str, texts: MlxTexts) -> list[str]:
    includes = [f"--include-path={folder}" for folder in (texts.cccl, cuda() / "include")]
    return [f"--gpu-architecture={architecture}", *includes]


@cache
def _library() -> ctypes.CDLL:
    folder = cuda() / "lib"
    # NVRTC opens its builtins by name, which the loader finds once they are in the process.
    for builtins in folder.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(folder / "libnvrtc.so.13"))


def _compile(source: str, name: str, options: Sequence[str], texts: MlxTexts) -> tuple[str, bytes]:
    nvrtc, program = _library(), ctypes.c_void_p()
    headers, names = _strings(texts.included.values()), _strings(texts.included)
    _check(
        nvrtc.nvrtcCreateProgram(
            *(ctypes.byref(program), source.encode(), f"{name}.cu".encode()),
            *(len(texts.included), headers, names),
        )
    )
    try:
        _check(nvrtc.nvrtcAddNameExpression(program, f"mlx::core::cu::{name}".encode()))
        status = nvrtc.nvrtcCompileProgram(program, len(options), _strings(options))
        log = _read(program, "ProgramLog").decode().rstrip("\0")
        if status != 0:
            raise CompileError(log)
        return log, _read(program, "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _read(program: ctypes.c_void_p, what: str) -> bytes:
    nvrtc, size = _library(), ctypes.c_size_t()
    _check(nvrtc[f"nvrtcGet{what}Size"](program, ctypes.byref(size)))
    text = ctypes.create_string_buffer(size.value)
    _check(nvrtc[f"nvrtcGet{what}"](program, text))
    return text.raw


def _strings(texts: Iterable[str]) -> ctypes.Array[ctypes.c_char_p]:
    encoded = [text.encode() for text in texts]
    return (ctypes.c_char_p * len(encoded))(*encoded)


def _check(status: int) -> None:
    if status != 0:
        raise CompileError(f"NVRTC: status {status}")
