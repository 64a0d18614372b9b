"""The curves as a picture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from mlx_distill.cli.demo.training import Curves

COLORS = {"teacher": "#555555", "hard": "#d95f02", "kl": "#1b6ca8", "js": "#2a9d57"}
LABELS = {
    "teacher": "teacher",
    "hard": "student, hard labels",
    "kl": "student, KLDivLoss",
    "js": "student, JSDivLoss",
}


def save_curves(path: Path, curves: Mapping[str, Curves]) -> None:
    """Draw training losses and held-out distances over the steps of training."""
    students = {name: curve for name, curve in curves.items() if name != "teacher"}
    with mpl.rc_context({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10}):
        figure = Figure(figsize=(11, 7.5), layout="constrained")
        labels, divergence, kl, top1 = figure.subplots(2, 2).flat
        for name, curve in curves.items():
            panel = labels if name in {"teacher", "hard"} else divergence
            _draw_loss(panel, name, curve.loss)
        for name, curve in students.items():
            style = {"color": COLORS[name], "label": LABELS[name], "marker": "o", "markersize": 3}
            kl.plot(curve.steps, curve.kl, **style)
            top1.plot(curve.steps, [100 * share for share in curve.top1], **style)
        _finish(labels, "Training: cross-entropy with the text", "nats per token")
        _finish(divergence, "Training: divergence from the teacher", "loss", log=True)
        _finish(kl, "Held-out: KL(teacher || student)", "nats per token", log=True)
        _finish(top1, "Held-out: same first choice as the teacher", "% of tokens")
        figure.savefig(path, dpi=130)


def _draw_loss(axes: Axes, name: str, loss: list[float]) -> None:
    steps = np.arange(1, len(loss) + 1)
    width = max(1, len(loss) // 40)
    mean = np.full(width, 1 / width)
    axes.plot(steps, loss, color=COLORS[name], alpha=0.25, linewidth=0.8)
    # The steps are averaged too, so that a mean stands in the middle of what it covers.
    smooth_steps, smooth = (np.convolve(row, mean, mode="valid") for row in (steps, loss))
    axes.plot(smooth_steps, smooth, color=COLORS[name], label=LABELS[name])


def _finish(axes: Axes, title: str, unit: str, *, log: bool = False) -> None:
    axes.set_title(f"{title} ({'log' if log else 'linear'})", loc="left")
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_ylabel(unit)
    if log:
        axes.set_yscale("log", nonpositive="mask")
    axes.grid(visible=True, which="both", alpha=0.2)
    axes.legend(frameon=False)
