"""Faults reported in public against distillation losses: modules, layouts, dtypes, devices.

One test for each report, under its number.
"""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from mlx_distill import DtypeMismatchError, kl_div_loss
from oracle import to_float64
from subjects import Loss, bits, leaves

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlx_distill import Backend

FAR_Q, FAR_P = [[3.0, 0.0, 0.0, -2.0]], [[0.0, 0.0, 1.0, 1.0]]


class Holder(nn.Module):
    """A student with a loss inside."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.loss = loss.module(temperature=2.0)


def test_kd50_loss_inside_a_student_is_no_parameter(loss: Loss) -> None:
    module = loss.module(temperature=2.0)
    assert module.trainable_parameters() == {}
    assert module.parameters() == {}
    assert sorted(leaves(Holder(loss).parameters())) == ["layer.bias", "layer.weight"]


def test_kd51_copies_and_pickles_give_the_same_value(loss: Loss) -> None:
    q, p = mx.array(FAR_Q), mx.array(FAR_P)
    module = loss.module(temperature=2.0)
    want = module(q, p).item()
    student = Holder(loss)
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert twin(q, p).item() == want
    for other in (copy.deepcopy(student), pickle.loads(pickle.dumps(student))):
        assert other.loss(q, p).item() == want


@pytest.mark.parametrize("gradient", [False, True], ids=["value", "value_and_grad"])
def test_kd53_shapeless_compile_is_refused_loudly_not_frozen_to_a_shape(
    loss: Loss, backend: Backend, *, gradient: bool
) -> None:
    def run(q: mx.array, p: mx.array) -> mx.array:
        return loss.function(q, p, reduction="mean", backend=backend)

    shapeless = mx.compile(mx.grad(run) if gradient else run, shapeless=True)
    with pytest.raises((ValueError, RuntimeError), match="cannot infer output shapes"):
        mx.eval(shapeless(mx.ones((2, 5)), mx.zeros((2, 5))))
    by_shape = mx.compile(mx.grad(run) if gradient else run)
    for rows in (2, 3):
        got = by_shape(mx.ones((rows, 5)), mx.zeros((rows, 5)))
        assert got.shape == ((rows, 5) if gradient else ())


VIEWS: dict[str, tuple[Callable[[mx.array], mx.array], list[float]]] = {
    "rows_reversed": (
        lambda x: x[::-1],
        [0.504180624, 1.07885361, 0.718478983, 1.33301281, 0.960591476, 0.38242656],
    ),
    "vocabulary_reversed": (
        lambda x: x[:, ::-1],
        [0.38242656, 0.960591476, 1.33301281, 0.718478983, 1.07885361, 0.504180624],
    ),
    "transposed": (
        lambda x: x.T,
        [
            0.519481613,
            0.46210452,
            0.549058023,
            0.753293783,
            0.831293989,
            0.766175594,
            0.351354481,
            0.932295708,
            1.53065635,
            0.905441668,
        ],
    ),
    "strided": (
        lambda x: x[:, ::2],
        [0.467520705, 0.635782906, 0.69166072, 0.39803869, 1.48623496, 0.208985424],
    ),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("view", VIEWS)
def test_kd54_views_are_read_as_their_copies(
    backend: Backend, view: str, *, compiled: bool
) -> None:
    rng = np.random.default_rng(4)
    x, y = (mx.array(rng.normal(size=(6, 10)).astype(np.float32)) for _ in range(2))
    take, want = VIEWS[view]

    def run(a: mx.array, b: mx.array) -> mx.array:
        return kl_div_loss(take(a), take(b), backend=backend)

    got = (mx.compile(run) if compiled else run)(x, y)
    assert to_float64(got) == pytest.approx(np.array(want), abs=1e-5)


def test_kd58_import_needs_no_gpu_and_the_path_is_picked_per_call(loss: Loss) -> None:
    script = f"""
import mlx.core as mx
first = mx.default_device()
mx.set_default_device(mx.cpu)
from mlx_distill import {loss.prefix} as loss
q, p = mx.array({FAR_Q}), mx.array({FAR_P})
values = [loss(q, p).item()]
mx.set_default_device(first)
values.append(loss(q, p).item())
with mx.stream(mx.cpu):
    values.append(loss(q, p).item())
assert max(values) - min(values) < 1e-5, values
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120, env=dict(os.environ))


def test_kd60_backward_leaves_the_logits_for_the_next_loss(backend: Backend) -> None:
    q, p = mx.array(FAR_Q), mx.array(FAR_P)
    before = bits(q), bits(p)

    def total(s: mx.array) -> mx.array:
        soft = kl_div_loss(s, p, reduction="sum", backend=backend)
        return soft + nn.losses.cross_entropy(s, mx.array([2]), reduction="sum")

    first, second = mx.grad(total)(q), mx.grad(total)(q)
    want = [[1.67333744, -0.0444652428, -1.27552382, -0.353348374]]
    assert to_float64(first) == pytest.approx(np.array(want), rel=1e-5)
    assert bits(first) == bits(second)
    assert (bits(q), bits(p)) == before


@pytest.mark.parametrize(
    ("student", "teacher"),
    [(mx.bfloat16, mx.float32), (mx.bfloat16, mx.float16), (mx.float16, mx.bfloat16)],
    ids=str,
)
def test_kd63_mixed_dtypes_are_refused_with_the_cast_that_helps(
    backend: Backend, student: mx.Dtype, teacher: mx.Dtype
) -> None:
    q, p = mx.array(FAR_Q).astype(student), mx.array(FAR_P).astype(teacher)
    with pytest.raises(DtypeMismatchError) as caught:
        kl_div_loss(q, p, backend=backend)
    for name in (caught.value.expected, caught.value.got, "astype"):
        assert name in str(caught.value)
    value = kl_div_loss(q, p.astype(student), backend=backend)
    assert value.item() == pytest.approx(2.15332819, rel=1e-2)
    gradient = mx.grad(lambda s: kl_div_loss(s, p.astype(student), reduction="sum"))(q)
    assert gradient.dtype == student
