"""Options that are fixed at construction and stay out of a student's parameters."""

from __future__ import annotations

from typing import ClassVar

import mlx.nn as nn

from mlx_distill._ops.options import Backend, Reduction, check_options
from mlx_distill.kernels.handles import KernelHandle


class DivergenceLoss(nn.Module):
    """Base of the loss modules: no arrays, so no parameters; options are read-only."""

    kernels: ClassVar[tuple[KernelHandle, KernelHandle]]
    """Handles of the forward and backward kernels."""

    def __init__(
        self,
        *,
        temperature: float = 1.0,
        scale_by_t2: bool = False,
        reduction: Reduction = "mean",
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        check_options(type(self).__name__, temperature, scale_by_t2, reduction, backend)
        self._temperature = float(temperature)
        self._scale_by_t2 = scale_by_t2
        self._reduction: Reduction = reduction
        self._backend: Backend = backend

    @property
    def temperature(self) -> float:
        """What divides both sets of logits."""
        return self._temperature

    @property
    def scale_by_t2(self) -> bool:
        """Whether the loss is multiplied by the temperature squared."""
        return self._scale_by_t2

    @property
    def reduction(self) -> Reduction:
        """How rows become the result."""
        return self._reduction

    @property
    def backend(self) -> Backend:
        """Which backend was asked for."""
        return self._backend

    def __setattr__(self, key: str, value: object) -> None:
        # nn.Module stores an array under any name, where it would become a parameter.
        if isinstance(getattr(type(self), key, None), property):
            message = f"{type(self).__name__}.{key} is read-only; construct a new loss"
            raise AttributeError(message)  # noqa: TRY004 - what a property raises
        super().__setattr__(key, value)

    def _extra_repr(self) -> str:
        return (
            f"temperature={self.temperature}, scale_by_t2={self.scale_by_t2}, "
            f"reduction={self.reduction!r}, backend={self.backend!r}"
        )
