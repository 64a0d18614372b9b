"""Named kernels: small values that find their compiled kernel in a process-level cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from threading import Lock
from typing import Literal, Protocol, TypeAlias, cast

import mlx.core as mx

KernelBackend: TypeAlias = Literal["metal", "cuda"]

_SHARED = ("rows.metal", "statistics.metal")
_DIALECTS: dict[KernelBackend, str] = {"metal": "metal.h", "cuda": "cuda.h"}


class CompiledKernel(Protocol):
    """What `mx.fast.metal_kernel` and `mx.fast.cuda_kernel` return."""

    def __call__(
        self,
        *,
        inputs: Sequence[mx.array],
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[mx.Dtype],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        template: Sequence[tuple[str, mx.Dtype]],
        verbose: bool = ...,
    ) -> list[mx.array]:
        """Launch the kernel on `grid` threads."""
        ...


@dataclass(frozen=True)
class KernelHandle:
    """A kernel by name: hashable, picklable, and built on first use.

    Attributes:
        divergence: whose terms the header takes in, the first part of the file's name.
        direction: "forward" or "backward", the second part.
        input_names: the arrays that a launch takes, in order.
        output_names: the arrays that a launch returns, in order.
    """

    divergence: str
    direction: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the kernel on the device."""
        return f"mlx_distill_{self.divergence}_{self.direction}"

    def source(self) -> str:
        """Text of the kernel's body, the same on every target."""
        return read_kernel_text(f"{self.divergence}_{self.direction}.metal")

    def header(self, backend: KernelBackend) -> str:
        """Text before the kernel: the target's dialect, the shared parts, the terms."""
        parts = (_DIALECTS[backend], *_SHARED, f"{self.divergence}.metal")
        return "\n".join(read_kernel_text(part) for part in parts)

    def compiled(self, backend: KernelBackend) -> CompiledKernel:
        """The kernel for `backend`, built once a process; a failure is not remembered."""
        key = (self, backend)
        with _LOCK:
            if key not in _COMPILED:
                _COMPILED[key] = self._build(backend)
            return _COMPILED[key]

    def _build(self, backend: KernelBackend) -> CompiledKernel:
        make = mx.fast.metal_kernel if backend == "metal" else mx.fast.cuda_kernel
        kernel = make(
            name=self.name,
            input_names=list(self.input_names),
            output_names=list(self.output_names),
            source=self.source(),
            header=self.header(backend),
            ensure_row_contiguous=True,
        )
        return cast(CompiledKernel, kernel)


_COMPILED: dict[tuple[KernelHandle, KernelBackend], CompiledKernel] = {}
_LOCK = Lock()

_FORWARD_INPUTS = ("logits_q", "logits_p", "scaling")
_FORWARD_OUTPUTS = ("loss", "statistics")
_BACKWARD_INPUTS = ("logits_q", "logits_p", "cotangent", "statistics", "scaling")
_BACKWARD_OUTPUTS = ("gradient",)

KL_FORWARD = KernelHandle("kl", "forward", _FORWARD_INPUTS, _FORWARD_OUTPUTS)
KL_BACKWARD = KernelHandle("kl", "backward", _BACKWARD_INPUTS, _BACKWARD_OUTPUTS)
JS_FORWARD = KernelHandle("js", "forward", _FORWARD_INPUTS, _FORWARD_OUTPUTS)
JS_BACKWARD = KernelHandle("js", "backward", _BACKWARD_INPUTS, _BACKWARD_OUTPUTS)


@cache
def read_kernel_text(file_name: str) -> str:
    """Text of a file beside this one."""
    return files("mlx_distill.kernels").joinpath(file_name).read_text(encoding="utf-8")
