"""Losses in a training step: eager, compiled, checkpointed, with real optimizers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import pytest

import oracle
from compare import assert_gradient, assert_value
from mlx_distill import js_div_loss, kl_div_loss
from oracle import number, to_float64
from subjects import Loss, cotangent_like, draw_logits, leaves

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlx_distill import Backend


def train(
    loss: Loss, backend: Backend, temperature: float, steps: int, *, compiled: bool
) -> tuple[float, float, bool]:
    """Distil one linear layer into another; first and last loss, and whether the teacher held."""
    mx.random.seed(0)
    teacher, student = nn.Linear(8, 16), nn.Linear(8, 16)
    teacher.freeze()
    before = {name: mx.array(w) for name, w in leaves(teacher.parameters()).items()}
    x = mx.random.normal((64, 8))
    module = loss.module(temperature=temperature, backend=backend)
    optimizer = optim.Adam(learning_rate=5e-2)
    optimizer.init(student.trainable_parameters())
    state = [student.state, optimizer.state]
    value_and_grad = nn.value_and_grad(student, lambda x: module(student(x), teacher(x)))

    def step(x: mx.array) -> mx.array:
        value, gradients = value_and_grad(x)
        optimizer.update(student, gradients)
        return value

    run = mx.compile(step, inputs=state, outputs=state) if compiled else step
    values = []
    for _ in range(steps):
        values.append(run(x))
        mx.eval(state, values[-1])
    held = all(mx.array_equal(w, before[name]) for name, w in leaves(teacher.parameters()).items())
    return number(values[0]), number(values[-1]), held


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("temperature", [1.0, 2.0], ids=lambda t: f"T{t:g}")
def test_kd65_training_brings_the_student_to_the_teacher(
    loss: Loss, backend: Backend, temperature: float, *, compiled: bool
) -> None:
    first, last, teacher_held = train(loss, backend, temperature, 600, compiled=compiled)
    assert first > 1e-2
    assert last < 1e-4
    assert teacher_held


# In float16 Adam's epsilon of 1e-8 is 0, and so are most second moments: no test of a loss.
OPTIMIZERS: dict[str, tuple[Callable[[], optim.Optimizer], mx.Dtype]] = {
    "SGD-float32": (lambda: optim.SGD(learning_rate=0.1, momentum=0.9), mx.float32),
    "SGD-float16": (lambda: optim.SGD(learning_rate=0.1, momentum=0.9), mx.float16),
    "AdamW-float32": (lambda: optim.AdamW(learning_rate=1e-2), mx.float32),
    "AdamW-bfloat16": (lambda: optim.AdamW(learning_rate=1e-2), mx.bfloat16),
    "Lion-float16": (lambda: optim.Lion(learning_rate=1e-2), mx.float16),
    "Lion-bfloat16": (lambda: optim.Lion(learning_rate=1e-2), mx.bfloat16),
    "Adafactor-float32": (lambda: optim.Adafactor(learning_rate=1e-2), mx.float32),
    "Adafactor-bfloat16": (lambda: optim.Adafactor(learning_rate=1e-2), mx.bfloat16),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_take_its_gradients(loss: Loss, backend: Backend, name: str) -> None:
    make, dtype = OPTIMIZERS[name]
    mx.random.seed(1)
    student = nn.Linear(8, 16)
    student.set_dtype(dtype)
    x = mx.random.normal((32, 8)).astype(dtype)
    teacher = mx.random.normal((32, 16)).astype(dtype)
    module = loss.module(backend=backend)
    step = nn.value_and_grad(student, lambda x: module(student(x), teacher))
    optimizer = make()
    first, _ = step(x)
    for _ in range(20):
        _, gradients = step(x)
        optimizer.update(student, gradients)
        mx.eval(student.parameters(), optimizer.state)
    last, _ = step(x)
    assert number(last) < number(first)


def test_compiled_calls_give_what_eager_calls_give(
    loss: Loss, backend: Backend, dtype: mx.Dtype
) -> None:
    run = mx.compile(
        lambda q, p: loss.function(q, p, temperature=0.7, backend=backend), shapeless=False
    )
    for shape in ((3, 7), (5, 7), (2, 2, 4097), (300, 1000)):
        q, p = draw_logits(shape, dtype=dtype)
        want = oracle.rows(loss.name, q, p, temperature=0.7)
        assert_value(run(q, p), want.value)


def test_compiled_gradients_give_what_eager_gradients_give(
    loss: Loss, backend: Backend, dtype: mx.Dtype
) -> None:
    def pull(q: mx.array, p: mx.array, c: mx.array) -> mx.array:
        return mx.vjp(lambda s: loss.function(s, p, backend=backend), [q], [c])[1][0]

    run = mx.compile(pull)
    for shape in ((3, 7), (300, 1000)):
        q, p = draw_logits(shape, dtype=dtype)
        cotangent = cotangent_like(mx.zeros(shape[:-1], dtype=dtype))
        found = oracle.rows(loss.name, q, p)
        assert_gradient(loss, run(q, p, cotangent), found, to_float64(cotangent))


def test_checkpointed_calls_give_the_same_value_and_gradient(
    loss: Loss, backend: Backend, dtype: mx.Dtype
) -> None:
    q, p = draw_logits((5, 1000), dtype=dtype)

    def run(student: mx.array, teacher: mx.array) -> mx.array:
        return loss.function(student, teacher, reduction="mean", backend=backend)

    value, gradient = mx.value_and_grad(mx.checkpoint(run))(q, p)
    want_value, want_gradient = mx.value_and_grad(run)(q, p)
    assert mx.array_equal(value, want_value)
    assert mx.array_equal(gradient, want_gradient)


def test_a_checkpointed_student_gets_the_same_gradient(loss: Loss, backend: Backend) -> None:
    mx.random.seed(2)
    layer = nn.Linear(8, 16)
    module = loss.module(backend=backend)
    x, teacher = mx.random.normal((5, 8)), mx.random.normal((5, 16))

    def whole(parameters: dict[str, mx.array], x: mx.array) -> mx.array:
        return module(x @ parameters["weight"].T + parameters["bias"], teacher)

    parameters = layer.parameters()
    got = mx.grad(mx.checkpoint(whole))(parameters, x)
    want = mx.grad(whole)(parameters, x)
    for name in ("weight", "bias"):
        assert mx.allclose(got[name], want[name], rtol=1e-6, atol=1e-8)


def test_two_losses_and_a_cross_entropy_add_their_gradients(backend: Backend) -> None:
    q, p = draw_logits((3, 7))
    targets = mx.array([0, 3, 6])

    def kl(s: mx.array) -> mx.array:
        return kl_div_loss(s, p, reduction="sum", backend=backend)

    def js(s: mx.array) -> mx.array:
        return js_div_loss(s, p, temperature=2.0, reduction="sum", backend=backend)

    def hard(s: mx.array) -> mx.array:
        return nn.losses.cross_entropy(s, targets, reduction="sum")

    together = mx.grad(lambda s: kl(s) + 0.5 * js(s) + hard(s) + kl(s))(q)
    apart = 2 * mx.grad(kl)(q) + 0.5 * mx.grad(js)(q) + mx.grad(hard)(q)
    assert mx.allclose(together, apart, rtol=1e-5, atol=1e-6)
