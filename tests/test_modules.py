"""The losses as modules: inside a student, copied, saved, trained, and never a parameter."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlx.core as mx
import mlx.nn as nn
import pytest

from mlx_distill import JSDivLoss, KLDivLoss
from subjects import Loss, draw_logits, leaves

if TYPE_CHECKING:
    from collections.abc import Callable

    from mlx_distill import Backend


class Student(nn.Module):
    """A student that holds its loss, as the documentation shows."""

    def __init__(self, loss: KLDivLoss | JSDivLoss | None, vocabulary: int = 16) -> None:
        super().__init__()
        self.layer = nn.Linear(8, vocabulary)
        if loss is not None:
            self.loss = loss

    def __call__(self, x: mx.array, logits_p: mx.array) -> mx.array:
        return self.loss(self.layer(x), logits_p)


OPTIONS: dict[str, Any] = {
    "temperature": 2.5,
    "scale_by_t2": True,
    "reduction": "sum",
    "backend": "mlx",
}


def names(module: nn.Module) -> list[str]:
    return sorted(leaves(module.parameters()))


def test_a_loss_has_no_parameters(loss: Loss) -> None:
    module = loss.module(**OPTIONS)
    assert module.parameters() == {}
    assert module.trainable_parameters() == {}
    assert leaves(module.state) == {}


def test_a_loss_leaves_the_parameter_tree_of_its_student_unchanged(loss: Loss) -> None:
    with_loss, without = Student(loss.module()), Student(None)
    assert names(with_loss) == names(without) == ["layer.bias", "layer.weight"]
    assert sorted(leaves(with_loss.trainable_parameters())) == names(without)
    x, _ = draw_logits((4, 8))
    with_loss(x, mx.zeros((4, 16)))
    assert names(with_loss) == names(without)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))]
)
@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used"])
def test_a_loss_survives_copies_and_pickles(
    loss: Loss, copied: Callable[[Any], Any], *, used: bool
) -> None:
    q, p = draw_logits((4, 16))
    module = loss.module(**OPTIONS)
    want = loss.function(q, p, **OPTIONS)
    if used:
        assert mx.array_equal(module(q, p), want)
    twin = copied(module)
    assert type(twin) is loss.module
    assert {name: getattr(twin, name) for name in OPTIONS} == OPTIONS
    assert mx.array_equal(twin(q, p), want)


@pytest.mark.parametrize("used", [False, True], ids=["fresh", "used"])
def test_a_student_that_holds_a_loss_survives_copies_and_pickles(
    loss: Loss, backend: Backend, *, used: bool
) -> None:
    student = Student(loss.module(temperature=2.0, backend=backend))
    x, p = mx.random.normal((4, 8)), mx.random.normal((4, 16))
    if used:
        nn.value_and_grad(student, student)(x, p)
    want = student(x, p)
    for twin in (copy.deepcopy(student), pickle.loads(pickle.dumps(student))):
        assert mx.array_equal(twin(x, p), want)
        assert names(twin) == names(student)


@pytest.mark.parametrize("backend_name", ["auto", "metal", "cuda", "mlx"])
def test_any_backend_can_be_named_and_pickled_where_it_is_not_there(
    loss: Loss, backend_name: Backend
) -> None:
    module = pickle.loads(pickle.dumps(loss.module(backend=backend_name)))
    assert module.backend == backend_name


def test_a_loss_prints_its_options(loss: Loss) -> None:
    text = repr(loss.module(**OPTIONS))
    assert text.startswith(loss.module.__name__)
    for name, value in OPTIONS.items():
        assert f"{name}={value}" in text or f"{name}={value!r}" in text


def test_the_defaults_are_those_of_the_contract(loss: Loss) -> None:
    module = loss.module()
    assert module.temperature == 1.0
    assert module.scale_by_t2 is False
    assert module.reduction == "mean"
    assert module.backend == "auto"
    q, p = draw_logits((2, 3, 7))
    assert loss.function(q, p).shape == (2, 3)
    assert module(q, p).shape == ()


@pytest.mark.parametrize("option", OPTIONS)
def test_options_are_read_only(loss: Loss, option: str) -> None:
    module = loss.module()
    before = getattr(module, option)
    with pytest.raises(AttributeError):
        setattr(module, option, OPTIONS[option])
    assert getattr(module, option) == before


def test_a_student_with_a_loss_still_trains_freezes_and_casts(loss: Loss) -> None:
    student = Student(loss.module())
    student.eval()
    assert not student.training
    student.train()
    assert student.training
    student.freeze()
    assert leaves(student.trainable_parameters()) == {}
    student.unfreeze()
    assert len(leaves(student.trainable_parameters())) == 2
    student.set_dtype(mx.bfloat16)
    assert student.layer.weight.dtype == mx.bfloat16
    student.apply(mx.zeros_like)
    assert not student.layer.weight.astype(mx.float32).any()
    student.update({"layer": {"bias": mx.ones(16)}})
    assert student.layer.bias.sum().item() == 16.0
    student.loss.freeze()
    student.loss.set_dtype(mx.float16)
    student.loss.train(mode=False)
    value = student(mx.ones((4, 8), dtype=mx.bfloat16), mx.zeros((4, 16), dtype=mx.float32))
    assert value.dtype == mx.float32


def test_a_student_with_a_loss_saves_and_loads_the_same_weights(loss: Loss, tmp_path: Path) -> None:
    student = Student(loss.module())
    file = str(tmp_path / "student.safetensors")
    student.save_weights(file)
    saved = mx.load(file)
    assert isinstance(saved, dict)
    assert sorted(saved) == ["layer.bias", "layer.weight"]
    bare = Student(None)
    bare.load_weights(file)
    other = Student(loss.module())
    other.load_weights(file)
    assert mx.array_equal(other.layer.weight, student.layer.weight)
    assert mx.array_equal(bare.layer.weight, student.layer.weight)


def test_a_module_takes_weights_and_normalizer_by_position_and_by_name(
    loss: Loss, backend: Backend
) -> None:
    q, p = draw_logits((4, 16))
    weights = mx.array([1.0, 0.0, 2.0, 0.5])
    module = loss.module(backend=backend)
    want = loss.function(q, p, weights=weights, normalizer=9.0, reduction="mean", backend=backend)
    assert mx.array_equal(module(q, p, weights, 9.0), want)
    by_name = module(logits_q=q, logits_p=p, weights=weights, normalizer=9.0)
    assert mx.array_equal(by_name, want)


class Pair(nn.Module):
    """A student with a list of losses."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 16)
        self.losses = [KLDivLoss(), JSDivLoss()]


def test_a_list_of_losses_in_a_student_adds_no_parameters() -> None:
    pair = Pair()
    assert names(pair) == ["layer.bias", "layer.weight"]
    assert len(pickle.loads(pickle.dumps(pair)).losses) == 2
