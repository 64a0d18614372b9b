"""What can be chosen, and what is fixed."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from mlx_distill import OutOfRangeError
from mlx_distill._ops.options import check_temperature

LossName: TypeAlias = Literal["kl", "js"]
LOSSES: tuple[LossName, ...] = ("kl", "js")


class DemoError(Exception):
    """The demo cannot run; the message says why, in one line."""


@dataclass(frozen=True)
class ModelSize:
    """Width, number of blocks and heads of a transformer."""

    width: int
    blocks: int
    heads: int


@dataclass(frozen=True)
class Settings:
    """Sizes and rates, chosen so that two CPU cores finish in two minutes."""

    vocabulary: int = 512
    window: int = 64
    batch: int = 8
    teacher: ModelSize = field(default_factory=lambda: ModelSize(width=96, blocks=2, heads=4))
    student: ModelSize = field(default_factory=lambda: ModelSize(width=32, blocks=1, heads=2))
    teacher_rate: float = 3e-3
    student_rate: float = 5e-3
    measurements: int = 16
    """How often held-out text is measured during training."""
    measured_windows: int = 24
    """How many held-out windows each of those measurements takes; the last one takes all."""


@dataclass(frozen=True)
class DemoOptions:
    """The options of the command."""

    steps: int = 350
    seed: int = 0
    out: Path = Path("mlx-distill-demo")
    losses: tuple[LossName, ...] = LOSSES
    temperature: float = 1.0

    def check(self) -> None:
        """Raise `DemoError` for an option that cannot work, and make the output folder."""
        if self.steps < 1:
            raise DemoError(f"--steps: must be at least 1, got {self.steps}")
        if not 0 <= self.seed < 2**64:
            raise DemoError(f"--seed: must be at least 0 and below 2**64, got {self.seed}")
        try:
            check_temperature("--temperature", self.temperature)
        except OutOfRangeError as exc:
            raise DemoError(f"--temperature: {exc.requirement}, got {exc.value}") from exc
        try:
            self.out.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.out):
                pass
        except OSError as exc:
            raise DemoError(f"--out: cannot write to {self.out}: {exc.strerror}") from exc
