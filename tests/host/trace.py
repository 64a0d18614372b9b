"""The source that MLX generates for a Metal kernel, as MLX itself prints it."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import mlx.core as mx

TemplateValue = mx.Dtype | int | bool
Output = tuple[Sequence[int], mx.Dtype]


@dataclass(frozen=True)
class KernelText:
    """A kernel as `mx.fast.metal_kernel` takes it."""

    name: str
    source: str
    header: str = ""


@dataclass(frozen=True)
class Parameter:
    """A parameter of the generated function: a buffer by its index, or an attribute."""

    type: str
    name: str
    buffer: int | None


@dataclass(frozen=True)
class Generated:
    """The generated function."""

    text: str
    call: str
    parameters: tuple[Parameter, ...]


# MLX's own, whatever stands in for it later.
_METAL_KERNEL = cast("Callable[..., Callable[..., list[mx.array]]]", mx.fast.metal_kernel)

_FUNCTION = re.compile(r"\[\[kernel\]\] void (\w+)\((.*?)\) \{$", re.DOTALL | re.MULTILINE)
_PARAMETER = re.compile(r"\s*(.+?)\s*\b(\w+) \[\[(?:buffer\((\d+)\)|(\w+))\]\]$", re.DOTALL)
_INSTANCE = re.compile(r"^template \[\[host_name\(.*?decltype\(\w+(<.*?>)\).*$", re.MULTILINE)


def generate(
    kernel: KernelText,
    inputs: Mapping[str, mx.array],
    outputs: Mapping[str, Output],
    template: Mapping[str, TemplateValue],
) -> Generated:
    """Have MLX print the source for these arguments, which needs no Metal."""
    launch = _METAL_KERNEL(
        name=kernel.name,
        input_names=list(inputs),
        output_names=list(outputs),
        source=kernel.source,
        header=kernel.header,
    )

    def run(*arrays: mx.array) -> tuple[mx.array, ...]:
        made = launch(
            inputs=list(arrays),
            output_shapes=[shape for shape, _ in outputs.values()],
            output_dtypes=[dtype for _, dtype in outputs.values()],
            template=list(template.items()),
            grid=(1, 1, 1),
            threadgroup=(1, 1, 1),
            verbose=True,
        )
        return tuple(made)

    printed = _printed_by(lambda path: mx.export_function(path, run, *inputs.values()))
    text = printed[printed.index("```\n") + 4 : printed.rindex("```")]
    instance = _INSTANCE.search(text)
    text = _INSTANCE.sub("", text)
    function = _FUNCTION.search(text)
    if function is None:
        raise RuntimeError(f"{kernel.name}: no kernel in what MLX printed:\n{text}")
    parameters = tuple(_parameter(part) for part in function[2].split(",\n"))
    return Generated(text, function[1] + (instance[1] if instance else ""), parameters)


def _parameter(text: str) -> Parameter:
    found = _PARAMETER.match(text)
    if found is None:
        raise RuntimeError(f"not understood in a kernel's signature: {text!r}")
    return Parameter(found[1], found[2], None if found[3] is None else int(found[3]))


def _printed_by(export: Callable[[str], None]) -> str:
    # MLX prints from C++, past sys.stdout.
    sys.stdout.flush()
    saved = os.dup(1)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as out:
        os.dup2(out.fileno(), 1)
        try:
            export(str(Path(folder, "kernel.mlxfn")))
        finally:
            os.dup2(saved, 1)
            os.close(saved)
        out.seek(0)
        return out.read().decode()
