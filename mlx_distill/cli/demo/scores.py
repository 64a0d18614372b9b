"""How good a model is on held-out text, and how close to its teacher."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from mlx_distill import js_div_loss, kl_div_loss
from mlx_distill.cli.demo.corpus import Corpus, consecutive_windows
from mlx_distill.cli.demo.transformer import LanguageModel


@dataclass(frozen=True)
class Scores:
    """Held-out figures of one model, all at temperature 1."""

    bits_per_byte: float
    kl: float
    """KL(teacher || model), nats per token."""
    js: float
    """Jensen-Shannon divergence, nats per token."""
    top1: float
    """Share of tokens where the model and the teacher have one first choice."""


@dataclass(frozen=True)
class HeldOut:
    """Held-out windows, and the teacher's logits there, which do not change."""

    windows: list[tuple[mx.array, mx.array, mx.array]]
    tokens: int
    bytes: int

    def score(self, model: LanguageModel) -> Scores:
        """Measure a model."""
        totals = [0.0] * 4
        for tokens, targets, logits_p in self.windows:
            logits_q = model(tokens)
            parts = (
                nn.losses.cross_entropy(logits_q, targets, reduction="sum"),
                kl_div_loss(logits_q, logits_p, reduction="sum"),
                js_div_loss(logits_q, logits_p, reduction="sum"),
                mx.sum(mx.argmax(logits_q, axis=-1) == mx.argmax(logits_p, axis=-1)),
            )
            mx.eval(parts)
            for total, part in enumerate(parts):
                totals[total] += as_float(part)
        nats, kl, js, agreed = totals
        return Scores(
            bits_per_byte=nats / math.log(2) / self.bytes,
            kl=kl / self.tokens,
            js=js / self.tokens,
            top1=agreed / self.tokens,
        )


def as_float(scalar: mx.array) -> float:
    """The number in a real 0-d array."""
    return float(cast("float", scalar.item()))


def hold_out(
    corpus: Corpus, teacher: LanguageModel, *, window: int, batch: int, limit: int | None = None
) -> HeldOut:
    """Held-out text beside what the teacher says of it; at most `limit` windows, evenly spread."""
    tokens, targets = consecutive_windows(corpus.held_out, window)
    if limit is not None and limit < len(tokens):
        chosen = np.linspace(0, len(tokens) - 1, limit).astype(np.int64)
        tokens, targets = tokens[chosen], targets[chosen]
    windows = []
    for start in range(0, len(tokens), batch):
        x = mx.array(tokens[start : start + batch])
        windows.append((x, mx.array(targets[start : start + batch]), teacher(x)))
        mx.eval(windows[-1])
    return HeldOut(windows, targets.size, corpus.count_bytes(targets))
