"""Where compiled kernels are kept, what runs by default, and what a machine has to have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from host.build import CACHE_VARIABLE, SUPPORTED, compiler

_HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "cache"):
        os.environ.setdefault(CACHE_VARIABLE, str(config.cache.mkdir("host")))


@pytest.hookimpl(tryfirst=True)  # before -m is applied
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "host_full" not in config.option.markexpr:
        asked = [item for item in items if item.get_closest_marker("host_full") is None]
        config.hook.pytest_deselected(items=[item for item in items if item not in asked])
        items[:] = asked
    ours = [item for item in items if _HERE in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.slow)
        if not SUPPORTED:
            item.add_marker(pytest.mark.skip(reason="the host target is for Linux on x86-64"))


@pytest.fixture(scope="session", autouse=True)
def _clang() -> None:
    """Fail, rather than skip, where there is no compiler: the message says what to install."""
    compiler()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.getreports("passed"):
        for name, text in report.user_properties:
            if name == "kernel lines":
                terminalreporter.write_line(str(text))
