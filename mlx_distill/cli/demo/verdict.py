"""Whether distillation did what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mlx_distill.cli.demo.options import LossName
from mlx_distill.cli.demo.scores import Scores

LOSS_TITLES: Mapping[LossName, str] = {"kl": "KLDivLoss", "js": "JSDivLoss"}


@dataclass(frozen=True)
class Verdict:
    """Whether every distilled student is closer to the teacher, and a sentence for each."""

    closer: bool
    sentences: tuple[str, ...]


def judge(hard: Scores, distilled: Mapping[LossName, Scores]) -> Verdict:
    """Compare each distilled student with the one on hard labels: lower KL, higher agreement."""
    all_closer = bool(distilled)
    sentences = []
    for name, scores in distilled.items():
        # Written so that a NaN on either side counts as not closer.
        closer = scores.kl < hard.kl and scores.top1 > hard.top1
        all_closer = all_closer and closer
        sentences.append(
            f"On held-out text the student distilled with {LOSS_TITLES[name]} is "
            f"{'closer' if closer else 'NOT closer'} to the teacher than the one trained on hard "
            f"labels: KL {scores.kl:.4f} against {hard.kl:.4f} nats per token, the same first "
            f"choice for {scores.top1:.1%} of tokens against {hard.top1:.1%}."
        )
    return Verdict(all_closer, tuple(sentences))
