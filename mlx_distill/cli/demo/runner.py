"""One run of the demo, from the text to the verdict."""

from __future__ import annotations

from time import perf_counter

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from mlx_distill.cli.demo.corpus import Corpus, read_topics, split_topics, tokenize
from mlx_distill.cli.demo.options import DemoOptions, Settings
from mlx_distill.cli.demo.plots import save_curves
from mlx_distill.cli.demo.results import Results, scores_table, write_json
from mlx_distill.cli.demo.scores import HeldOut, hold_out
from mlx_distill.cli.demo.training import Trained, train_students, train_teacher
from mlx_distill.cli.demo.transformer import LanguageModel
from mlx_distill.cli.demo.verdict import judge


def run_demo(options: DemoOptions, settings: Settings | None = None) -> bool:
    """Train, measure, write and print.

    Returns:
        Whether each distilled student came out closer to the teacher than the hard-label one.
    """
    settings = settings or Settings()
    console = Console()
    start = perf_counter()
    corpus = tokenize(split_topics(read_topics()), settings.vocabulary)
    console.print(
        f"Text: Python's help topics, {corpus.count_bytes(corpus.train):,} bytes to train on, "
        f"{corpus.count_bytes(corpus.held_out):,} held out; {corpus.vocabulary} tokens",
        highlight=False,
        soft_wrap=True,
    )
    models, seconds = _train(corpus, options, settings)
    measured = _held_out(corpus, models["teacher"].model, settings)
    scores = {name: measured.score(trained.model) for name, trained in models.items()}
    verdict = judge(scores["hard"], {name: scores[name] for name in options.losses})
    seconds["total"] = perf_counter() - start
    results = Results(options, settings, corpus, models, scores, measured.tokens, verdict, seconds)
    _write(results)
    console.print(scores_table(results))
    for sentence in verdict.sentences:
        console.print(sentence, highlight=False, soft_wrap=True)
    console.print(
        f"Took {seconds['total']:.0f} s. Curves, figures and models are in {options.out}",
        # A folder may be named [like this].
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    return verdict.closer


def _train(
    corpus: Corpus, options: DemoOptions, settings: Settings
) -> tuple[dict[str, Trained], dict[str, float]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        names = ", ".join(("hard", *options.losses))
        bars = [
            progress.add_task(text, total=options.steps)
            for text in ("teacher", f"students ({names})")
        ]
        start = perf_counter()
        teacher = train_teacher(corpus, options, settings, lambda: progress.advance(bars[0]))
        between = perf_counter()
        students = train_students(
            corpus,
            teacher.model,
            _held_out(corpus, teacher.model, settings, limit=settings.measured_windows),
            options,
            settings,
            lambda: progress.advance(bars[1]),
        )
        seconds = {"teacher": between - start, "students": perf_counter() - between}
    return {"teacher": teacher, **students}, seconds


def _held_out(
    corpus: Corpus, teacher: LanguageModel, settings: Settings, *, limit: int | None = None
) -> HeldOut:
    return hold_out(corpus, teacher, window=settings.window, batch=settings.batch, limit=limit)


def _write(results: Results) -> None:
    out = results.options.out
    for name, trained in results.models.items():
        file = "teacher" if name == "teacher" else f"student-{name}"
        trained.model.save_weights(str(out / f"{file}.safetensors"))
    results.corpus.tokenizer.save(str(out / "tokenizer.json"))
    save_curves(
        out / "curves.png", {name: trained.curves for name, trained in results.models.items()}
    )
    write_json(out / "results.json", results)
