"""Transforms of MLX over the losses: right, or a loud error; never another number."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

import oracle
from compare import assert_gradient, assert_value
from edge_rows import ORDINARY, POISON, stack
from mlx_distill import DistillError
from oracle import number, to_float64
from subjects import Loss, backends, draw_logits

if TYPE_CHECKING:
    from mlx_distill import Backend

AXES = pytest.mark.parametrize("axis", [0, 1], ids=["axis0", "axis1"])
TEMPERATURE = 0.7


def along(x: mx.array, axis: int) -> mx.array:
    """Return `x` with its first axis at `axis`."""
    return mx.moveaxis(x, 0, axis)


def per_row(loss: Loss, backend: Backend) -> Callable[[mx.array, mx.array], mx.array]:
    return lambda q, p: loss.function(q, p, temperature=TEMPERATURE, backend=backend)


def summed(loss: Loss, backend: Backend) -> Callable[[mx.array, mx.array], mx.array]:
    return lambda q, p: loss.function(
        q, p, temperature=TEMPERATURE, reduction="sum", backend=backend
    )


@AXES
def test_vmap_gives_what_the_batch_gives(loss: Loss, plain: Backend, axis: int) -> None:
    q, p = draw_logits((4, 3, 7))
    run = mx.vmap(
        lambda a, b: loss.function(a, b, temperature=TEMPERATURE, backend=plain),
        in_axes=(axis, axis),
    )
    got = run(along(q, axis), along(p, axis))
    assert_value(got, oracle.rows(loss.name, q, p, temperature=TEMPERATURE).value)


def test_vmap_over_the_student_only_broadcasts_the_teacher(loss: Loss, plain: Backend) -> None:
    q, p = draw_logits((4, 3, 7))
    got = mx.vmap(lambda a, b: loss.function(a, b, backend=plain), in_axes=(0, None))(q, p[0])
    want = oracle.rows(loss.name, q, mx.broadcast_to(p[0], q.shape))
    assert_value(got, want.value)


def test_nested_vmap_gives_what_the_batch_gives(loss: Loss, plain: Backend) -> None:
    q, p = draw_logits((2, 4, 3, 7))
    got = mx.vmap(mx.vmap(lambda a, b: loss.function(a, b, backend=plain)))(q, p)
    assert_value(got, oracle.rows(loss.name, q, p).value)


@AXES
def test_vmap_of_a_gradient_is_the_gradient(loss: Loss, plain: Backend, axis: int) -> None:
    q, p = draw_logits((4, 3, 7))
    gradient = mx.vmap(mx.grad(summed(loss, plain)), in_axes=(axis, axis))
    got = gradient(along(q, axis), along(p, axis))
    want = oracle.rows(loss.name, q, p, temperature=TEMPERATURE)
    assert_gradient(loss, got, want, np.ones((4, 3)))


@AXES
def test_gradient_of_a_vmap_is_the_gradient(loss: Loss, plain: Backend, axis: int) -> None:
    q, p = draw_logits((4, 3, 7))
    run = mx.vmap(summed(loss, plain), in_axes=(axis, axis))
    scale = mx.array([1.0, -2.0, 0.0, 3.0])

    def total(a: mx.array, b: mx.array) -> mx.array:
        return (run(a, b) * scale).sum()

    got = mx.grad(total)(along(q, axis), along(p, axis))
    want = oracle.rows(loss.name, q, p, temperature=TEMPERATURE)
    cotangent = np.repeat(to_float64(scale)[:, None], 3, axis=1)
    assert_gradient(loss, mx.moveaxis(got, axis, 0), want, cotangent)
    teacher = mx.grad(total, argnums=1)(along(q, axis), along(p, axis))
    assert not to_float64(teacher).any()


def test_jvp_is_the_gradient_along_the_tangent(loss: Loss, plain: Backend) -> None:
    q, p = draw_logits((3, 7))
    tangent, other = draw_logits((3, 7), std=1.0, seed=1)
    values, slopes = mx.jvp(
        lambda a, b: loss.function(a, b, temperature=TEMPERATURE, backend=plain),
        [q, p],
        [tangent, other],
    )
    found = oracle.rows(loss.name, q, p, temperature=TEMPERATURE)
    assert_value(values[0], found.value)
    want = (found.gradient * to_float64(tangent)).sum(axis=-1)
    assert to_float64(slopes[0]) == pytest.approx(want, rel=1e-5, abs=1e-6)


def test_jvp_along_the_teacher_alone_is_zero(loss: Loss, plain: Backend) -> None:
    q, p = draw_logits((3, 7))
    _, slopes = mx.jvp(lambda b: loss.function(q, b, backend=plain), [p], [mx.ones_like(p)])
    assert not to_float64(slopes[0]).any()


@pytest.mark.parametrize("transform", ["vmap", "grad(vmap)", "vmap(grad)", "jvp"])
def test_transforms_of_many_rows_are_right_or_loud(
    loss: Loss, plain: Backend, transform: str
) -> None:
    q, p = draw_logits((2, 1024, 1000), std=1.0)
    run = summed(loss, plain)
    found = oracle.rows(loss.name, q, p, temperature=TEMPERATURE)
    total = found.value.sum(axis=-1)
    try:
        if transform == "vmap":
            got, want = mx.vmap(run)(q, p), total
        elif transform == "jvp":
            slopes = mx.jvp(lambda a: run(a, p), [q], [q])[1]
            got, want = slopes[0], np.asarray((found.gradient * to_float64(q)).sum())
        elif transform == "vmap(grad)":
            got, want = mx.vmap(mx.grad(run))(q, p), found.gradient
        else:
            got = mx.grad(lambda a: mx.vmap(run)(a, p).sum())(q)
            want = found.gradient
        mx.eval(got)
    except (DistillError, ValueError) as refused:
        if not isinstance(refused, DistillError):
            assert "Not implemented for Depends" in str(refused)
    else:
        assert to_float64(got) == pytest.approx(want, rel=2e-5, abs=1e-6)


def test_half_precision_maps_and_pushes_forward_as_float32_does(
    loss: Loss, plain: Backend, dtype: mx.Dtype
) -> None:
    q, p = draw_logits((4, 3, 7), dtype=dtype)
    found = oracle.rows(loss.name, q, p, temperature=TEMPERATURE)
    run = per_row(loss, plain)
    mapped = mx.vmap(run)(q, p)
    assert mapped.dtype == dtype
    assert_value(mapped, found.value)
    gradient = mx.vmap(mx.grad(lambda a, b: run(a, b).astype(mx.float32).sum()))(q, p)
    assert gradient.dtype == dtype
    assert_gradient(loss, gradient, found, np.ones((4, 3)))
    values, slopes = mx.jvp(lambda a: run(a, p), [q], [q])
    assert values[0].dtype == slopes[0].dtype == dtype
    want = (found.gradient * to_float64(q)).sum(axis=-1)
    assert to_float64(slopes[0]) == pytest.approx(want, rel=2.0**-7, abs=2.0**-9)


def test_vmap_maps_weights_and_keeps_each_mean_apart(loss: Loss, plain: Backend) -> None:
    q, p = draw_logits((4, 3, 7))
    weights = mx.array(np.resize([1.0, 0.0, 2.0, 0.5], (4, 3)).astype(np.float32))

    def mean(a: mx.array, b: mx.array, w: mx.array) -> mx.array:
        return loss.function(a, b, weights=w, reduction="mean", backend=plain)

    got = mx.vmap(mean)(q, p, weights)
    want = [mean(q[i], p[i], weights[i]).item() for i in range(4)]
    assert to_float64(got) == pytest.approx(np.array(want), rel=1e-6)
    gradient = mx.vmap(mx.grad(mean))(q, p, weights)
    for i in range(4):
        assert mx.allclose(gradient[i], mx.grad(mean)(q[i], p[i], weights[i]), rtol=1e-6)


def test_vmap_over_the_teacher_only_broadcasts_the_student(loss: Loss, plain: Backend) -> None:
    q, p = draw_logits((4, 3, 7))

    def total(student: mx.array) -> mx.array:
        return mx.vmap(per_row(loss, plain), in_axes=(None, 0))(student, p).sum()

    wide = mx.broadcast_to(q[0], q.shape)
    found = oracle.rows(loss.name, wide, p, temperature=TEMPERATURE)
    assert number(total(q[0])) == pytest.approx(found.value.sum(), rel=1e-6)
    want = found.gradient.sum(axis=0)
    assert to_float64(mx.grad(total)(q[0])) == pytest.approx(want, rel=1e-5, abs=1e-6)


def test_vmap_keeps_poison_in_its_own_row(loss: Loss, plain: Backend) -> None:
    q, p = stack([ORDINARY, POISON["nan_in_student"], ORDINARY, ORDINARY], mx.float32)
    q, p = q.reshape(2, 2, 4), p.reshape(2, 2, 4)
    got = mx.vmap(per_row(loss, plain))(q, p)
    assert_value(got, oracle.rows(loss.name, q, p, temperature=TEMPERATURE).value)


@pytest.mark.skipif(len(backends()) == 1, reason="needs a GPU")
@pytest.mark.parametrize("transform", ["vmap", "jvp"])
def test_kernels_refuse_what_they_cannot_transform(loss: Loss, transform: str) -> None:
    q, p = draw_logits((4, 3, 7))
    run = per_row(loss, backends()[-1])
    with pytest.raises(ValueError, match="Not implemented for CustomKernel"):
        mx.eval(mx.vmap(run)(q, p) if transform == "vmap" else mx.jvp(run, [q, p], [q, p]))


def test_shapeless_compile_raises_the_error_of_mlx(loss: Loss, backend: Backend) -> None:
    run = mx.compile(lambda a, b: loss.function(a, b, backend=backend), shapeless=True)
    q, p = draw_logits((2, 5))
    with pytest.raises((ValueError, RuntimeError), match=r"Custom\w+ cannot infer output"):
        mx.eval(run(q, p))


def test_export_raises_the_error_of_mlx(loss: Loss, backend: Backend, tmp_path: Path) -> None:
    q, p = draw_logits((2, 5))
    with pytest.raises(
        (ValueError, RuntimeError), match="Unable to serialize primitive CustomTransforms"
    ):
        mx.export_function(
            str(tmp_path / "loss.mlxfn"), lambda a, b: loss.function(a, b, backend=backend), q, p
        )


def test_threads_may_call_one_module_at_once(loss: Loss, backend: Backend) -> None:
    module = loss.module(reduction="none", temperature=TEMPERATURE, backend=backend)
    numbers = [[np.array(x) for x in draw_logits((8, 4097), seed=seed)] for seed in range(4)]
    wants = [
        oracle.rows(loss.name, mx.array(q), mx.array(p), temperature=TEMPERATURE)
        for q, p in numbers
    ]
    start = threading.Barrier(len(numbers))
    found: dict[int, list[tuple[mx.array, mx.array]]] = {}

    def work(index: int) -> None:
        # Arrays and their streams belong to the thread that makes them.
        q, p = (mx.array(x) for x in numbers[index])
        start.wait()
        for _ in range(5):
            values, gradients = mx.vjp(lambda s: module(s, p), [q], [mx.ones(8)])
            mx.eval(values, gradients)
            found.setdefault(index, []).append((values[0], gradients[0]))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(numbers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    for index, want in enumerate(wants):
        assert len(found[index]) == 5
        for value, gradient in found[index]:
            assert_value(value, want.value)
            assert_gradient(loss, gradient, want, np.ones(8))


def test_a_cpu_stream_is_served_wherever_the_default_is(loss: Loss) -> None:
    with mx.stream(mx.cpu):
        q, p = draw_logits((3, 7))
        got = loss.function(q, p)
        mx.eval(got)
    assert_value(got, oracle.rows(loss.name, q, p).value)
