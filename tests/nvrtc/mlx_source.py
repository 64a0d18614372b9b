"""What MLX wraps a CUDA kernel in, with the texts that its own library holds."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import ZipFile

import mlx.core as mx

from mlx_distill.kernels.handles import KernelHandle

CUDA_NAMES = {mx.float32: "float", mx.float16: "__half", mx.bfloat16: "__nv_bfloat16"}

# What every custom kernel begins with; the texts it includes are found by a line of each.
_START = '\n#include "mlx/backend/cuda/device/utils.cuh"\n\n#include <cooperative_groups.h>\n'
_MARKS = {
    "mlx/backend/cuda/device/utils.cuh": "using Shape = cuda::std::array<int32_t, MAX_NDIM>;",
    "mlx/backend/cuda/device/complex.cuh": "using complex64_t =",
    "mlx/backend/cuda/device/config.h": "#define MAX_NDIM",
}
_INCLUDE = re.compile(r'^#include "(.+)"', re.MULTILINE)


@dataclass(frozen=True)
class MlxTexts:
    """The start of a custom kernel, the texts that it includes, and where CCCL's headers are."""

    start: str
    included: dict[str, str] = field(repr=False)
    cccl: Path


def read_wheel(wheel: Path, folder: Path) -> MlxTexts:
    """Take MLX's texts and its copy of CCCL from `wheel`; the headers go below `folder`."""
    with ZipFile(wheel) as archive:
        library = archive.read("mlx/lib/libmlx.so")
        inside = "mlx/include/cccl/"
        headers = [name for name in archive.namelist() if name.startswith(inside)]
        archive.extractall(folder, headers)
    start = _text_around(library, _START)
    included = {name: _text_around(library, mark) for name, mark in _MARKS.items()}
    asked = {name for text in (start, *included.values()) for name in _INCLUDE.findall(text)}
    if asked != included.keys():
        raise LookupError(f"MLX's texts include {sorted(asked)}, not {sorted(included)}")
    return MlxTexts(start, included, folder / inside)


def generate(handle: KernelHandle, dtype: mx.Dtype, texts: MlxTexts) -> str:
    """Return the source that MLX generates for a launch with logits of `dtype`."""
    body, logits = handle.source(), CUDA_NAMES[dtype]
    parameters = []
    for name in handle.input_names:
        kind = logits if name.startswith("logits") else "float"
        parameters.append(f"const {kind}* {name}")
        for suffix, passed in (("shape", "Shape"), ("strides", "Strides"), ("ndim", "int")):
            if f"{name}_{suffix}" in body:
                parameters.append(f"const __grid_constant__ {passed} {name}_{suffix}")
    parameters += [
        f"{logits if name == 'gradient' else 'float'}* {name}" for name in handle.output_names
    ]
    return (
        f"{texts.start}{handle.header('cuda')}namespace mlx::core::cu {{\n\n"
        f"namespace cg = cooperative_groups;\n\n__global__ void {handle.name}(\n    "
        + ",\n    ".join(parameters)
        + f") {{\n  using T = {logits};\n\n{body}\n}}\n\n}} // namespace mlx::core::cu\n"
    )


def _text_around(library: bytes, mark: str) -> str:
    """Return the zero-terminated text in `library` that holds `mark`."""
    at = library.find(mark.encode())
    if at < 0:
        raise LookupError(f"libmlx.so holds no text with {mark!r}")
    begin, end = library.rfind(b"\0", 0, at) + 1, library.find(b"\0", at)
    return library[begin:end].decode()
