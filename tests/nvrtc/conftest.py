"""Where the tools come from, and the table of what each kernel takes."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from nvrtc.mlx_source import MlxTexts, read_wheel

# The folder of MLX's CUDA wheel, which cannot be installed beside the one for the CPU.
WHEEL_VARIABLE = "MLX_DISTILL_MLX_CUDA_13"

_HERE = Path(__file__).parent
_SUPPORTED = sys.platform == "linux" and platform.machine() == "x86_64"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = (
        "NVRTC is taken from wheels for Linux on x86-64"
        if not _SUPPORTED
        else f"needs NVRTC and MLX's CUDA wheel ({WHEEL_VARIABLE}); tox -e nvrtc gets both"
        if not os.environ.get(WHEEL_VARIABLE)
        else ""
    )
    for item in items:
        if missing and _HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> MlxTexts:
    """MLX's own texts, of the version that is installed for the CPU."""
    folder, name = Path(os.environ[WHEEL_VARIABLE]), f"mlx_cuda_13-{version('mlx')}-*.whl"
    wheel = next(folder.glob(name), None)
    assert wheel is not None, f"no {name} in {folder}"
    return read_wheel(wheel, tmp_path_factory.mktemp("mlx"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows = sorted(
        str(text)
        for report in terminalreporter.getreports("passed")
        for name, text in report.user_properties
        if name == "cuda resources"
    )
    if rows:
        terminalreporter.section("CUDA resources, bytes except for registers")
        for row in rows:
            terminalreporter.write_line(row)
