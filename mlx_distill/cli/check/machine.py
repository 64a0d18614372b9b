"""What the check runs on: versions, device, backends."""

from __future__ import annotations

import platform
from importlib.metadata import version
from typing import NamedTuple, get_args

import mlx.core as mx

from mlx_distill import BackendError, __version__
from mlx_distill._ops.backends import ResolvedBackend, resolve_backend

BACKENDS: tuple[ResolvedBackend, ...] = get_args(ResolvedBackend)


class Machine(NamedTuple):
    """What a bug report has to say about the machine."""

    versions: dict[str, str]
    platform: str
    device: dict[str, str | int]
    backends: dict[ResolvedBackend, str]  # "" or why it is not available

    @property
    def available(self) -> list[ResolvedBackend]:
        """The backends that can run."""
        return [backend for backend, reason in self.backends.items() if not reason]


def describe_machine() -> Machine:
    """The machine at hand."""
    versions = {
        "mlx_distill": __version__,
        "mlx": version("mlx"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
    }
    device = {"default": str(mx.default_device()), **mx.device_info()}
    return Machine(
        versions,
        f"{platform.platform()} {platform.machine()}",
        device,
        {backend: why_not(backend) for backend in BACKENDS},
    )


def why_not(backend: ResolvedBackend) -> str:
    """Why `backend` cannot run here; empty if it can."""
    try:
        resolve_backend("check", backend)
    except BackendError as exc:
        # Without the name of the caller and the hint at another backend.
        return str(exc).partition(": ")[2].partition(";")[0]
    return ""
