"""`mlx-distill demo`: what it trains, measures, writes and says."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from mlx_distill import __version__, kl_div_loss
from mlx_distill.cli import main
from mlx_distill.cli.demo import corpus as text
from mlx_distill.cli.demo import runner
from mlx_distill.cli.demo.options import DemoOptions, ModelSize, Settings
from mlx_distill.cli.demo.scores import Scores, hold_out
from mlx_distill.cli.demo.transformer import make_model
from mlx_distill.cli.demo.verdict import judge

TINY = Settings(
    vocabulary=272,
    window=16,
    batch=4,
    teacher=ModelSize(width=16, blocks=2, heads=2),
    student=ModelSize(width=8, blocks=1, heads=1),
    measurements=3,
    measured_windows=5,
)
TOPICS = {
    f"topic{number:02}": f"Shared\nparagraph.\n\nTopic {number} says {'so ' * number}\u2026"
    for number in range(24)
}

Json = dict[str, object]


@pytest.fixture
def short_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "read_topics", lambda: TOPICS)


def run_tiny(out: Path, **options: object) -> Json:
    out.mkdir()
    values: dict[str, object] = {"steps": 6, "out": out, **options}
    runner.run_demo(replace(DemoOptions(), **values), TINY)  # type: ignore[arg-type] # by name
    found: Json = json.loads((out / "results.json").read_text(encoding="utf-8"))
    return found


def inner(found: object, *keys: str) -> object:
    for key in keys:
        assert isinstance(found, dict)
        found = found[key]
    return found


def without_time(found: Json) -> Json:
    options = inner(found, "options")
    assert isinstance(options, dict)
    kept = {key: value for key, value in options.items() if key != "out"}
    return {**found, "options": kept, "seconds": None}


@pytest.mark.usefixtures("short_text")
def test_run_writes_every_number_the_curves_and_the_models(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run_tiny(tmp_path / "out", seed=3, temperature=2.0)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "curves.png",
        "results.json",
        "teacher.safetensors",
        "student-hard.safetensors",
        "student-kl.safetensors",
        "student-js.safetensors",
        "tokenizer.json",
    }
    assert (tmp_path / "out" / "curves.png").read_bytes().startswith(b"\x89PNG\r\n")
    assert inner(found, "versions", "mlx_distill") == __version__
    assert inner(found, "versions", "mlx") == metadata.version("mlx")
    assert inner(found, "options", "seed") == 3
    assert inner(found, "options", "temperature") == 2.0
    assert inner(found, "settings", "student", "width") == 8
    for name in ("teacher", "hard", "kl", "js"):
        loss = inner(found, "models", name, "curves", "loss")
        assert isinstance(loss, list)
        assert len(loss) == 6
        assert np.isfinite(loss).all()
        measured = [] if name == "teacher" else [0, 2, 4, 6]
        assert inner(found, "models", name, "curves", "steps") == measured
    assert inner(found, "models", "teacher", "held_out", "kl") == 0.0
    assert inner(found, "models", "teacher", "held_out", "top1") == 1.0
    printed = capsys.readouterr().out
    for row in ("teacher", "student, hard labels", "student, KLDivLoss", "student, JSDivLoss"):
        assert row in printed
    for sentence in inner(found, "verdict", "sentences"):  # type: ignore[attr-defined] # a list
        assert sentence in printed


@pytest.mark.usefixtures("short_text")
def test_same_seed_gives_same_numbers_and_another_seed_others(tmp_path: Path) -> None:
    first, again, other = (
        without_time(run_tiny(tmp_path / name, seed=seed))
        for name, seed in (("first", 1), ("again", 1), ("other", 2))
    )
    assert first == again
    assert first["models"] != other["models"]
    for file in tmp_path.glob("first/*.safetensors"):
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


@pytest.mark.usefixtures("short_text")
def test_students_start_equal_and_one_loss_leaves_the_other_out(tmp_path: Path) -> None:
    found = run_tiny(tmp_path / "out", losses=("js",))
    assert set(inner(found, "models")) == {"teacher", "hard", "js"}  # type: ignore[call-overload] # a dict
    hard = inner(found, "models", "hard", "curves", "kl")
    distilled = inner(found, "models", "js", "curves", "kl")
    assert isinstance(hard, list)
    assert isinstance(distilled, list)
    assert hard[0] == distilled[0]
    assert hard[-1] != distilled[-1]


@pytest.mark.usefixtures("short_text")
def test_saved_student_gives_the_reported_figures(tmp_path: Path) -> None:
    found = run_tiny(tmp_path / "out")
    corpus = text.tokenize(text.split_topics(TOPICS), TINY.vocabulary)
    teacher = make_model(corpus.vocabulary, TINY.teacher, seed=9)
    teacher.load_weights(str(tmp_path / "out" / "teacher.safetensors"))
    student = make_model(corpus.vocabulary, TINY.student, seed=9)
    student.load_weights(str(tmp_path / "out" / "student-kl.safetensors"))
    tokens, targets = text.consecutive_windows(corpus.held_out, TINY.window)
    logits_q, logits_p = student(mx.array(tokens)), teacher(mx.array(tokens))
    kl = kl_div_loss(logits_q, logits_p, reduction="mean").item()
    assert inner(found, "models", "kl", "held_out", "kl") == pytest.approx(kl, rel=1e-5)
    wide = np.array(logits_q).astype(np.float64)
    nats = np.log(np.exp(wide).sum(-1)) - np.take_along_axis(wide, targets[..., None], -1)[..., 0]
    size = len(corpus.tokenizer.decode(targets.ravel().tolist()).encode())
    bits = nats.sum() / np.log(2) / size
    got = inner(found, "models", "kl", "held_out", "bits_per_byte")
    assert got == pytest.approx(bits, rel=1e-4)


def test_no_paragraph_is_in_both_parts_or_twice() -> None:
    for topics in (TOPICS, text.read_topics()):
        split = text.split_topics(topics)
        parts = [
            [" ".join(paragraph.split()) for paragraph in part.split("\n\n")]
            for part in (split.train, split.held_out)
        ]
        assert all(parts)
        assert len(parts[0]) == len(set(parts[0]))
        assert len(parts[1]) == len(set(parts[1]))
        assert not set(parts[0]) & set(parts[1])


def test_tokens_give_the_text_back_and_count_its_bytes() -> None:
    split = text.split_topics(TOPICS)
    corpus = text.tokenize(split, 272)
    assert corpus.token_bytes[corpus.held_out].sum() == len(split.held_out.encode())
    assert corpus.token_bytes[corpus.train].sum() == len(split.train.encode())
    assert corpus.vocabulary <= 272


def test_models_see_no_token_that_comes_later() -> None:
    model = make_model(20, TINY.teacher, seed=0)
    tokens = mx.array([[1, 2, 3, 4]])
    changed = mx.array([[1, 2, 3, 9]])
    assert mx.allclose(model(tokens)[:, :3], model(changed)[:, :3])
    assert not mx.allclose(model(tokens)[:, 3], model(changed)[:, 3])


def test_limited_measurement_spreads_over_the_text() -> None:
    corpus = text.tokenize(text.split_topics(TOPICS), TINY.vocabulary)
    teacher = make_model(corpus.vocabulary, TINY.teacher, seed=0)
    few = hold_out(corpus, teacher, window=4, batch=2, limit=3)
    every = hold_out(corpus, teacher, window=4, batch=2)
    assert few.tokens == 12 < every.tokens
    assert mx.array_equal(few.windows[0][0][0], every.windows[0][0][0])
    assert mx.array_equal(few.windows[-1][0][-1], every.windows[-1][0][-1])


HARD = Scores(bits_per_byte=2.5, kl=0.4, js=0.1, top1=0.5)


def test_verdict_is_good_when_every_student_is_closer() -> None:
    verdict = judge(
        HARD, {"kl": replace(HARD, kl=0.1, top1=0.7), "js": replace(HARD, kl=0.2, top1=0.6)}
    )
    assert verdict.closer
    assert len(verdict.sentences) == 2
    for part in ("KLDivLoss is closer", "0.1000 against 0.4000", "70.0% of tokens against 50.0%"):
        assert part in verdict.sentences[0]
    assert "JSDivLoss is closer" in verdict.sentences[1]


@pytest.mark.parametrize(
    ("kl", "top1"), [(0.5, 0.7), (0.1, 0.4), (0.4, 0.7), (0.1, 0.5), (float("nan"), 0.7)]
)
def test_verdict_is_bad_when_one_figure_of_one_student_is_not_better(
    kl: float, top1: float
) -> None:
    verdict = judge(
        HARD, {"kl": replace(HARD, kl=0.1, top1=0.7), "js": replace(HARD, kl=kl, top1=top1)}
    )
    assert not verdict.closer
    assert "KLDivLoss is closer" in verdict.sentences[0]
    assert "JSDivLoss is NOT closer" in verdict.sentences[1]


@pytest.mark.slow
def test_short_run_on_the_real_text_comes_out_closer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "[out]"
    assert main(["demo", "--steps", "30", "--loss", "js", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert printed.count(" is closer to the teacher ") == 1
    assert printed.endswith(f"are in {out}\n")
