"""Training: the teacher alone, then all students side by side on the same batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim

from mlx_distill import JSDivLoss, KLDivLoss
from mlx_distill.cli.demo.corpus import Corpus, draw_batches
from mlx_distill.cli.demo.options import DemoOptions, LossName, Settings
from mlx_distill.cli.demo.scores import HeldOut, as_float
from mlx_distill.cli.demo.transformer import LanguageModel, make_model

Advance = Callable[[], None]
Step = Callable[[mx.array, mx.array, mx.array], mx.array]

LOSS_CLASSES: Mapping[LossName, type[KLDivLoss | JSDivLoss]] = {"kl": KLDivLoss, "js": JSDivLoss}


@dataclass
class Curves:
    """What was seen during training."""

    loss: list[float] = field(default_factory=list)
    """The training loss of each step."""
    steps: list[int] = field(default_factory=list)
    """After how many steps held-out text was measured."""
    kl: list[float] = field(default_factory=list)
    top1: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Trained:
    """A model and the way it took."""

    model: LanguageModel
    curves: Curves


def train_teacher(
    corpus: Corpus, options: DemoOptions, settings: Settings, advance: Advance
) -> Trained:
    """Train the larger model on the text."""
    teacher = make_model(corpus.vocabulary, settings.teacher, options.seed)
    step = _on_hard_labels(teacher, _optimizer(settings.teacher_rate, options.steps))
    curves = Curves()
    for tokens, targets in draw_batches(
        corpus.train,
        steps=options.steps,
        batch=settings.batch,
        window=settings.window,
        seed=(options.seed, 0),
    ):
        curves.loss.append(as_float(step(tokens, targets, tokens)))
        advance()
    teacher.freeze()
    return Trained(teacher, curves)


def train_students(
    corpus: Corpus,
    teacher: LanguageModel,
    held_out: HeldOut,
    options: DemoOptions,
    settings: Settings,
    advance: Advance,
) -> dict[str, Trained]:
    """Train one student on hard labels and one with each loss: same start, batches and rate."""
    students: dict[str, Trained] = {}
    steps: dict[str, Step] = {}
    losses: dict[str, KLDivLoss | JSDivLoss] = {
        name: LOSS_CLASSES[name](temperature=options.temperature, scale_by_t2=True)
        for name in options.losses
    }
    for name in ("hard", *losses):
        student = make_model(corpus.vocabulary, settings.student, options.seed)
        optimizer = _optimizer(settings.student_rate, options.steps)
        students[name] = Trained(student, Curves())
        steps[name] = (
            _on_hard_labels(student, optimizer)
            if name == "hard"
            else _on_teacher(student, losses[name], optimizer)
        )
    every = max(1, options.steps // settings.measurements)
    _measure(students, held_out, 0)
    batches = draw_batches(
        corpus.train,
        steps=options.steps,
        batch=settings.batch,
        window=settings.window,
        seed=(options.seed, 1),
    )
    for done, (tokens, targets) in enumerate(batches, start=1):
        logits_p = teacher(tokens)
        for name, step in steps.items():
            value = step(tokens, targets, logits_p)
            students[name].curves.loss.append(as_float(value))
        if done % every == 0 or done == options.steps:
            _measure(students, held_out, done)
        advance()
    return students


def _on_hard_labels(model: LanguageModel, optimizer: optim.Optimizer) -> Step:
    def loss_fn(tokens: mx.array, targets: mx.array) -> mx.array:
        return nn.losses.cross_entropy(model(tokens), targets, reduction="mean")

    value_and_grad = nn.value_and_grad(model, loss_fn)

    def step(tokens: mx.array, targets: mx.array, _: mx.array) -> mx.array:
        value, gradients = value_and_grad(tokens, targets)
        optimizer.update(model, gradients)
        mx.eval(value, model.state, optimizer.state)
        return value

    return step


def _on_teacher(
    student: LanguageModel, loss: KLDivLoss | JSDivLoss, optimizer: optim.Optimizer
) -> Step:
    def loss_fn(tokens: mx.array, logits_p: mx.array) -> mx.array:
        return loss(student(tokens), logits_p)

    value_and_grad = nn.value_and_grad(student, loss_fn)

    def step(tokens: mx.array, _: mx.array, logits_p: mx.array) -> mx.array:
        value, gradients = value_and_grad(tokens, logits_p)
        optimizer.update(student, gradients)
        mx.eval(value, student.state, optimizer.state)
        return value

    return step


def _optimizer(rate: float, steps: int) -> optim.Optimizer:
    warmup = max(1, steps // 10)
    rise = optim.linear_schedule(rate / warmup, rate, warmup)
    fall = optim.cosine_decay(rate, max(1, steps - warmup), 0.05 * rate)
    schedule = optim.join_schedules([rise, fall], [warmup])
    return optim.AdamW(learning_rate=schedule, weight_decay=0.01)


def _measure(students: Mapping[str, Trained], held_out: HeldOut, step: int) -> None:
    for student in students.values():
        scores = held_out.score(student.model)
        student.curves.steps.append(step)
        student.curves.kl.append(scores.kl)
        student.curves.top1.append(scores.top1)
