"""Stands in for `mx.fast.metal_kernel`, so that launches run on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import mlx.core as mx

from host.run import Event, Mode, Result, Schedule, run_kernel
from host.trace import KernelText, TemplateValue


@dataclass
class HostMetal:
    """How launches run, and what they left behind."""

    schedule: Schedule = "lockstep"
    mode: Mode = field(default_factory=Mode)
    seed: int = 0
    offsets: dict[str, int] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)

    @property
    def events(self) -> list[Event]:
        return [event for result in self.results for event in result.events]

    def metal_kernel(
        self,
        name: str,
        input_names: Sequence[str],
        output_names: Sequence[str],
        source: str,
        header: str = "",
        *,
        ensure_row_contiguous: bool = True,
    ) -> HostKernel:
        """Take what `mx.fast.metal_kernel` takes."""
        if not ensure_row_contiguous:
            raise NotImplementedError("inputs that are not contiguous are not modelled")
        kernel = KernelText(name, source, header)
        return HostKernel(self, kernel, tuple(input_names), tuple(output_names))


@dataclass(frozen=True)
class HostKernel:
    """A kernel with the call of MLX's."""

    host: HostMetal
    kernel: KernelText
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]

    def __call__(
        self,
        *,
        inputs: Sequence[mx.array],
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[mx.Dtype],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        template: Sequence[tuple[str, TemplateValue]] = (),
        verbose: bool = False,
    ) -> list[mx.array]:
        del verbose
        outputs = zip(output_shapes, output_dtypes, strict=True)
        result = run_kernel(
            self.kernel,
            inputs=dict(zip(self.input_names, inputs, strict=True)),
            outputs=dict(zip(self.output_names, outputs, strict=True)),
            grid=grid,
            threadgroup=threadgroup,
            template=dict(template),
            schedule=self.host.schedule,
            seed=self.host.seed,
            mode=self.host.mode,
            offsets=self.host.offsets,
        )
        self.host.results.append(result)
        return [result.outputs[name] for name in self.output_names]
