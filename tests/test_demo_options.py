"""`mlx-distill demo`: its options, its exit codes, and when it refuses to run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mlx_distill import __version__
from mlx_distill.cli import demo, main
from mlx_distill.cli.demo import runner
from mlx_distill.cli.demo.options import DemoOptions


@pytest.mark.parametrize(("closer", "code"), [(True, 0), (False, 1)])
def test_exit_code_is_the_verdict(
    closer: bool, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[DemoOptions] = []

    def run_demo(options: DemoOptions) -> bool:
        seen.append(options)
        return closer

    monkeypatch.setattr(runner, "run_demo", run_demo)
    assert main(["demo", "--out", str(tmp_path), "--loss", "js", "--steps", "7"]) == code
    assert seen == [DemoOptions(steps=7, out=tmp_path, losses=("js",))]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--steps", "0"], "--steps: must be at least 1, got 0"),
        (["--seed", "-1"], "--seed: must be at least 0"),
        (["--temperature", "0"], "--temperature: must be finite"),
        (["--temperature", "nan"], "--temperature: must be finite"),
        (["--out", __file__], "--out: cannot write to"),
        (["--out", f"{__file__}/below"], "--out: cannot write to"),
    ],
    ids=str,
)
def test_bad_option_is_one_line_and_code_2(
    options: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"mlx-distill demo: {named}")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    "options", [["--steps", "many"], ["--loss", "l2"], ["--speed", "9"]], ids=str
)
def test_option_that_cannot_be_parsed_is_named_and_code_2(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["demo", *options])
    assert stopped.value.code == 2
    assert options[0] in capsys.readouterr().err.splitlines()[-1]


def test_missing_text_is_one_line_and_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    assert main(["demo", "--out", str(tmp_path)]) == 2
    printed = capsys.readouterr().err
    assert "this Python has no pydoc_data.topics" in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize("missing", demo.EXTRA)
def test_missing_extra_is_named(missing: str, tmp_path: Path) -> None:
    code = (
        "import sys; from mlx_distill.cli import main\n"
        "sys.modules[sys.argv[1]] = None\n"
        "sys.exit(main(['demo', '--out', sys.argv[2]]))"
    )
    command = [sys.executable, "-c", code, missing, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = f"mlx-distill demo: it needs {missing}: pip install 'mlx-distill[demo]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", said)


def test_interrupt_is_code_130(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_: DemoOptions) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(runner, "run_demo", interrupt)
    assert main(["demo", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err.endswith("interrupted\n")


def test_help_names_every_option_and_loads_no_extra() -> None:
    code = (
        "import sys; from mlx_distill.cli import main, demo\n"
        "try: main(['demo', '--help'])\n"
        "finally: print(sorted(set(demo.EXTRA) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for option in ("--steps", "--seed", "--out", "--loss", "--temperature", "mlx-distill-demo"):
        assert option in done.stdout
    assert done.stdout.endswith("[]\n")


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--version"])
    assert stopped.value.code == 0
    assert capsys.readouterr().out == f"mlx-distill {__version__}\n"
