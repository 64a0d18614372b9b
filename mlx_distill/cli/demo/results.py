"""The results as a table and as JSON."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx
from rich.table import Table

from mlx_distill import __version__
from mlx_distill.cli.demo.corpus import Corpus
from mlx_distill.cli.demo.options import DemoOptions, Settings
from mlx_distill.cli.demo.plots import LABELS
from mlx_distill.cli.demo.scores import Scores
from mlx_distill.cli.demo.training import Trained
from mlx_distill.cli.demo.transformer import count_parameters
from mlx_distill.cli.demo.verdict import Verdict

PACKAGES = ("mlx", "numpy", "tokenizers", "matplotlib", "rich")


@dataclass(frozen=True)
class Results:
    """All that a run of the demo found."""

    options: DemoOptions
    settings: Settings
    corpus: Corpus
    models: Mapping[str, Trained]
    """The teacher, then the students."""
    scores: Mapping[str, Scores]
    measured_tokens: int
    verdict: Verdict
    seconds: Mapping[str, float]


def scores_table(results: Results) -> Table:
    """Held-out figures, one row for each model."""
    table = Table(title=f"Held-out text, {results.measured_tokens:,} tokens", title_justify="left")
    table.add_column("model", no_wrap=True)
    for heading in ("weights", "bits per\nbyte", "KL to\nteacher", "JS", "top-1\nagreement"):
        table.add_column(heading, justify="right")
    for name, scores in results.scores.items():
        table.add_row(
            LABELS[name],
            f"{count_parameters(results.models[name].model):,}",
            f"{scores.bits_per_byte:.3f}",
            f"{scores.kl:.4f}",
            f"{scores.js:.4f}",
            f"{scores.top1:.1%}",
        )
    return table


def write_json(path: Path, results: Results) -> None:
    """Write every number of the run; what is not finite becomes null."""
    corpus = results.corpus
    found = {
        "versions": {
            "mlx_distill": __version__,
            "python": platform.python_version(),
            **{name: version(name) for name in PACKAGES},
        },
        "platform": platform.platform(),
        "device": str(mx.default_device()),
        "options": {**asdict(results.options), "out": str(results.options.out)},
        "settings": asdict(results.settings),
        "text": {
            "vocabulary": corpus.vocabulary,
            "train_bytes": corpus.count_bytes(corpus.train),
            "train_tokens": len(corpus.train),
            "held_out_bytes": corpus.count_bytes(corpus.held_out),
            "held_out_tokens": len(corpus.held_out),
            "measured_tokens": results.measured_tokens,
        },
        "models": {
            name: {
                "parameters": count_parameters(trained.model),
                "held_out": asdict(results.scores[name]),
                "curves": asdict(trained.curves),
            }
            for name, trained in results.models.items()
        },
        "verdict": asdict(results.verdict),
        "seconds": dict(results.seconds),
    }
    path.write_text(json.dumps(_finite(found), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
