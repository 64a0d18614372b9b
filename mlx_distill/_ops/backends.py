"""Which backend a call runs on."""

from __future__ import annotations

from typing import Literal, TypeAlias

import mlx.core as mx

from mlx_distill._ops.options import Backend
from mlx_distill.errors import BackendError

ResolvedBackend: TypeAlias = Literal["metal", "cuda", "mlx"]


def resolve_backend(context: str, backend: Backend) -> ResolvedBackend:
    """The backend for this call; decided anew each time, since the default device may change.

    Raises:
        BackendError: a named kernel backend is not available, or the default device is
            the CPU.
    """
    if backend == "mlx":
        return "mlx"
    on_gpu = mx.default_device().type == mx.DeviceType.gpu
    if backend == "auto":
        if on_gpu and mx.metal.is_available():
            return "metal"
        return "cuda" if on_gpu and mx.cuda.is_available() else "mlx"
    available = mx.metal.is_available() if backend == "metal" else mx.cuda.is_available()
    if not available:
        raise BackendError(
            f"{context}: backend {backend!r} is not available on this machine; "
            'backend="auto" picks one that is'
        )
    if not on_gpu:
        raise BackendError(
            f"{context}: backend {backend!r} needs a GPU as the default device, "
            f"got {mx.default_device()}; see mx.set_default_device"
        )
    return backend
