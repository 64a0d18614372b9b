"""Fixtures: each loss, each backend that this machine has, each dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import pytest
from hypothesis import settings

from subjects import DTYPES, LOSSES, Loss, backends

if TYPE_CHECKING:
    from mlx_distill import Backend

settings.register_profile("suite", deadline=None, max_examples=40, derandomize=True)
settings.load_profile("suite")


@pytest.hookimpl(tryfirst=True)  # before -m is applied
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What runs through the kernels of a GPU is marked so, whichever file it is in."""
    for item in items:
        found = getattr(item, "callspec", None)
        if found is not None and found.params.get("backend") in ("metal", "cuda"):
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session", params=LOSSES, ids=[loss.name for loss in LOSSES])
def loss(request: pytest.FixtureRequest) -> Loss:
    found: Loss = request.param
    return found


@pytest.fixture(scope="session", params=backends())
def backend(request: pytest.FixtureRequest) -> Backend:
    found: Backend = request.param
    return found


@pytest.fixture(scope="session")
def plain() -> Backend:
    """The one backend that MLX can map over and push forward through."""
    return "mlx"


@pytest.fixture(scope="session", params=list(DTYPES.values()), ids=list(DTYPES))
def dtype(request: pytest.FixtureRequest) -> mx.Dtype:
    found: mx.Dtype = request.param
    return found
