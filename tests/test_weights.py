"""Derivatives with respect to weights, the teacher's zero, and accumulation over batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

import oracle
from compare import assert_gradient
from edge_rows import ORDINARY, POISON, VALID, stack
from mlx_distill import kl_div_loss
from oracle import to_float64
from subjects import INF, Loss, draw_logits

if TYPE_CHECKING:
    from mlx_distill import Backend, Reduction

reductions = pytest.mark.parametrize("reduction", ["none", "sum", "mean"])


def weights_gradient(
    loss: Loss,
    q: mx.array,
    p: mx.array,
    weights: mx.array,
    reduction: Reduction,
    normalizer: float | None,
    backend: Backend,
) -> mx.array:
    def run(w: mx.array) -> mx.array:
        value = loss.function(
            q, p, weights=w, reduction=reduction, normalizer=normalizer, backend=backend
        )
        return -2 * value.sum()

    gradient: mx.array = mx.grad(run)(weights)
    return gradient


@pytest.mark.parametrize(
    ("reduction", "normalizer"),
    [("none", None), ("sum", None), ("mean", None), ("mean", 3.0)],
    ids=str,
)
@pytest.mark.parametrize("weights", [[1.0, 0.5, 2.0], [1.0, 0.0, 2.0]], ids=str)
def test_weight_gradient_is_what_the_row_adds(
    loss: Loss,
    backend: Backend,
    reduction: Reduction,
    normalizer: float | None,
    weights: list[float],
) -> None:
    q, p = draw_logits((3, 11))
    w = mx.array(weights)
    got = weights_gradient(loss, q, p, w, reduction, normalizer, backend)
    want = oracle.reduce_rows(
        oracle.rows(loss.name, q, p),
        reduction=reduction,
        weights=to_float64(w),
        normalizer=normalizer,
        cotangent=-2.0,
    )
    assert to_float64(got) == pytest.approx(want.weights_gradient, rel=1e-5, abs=1e-6)


@reductions
@pytest.mark.parametrize("case", [*POISON, "disjoint"])
def test_weight_zero_row_that_is_not_finite_counts_as_zero_for_its_weight(
    loss: Loss, backend: Backend, reduction: Reduction, case: str
) -> None:
    q, p = stack([ORDINARY, (POISON | VALID)[case], ORDINARY], mx.float32)
    weights = mx.array([2.0, 0.0, 1.0])
    got = weights_gradient(loss, q, p, weights, reduction, None, backend)
    want = oracle.reduce_rows(
        oracle.rows(loss.name, q, p),
        reduction=reduction,
        weights=to_float64(weights),
        cotangent=-2.0,
    )
    assert np.isfinite(want.weights_gradient).all()
    assert to_float64(got) == pytest.approx(want.weights_gradient, rel=1e-5, abs=1e-6)


@reductions
@pytest.mark.parametrize("weights_dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
def test_weight_gradient_has_the_dtype_of_the_weights(
    loss: Loss, backend: Backend, dtype: mx.Dtype, reduction: Reduction, weights_dtype: mx.Dtype
) -> None:
    q, p = draw_logits((3, 11), dtype=dtype)
    weights = mx.array([1.0, 0.5, 2.0]).astype(weights_dtype)
    got = weights_gradient(loss, q, p, weights, reduction, None, backend)
    assert got.dtype == weights_dtype
    want = oracle.reduce_rows(
        oracle.rows(loss.name, q, p),
        reduction=reduction,
        weights=to_float64(weights),
        cotangent=-2.0,
    )
    assert to_float64(got) == pytest.approx(want.weights_gradient, rel=2e-2, abs=2e-2)


@reductions
@pytest.mark.parametrize(
    "weights",
    [
        mx.array([True, False, True]),
        mx.array([2, 0, 1]),
        mx.array([2, 0, 1], dtype=mx.uint8),
        mx.array([2, 0, 1], dtype=mx.int64),
    ],
    ids=lambda w: str(w.dtype),
)
def test_bool_and_integer_weights_count_as_their_numbers(
    loss: Loss, backend: Backend, reduction: Reduction, weights: mx.array
) -> None:
    q, p = draw_logits((3, 11))
    got = loss.function(q, p, weights=weights, reduction=reduction, backend=backend)
    as_floats = weights.astype(mx.float32)
    want = loss.function(q, p, weights=as_floats, reduction=reduction, backend=backend)
    assert mx.array_equal(got, want)


@pytest.mark.parametrize("kind", [mx.bool_, mx.int32], ids=str)
def test_bool_and_integer_weights_get_a_zero_cotangent(
    loss: Loss, backend: Backend, kind: mx.Dtype
) -> None:
    q, p = draw_logits((3, 11))

    def run(student: mx.array, w: mx.array) -> mx.array:
        return loss.function(student, p, weights=w, reduction="mean", backend=backend)

    weights = mx.array([1, 0, 1]).astype(kind)
    _, (for_q, for_weights) = mx.vjp(run, [q, weights], [mx.array(1.0)])
    assert to_float64(for_q).any()
    assert not to_float64(for_weights).any()


def test_a_normalizer_is_a_constant_to_the_gradient(loss: Loss, backend: Backend) -> None:
    q, p = draw_logits((3, 11))

    def run(n: mx.array) -> mx.array:
        return loss.function(q, p, normalizer=n, reduction="mean", backend=backend)

    assert mx.grad(run)(mx.array(5.0)).item() == 0.0


def test_a_normalizer_may_be_a_number_or_a_0d_array_of_any_real_dtype(
    loss: Loss, backend: Backend
) -> None:
    q, p = draw_logits((3, 11))
    total = loss.function(q, p, reduction="sum", backend=backend).item()
    for n in (8, 8.0, mx.array(8), mx.array(8.0), mx.array(8.0, dtype=mx.bfloat16)):
        value = loss.function(q, p, normalizer=n, reduction="mean", backend=backend)
        assert value.dtype == mx.float32
        assert value.item() == pytest.approx(total / 8, rel=1e-6)


@reductions
@pytest.mark.parametrize("case", ["ordinary", *VALID, *POISON])
def test_teacher_gets_zero_gradient(
    loss: Loss, backend: Backend, dtype: mx.Dtype, reduction: Reduction, case: str
) -> None:
    row = ({"ordinary": ORDINARY} | VALID | POISON)[case]
    q, p = stack([ORDINARY, row], dtype)

    def run(teacher: mx.array) -> mx.array:
        value = loss.function(q, teacher, reduction=reduction, backend=backend)
        return value.astype(mx.float32).sum()

    gradient = mx.grad(run)(p)
    assert gradient.dtype == dtype
    assert gradient.shape == p.shape
    assert not to_float64(gradient).any()


def test_micro_batches_with_a_normalizer_add_up_to_the_whole_batch(
    loss: Loss, backend: Backend, dtype: mx.Dtype
) -> None:
    q, p = draw_logits((64, 5), dtype=dtype)
    weights = mx.array(np.resize([1.0, 1.0, 0.0, 0.5], 64).astype(np.float32))
    tokens = weights.sum()

    def run(student: mx.array, rows: slice, denominator: mx.array | None) -> mx.array:
        return loss.function(
            student,
            p[rows],
            weights=weights[rows],
            normalizer=denominator,
            reduction="mean",
            backend=backend,
        )

    step = mx.value_and_grad(run)
    whole, whole_gradient = step(q, slice(None), None)
    parts = [step(q[rows], rows, tokens) for rows in (slice(0, 4), slice(4, 64))]
    assert sum(part.item() for part, _ in parts) == pytest.approx(whole.item(), rel=1e-6)
    gradient = mx.concatenate([part for _, part in parts])
    assert to_float64(gradient) == pytest.approx(to_float64(whole_gradient), rel=1e-5, abs=1e-9)


def test_weights_reach_the_logits_gradient_as_cotangents_do(loss: Loss, backend: Backend) -> None:
    q, p = draw_logits((3, 11))
    weights = mx.array([1.5, -0.5, 0.0])
    found = oracle.rows(loss.name, q, p)

    def run(student: mx.array) -> mx.array:
        return loss.function(student, p, weights=weights, reduction="sum", backend=backend)

    assert_gradient(loss, mx.grad(run)(q), found, to_float64(weights))


def test_infinite_row_gives_an_infinite_slope_to_its_weight(backend: Backend) -> None:
    q, p = stack([ORDINARY, VALID["disjoint"]], mx.float32)

    def run(w: mx.array) -> mx.array:
        return kl_div_loss(q, p, weights=w, reduction="sum", backend=backend)

    assert mx.grad(run)(mx.array([1.0, 1.0]))[1].item() == INF
