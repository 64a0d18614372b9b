"""`mlx-distill check`: what it prints, and when it refuses to run."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import product

import mlx.core as mx
import numpy as np
import pytest

import oracle
from edge_rows import POISON, VALID, stack
from mlx_distill import __version__
from mlx_distill.cli import main
from mlx_distill.cli.check import large, machine
from mlx_distill.cli.check import oracle as own_oracle
from subjects import DTYPES, LOSSES, Loss, backends

GROUPS = ["V1", "V7", "V1000", "V4095", "V4096", "V4097", "V32000", "V151936", "edges", "repeats"]
MISSING = next(name for name in machine.BACKENDS if machine.why_not(name))
PLAIN = ("--quick", "--backend", "mlx")

Json = dict[str, object]


def objects(found: Json, key: str) -> list[Json]:
    items = found[key]
    assert isinstance(items, list)
    return items


def test_quick_check_passes_and_prints_one_row_for_each_group(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", "--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = "\n".join(lines[:7])
    for part in (f"mlx_distill {__version__}", "numpy", "python", str(mx.default_device())):
        assert part in head
    assert f"backend   {MISSING} not available here" in head
    assert "backend   mlx found" in head
    table = [line.split() for line in lines if line.startswith(("mlx ", "metal ", "cuda "))]
    names = [loss.name for loss in LOSSES]
    assert [tuple(row[:4]) for row in table] == list(
        product(reversed(backends()), names, DTYPES, GROUPS)
    )
    assert {row[-1] for row in table} == {"pass"}
    assert all(int(row[4]) > 0 for row in table)
    assert lines[-1].startswith("passed: ")


def test_python_m_prints_json_and_nothing_else() -> None:
    command = [sys.executable, "-m", "mlx_distill", "check", "--json", "--quick"]
    done = subprocess.run(
        [*command, "--only", "/float16/V7/"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    found: Json = json.loads(done.stdout)
    assert {key: type(value) for key, value in found.items()} == {
        "versions": dict,
        "platform": str,
        "device": dict,
        "backends": dict,
        "quick": bool,
        "rows": list,
        "failures": list,
        "cases": int,
        "failed": int,
        "seconds": float,
        "passed": bool,
    }
    assert found["failures"] == []
    assert [(row["loss"], row["dtype"], row["group"]) for row in objects(found, "rows")] == [
        (loss.name, "float16", "V7") for _ in backends() for loss in LOSSES
    ]
    for row in objects(found, "rows"):
        assert row["passed"] is True
        assert isinstance(row["cases"], int)
        assert row["cases"] > 9
        for share in (row["value"], row["gradient"]):
            assert isinstance(share, float)
            assert 0 < share <= 1


def test_whole_check_takes_more_temperatures_and_says_what_it_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    only = ("--backend", "mlx", "--only", "kl/float32/V7/")
    assert main(["check", "--json", *only]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert main(["check", "--json", "--quick", *only]) == 0
    quick = json.loads(capsys.readouterr().out)
    assert whole["cases"] > quick["cases"]
    assert main(["check", "--backend", "mlx", "--only", "kl/float32/large"]) in {0, 2}
    captured = capsys.readouterr()
    if mx.default_device().type == mx.DeviceType.cpu:
        assert "not run, 2147483648 entries need a GPU" in captured.out
        assert "no case that can run here" in captured.err


def test_backend_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for options in ((), ("--json",)):
        assert main(["check", "--backend", MISSING, *options]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert f"backend '{MISSING}'" in captured.err


def test_name_that_no_case_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--quick", "--json", "--only", "V8/"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "'V8/'" in captured.err


def test_missing_numpy_is_refused_with_the_extra_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("mlx_distill.cli.check.")]:
        monkeypatch.delitem(sys.modules, name)
    package = sys.modules["mlx_distill.cli.check"]
    for name in ("machine", "report", "runner"):
        monkeypatch.delattr(package, name, raising=False)
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert main(["check", "--quick"]) == 2
    assert "pip install 'mlx-distill[check]'" in capsys.readouterr().err


def test_terminal_shows_the_case_that_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["check", *PLAIN, "--only", "kl/float32/V7/rows3-T1"]) == 0
    assert "\x1b[Kmlx/kl/float32/V7/rows3-T1" in capsys.readouterr().err


@pytest.mark.parametrize("temperature", [0.7, 3.0])
def test_its_float64_agrees_with_the_float64_of_the_tests(
    loss: Loss, dtype: mx.Dtype, temperature: float
) -> None:
    q, p = stack([*VALID.values(), *POISON.values()], dtype)
    own = own_oracle.truth(
        loss.name,
        own_oracle.as_float64(q),
        own_oracle.as_float64(p),
        temperature=temperature,
        scale_by_t2=True,
    )
    other = oracle.rows(loss.name, q, p, temperature=temperature, scale_by_t2=True)
    for x, y in ((own.value, other.value), (own.gradient, other.gradient)):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-15)


def test_memory_is_asked_of_a_gpu_only(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = large._gpu_memory  # noqa: SLF001 - no public way to it without a GPU
    for info, on_gpu, want in (
        ({"memory_size": 7}, True, 7),
        ({"total_memory": 8, "device_name": "some"}, True, 8),
        ({}, True, 0),
        ({"memory_size": 7}, False, 0),
    ):
        monkeypatch.setattr(large, "on_gpu", lambda answer=on_gpu: answer)
        monkeypatch.setattr(mx, "device_info", lambda answer=info: answer)
        assert memory() == want
