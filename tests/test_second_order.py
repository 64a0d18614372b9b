"""Second derivatives: right, or refused by a DistillError; never another number."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

import oracle
from edge_rows import ORDINARY, POISON, VALID, stack
from oracle import Matrix, to_float64
from subjects import Loss, draw_logits

if TYPE_CHECKING:
    from mlx_distill import Backend

Product = Callable[[mx.array, mx.array, mx.array], mx.array]

TEMPERATURE = 0.7
STEP = 2.0**-7
ROUTES = ("grad(grad)", "jvp(grad)", "grad(jvp)", "compiled", "vmap")


def gradient_of(
    loss: Loss, backend: Backend, weights: mx.array | None = None
) -> Callable[[mx.array, mx.array], mx.array]:
    def total(q: mx.array, p: mx.array) -> mx.array:
        return loss.function(
            q, p, temperature=TEMPERATURE, weights=weights, reduction="sum", backend=backend
        )

    return mx.grad(total)


def product(loss: Loss, backend: Backend, route: str) -> Product:
    """Return the Hessian of the summed loss times a direction, by one route."""
    first = gradient_of(loss, backend)

    def reverse(q: mx.array, p: mx.array, v: mx.array) -> mx.array:
        gradient: mx.array = mx.grad(lambda a: (first(a, p) * v).sum())(q)
        return gradient

    def forward(q: mx.array, p: mx.array, v: mx.array) -> mx.array:
        return mx.jvp(lambda a: first(a, p), [q], [v])[1][0]

    def slope(q: mx.array, p: mx.array, v: mx.array) -> mx.array:
        return mx.jvp(
            lambda a: loss.function(
                a, p, temperature=TEMPERATURE, reduction="sum", backend=backend
            ),
            [q],
            [v],
        )[1][0]

    return {
        "grad(grad)": reverse,
        "jvp(grad)": forward,
        "grad(jvp)": mx.grad(slope),
        "compiled": mx.compile(reverse),
        "vmap": lambda q, p, v: mx.vmap(reverse)(q[:, None], p[:, None], v[:, None])[:, 0],
    }[route]


def curvature(loss: Loss, q: mx.array, p: mx.array, direction: mx.array) -> Matrix:
    """Return the slope of the oracle's gradient along `direction`, by central differences."""

    def gradient(at: mx.array) -> Matrix:
        return oracle.rows(loss.name, at, p, temperature=TEMPERATURE).gradient

    return (gradient(q + STEP * direction) - gradient(q - STEP * direction)) / (2 * STEP)


def assert_right_or_refused(run: Callable[[], mx.array], want: Matrix, rows: int) -> None:
    try:
        got = run()
        mx.eval(got)
    except ValueError as refused:
        assert "Not implemented for CustomKernel" in str(refused)
    else:
        assert to_float64(got)[:rows] == pytest.approx(want, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("route", ROUTES)
def test_hessian_products_are_right_or_refused(loss: Loss, backend: Backend, route: str) -> None:
    q, p = draw_logits((3, 7), std=1.0)
    v = mx.array(np.resize([1.0, -0.5, 0.25, 0.0, 2.0], (3, 7)).astype(np.float32))
    run = product(loss, backend, route)
    assert_right_or_refused(lambda: run(q, p, v), curvature(loss, q, p, v), 3)


@pytest.mark.parametrize("route", ["grad(grad)", "compiled"])
def test_hessian_products_of_many_rows_are_right_or_refused(
    loss: Loss, backend: Backend, route: str
) -> None:
    # More rows than one chunk holds on a CPU.
    q, p = draw_logits((512, 1000), std=1.0)
    run = product(loss, backend, route)
    want = curvature(loss, q[:3], p[:3], q[:3])
    assert_right_or_refused(lambda: run(q, p, q), want, 3)


@pytest.mark.parametrize("case", ["masked_in_both", "masked_in_teacher", "underflow_in_both"])
def test_hessian_products_at_edges_are_right_or_refused(
    loss: Loss, backend: Backend, case: str
) -> None:
    q, p = stack([ORDINARY, VALID[case]], mx.float32)
    v = mx.array([[1.0, -0.5, 0.25, 2.0], [1.0, -0.5, 0.25, 2.0]])
    run = product(loss, backend, "grad(grad)")
    assert_right_or_refused(lambda: run(q, p, v), curvature(loss, q, p, v), 2)


@pytest.mark.parametrize("case", POISON)
def test_poison_of_weight_zero_stays_out_of_second_derivatives(
    loss: Loss, backend: Backend, case: str
) -> None:
    q, p = stack([ORDINARY, POISON[case]], mx.float32)
    v = mx.array([[1.0, -0.5, 0.25, 2.0], [1.0, -0.5, 0.25, 2.0]])
    first = gradient_of(loss, backend, mx.array([1.0, 0.0]))
    want = curvature(loss, q[:1], p[:1], v[:1])
    whole = np.concatenate([want, np.zeros((1, 4))])

    def run() -> mx.array:
        gradient: mx.array = mx.grad(lambda a: (first(a, p) * v).sum())(q)
        return gradient

    assert_right_or_refused(run, whole, 2)


def test_gradient_penalty_of_half_precision_is_right_or_refused(
    loss: Loss, backend: Backend, dtype: mx.Dtype
) -> None:
    q, p = draw_logits((3, 7), std=1.0, dtype=dtype)
    first = gradient_of(loss, backend)
    found = oracle.rows(loss.name, q, p, temperature=TEMPERATURE)
    direction = mx.array(2 * found.gradient.astype(np.float32))
    want = curvature(loss, q.astype(mx.float32), p.astype(mx.float32), direction)
    try:
        got = mx.grad(lambda a: first(a, p).astype(mx.float32).square().sum())(q)
        mx.eval(got)
    except ValueError as refused:
        assert "Not implemented for CustomKernel" in str(refused)
    else:
        assert got.dtype == dtype
        assert to_float64(got) == pytest.approx(want, rel=3e-2, abs=3e-2)


def test_second_derivative_in_the_cotangent_is_the_gradient(loss: Loss, backend: Backend) -> None:
    q, p = draw_logits((3, 7), std=1.0)
    v, _ = draw_logits((3, 7), std=1.0, seed=1)

    def pulled(c: mx.array) -> mx.array:
        run = mx.vjp(
            lambda a: loss.function(a, p, temperature=TEMPERATURE, backend=backend), [q], [c]
        )
        return (run[1][0] * v).sum()

    found = oracle.rows(loss.name, q, p, temperature=TEMPERATURE)
    want = (found.gradient * to_float64(v)).sum(axis=-1)
    assert_right_or_refused(lambda: mx.grad(pulled)(mx.ones(3)), want, 3)
