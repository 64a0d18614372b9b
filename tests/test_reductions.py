"""Sum, mean and their denominators against float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np
import pytest

import oracle
from compare import assert_gradient, assert_value
from oracle import to_float64
from subjects import Loss, draw_logits, value_and_gradient
from tolerance import SUM_RTOL, reduction_tolerance

if TYPE_CHECKING:
    from mlx_distill import Backend, Reduction

WEIGHTS = [[1.0, 0.5, 0.0], [2.0, 1.0, 0.25]]


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize(
    ("reduction", "normalizer"), [("sum", None), ("mean", None), ("mean", 17.0)], ids=str
)
@pytest.mark.parametrize("vocabulary", [7, 4097], ids=lambda v: f"V{v}")
def test_reductions_match_float64(
    loss: Loss,
    backend: Backend,
    dtype: mx.Dtype,
    vocabulary: int,
    reduction: Reduction,
    normalizer: float | None,
    *,
    weighted: bool,
) -> None:
    q, p = draw_logits((2, 3, vocabulary), std=5.0, dtype=dtype)
    weights = mx.array(WEIGHTS) if weighted else mx.ones((2, 3))
    found = oracle.rows(loss.name, q, p, temperature=0.7, scale_by_t2=True)
    w = to_float64(weights)
    want = oracle.reduce_rows(
        found, reduction=reduction, weights=w, normalizer=normalizer, cotangent=-2.0
    )
    got = value_and_gradient(
        loss.function,
        q,
        p,
        weights=weights if weighted else None,
        normalizer=normalizer,
        reduction=reduction,
        temperature=0.7,
        scale_by_t2=True,
        backend=backend,
    )
    assert got.value.dtype == mx.float32
    assert got.value.shape == ()
    denominator = 1.0 if reduction == "sum" else (normalizer or float(w.sum()))
    allowed = reduction_tolerance(float(want.value), w, denominator)
    assert float(got.value64) == pytest.approx(float(want.value), rel=0, abs=allowed)
    assert_gradient(loss, got.gradient, found, want.row_cotangents)


def test_none_applies_weights_per_row(loss: Loss, backend: Backend, dtype: mx.Dtype) -> None:
    q, p = draw_logits((2, 3, 11), dtype=dtype)
    weights = mx.array(WEIGHTS)
    got = value_and_gradient(loss.function, q, p, weights=weights, backend=backend)
    found = oracle.rows(loss.name, q, p)
    cotangent = np.array([[-2.0, 0.5, 3.0], [1.0, -2.0, 0.5]])
    want = oracle.reduce_rows(
        found, reduction="none", weights=to_float64(weights), cotangent=cotangent
    )
    assert got.value.dtype == dtype
    assert_value(got.value, want.value)
    assert_gradient(loss, got.gradient, found, want.row_cotangents)


def test_ones_as_weights_change_nothing(loss: Loss, backend: Backend) -> None:
    q, p = draw_logits((2, 3, 11))
    for reduction in ("none", "sum", "mean"):
        plain = loss.function(q, p, reduction=reduction, backend=backend)
        ones = loss.function(q, p, weights=mx.ones((2, 3)), reduction=reduction, backend=backend)
        assert mx.allclose(plain, ones, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("rows", [100_000, 1_000_003])
def test_sums_over_many_rows_stay_within_1e_5(
    loss: Loss, backend: Backend, rows: int, *, weighted: bool
) -> None:
    q, p = draw_logits((rows, 2), std=1.0)
    w = np.resize(np.array([0.3, 1.7, 0.9], dtype=np.float32), rows)
    weights = mx.array(w) if weighted else None
    found = oracle.rows(loss.name, q, p)
    counted = w.astype(np.float64) if weighted else None
    for reduction in ("sum", "mean"):
        got = loss.function(q, p, weights=weights, reduction=reduction, backend=backend)
        want = oracle.reduce_rows(found, reduction=reduction, weights=counted).value
        assert got.item() == pytest.approx(float(want), rel=SUM_RTOL)


def test_a_mean_over_half_precision_rows_never_passes_through_half_precision(
    loss: Loss, backend: Backend
) -> None:
    q, p = draw_logits((4096, 4), std=3.0, dtype=mx.bfloat16)
    got = loss.function(q, p, reduction="mean", backend=backend)
    rounded = loss.function(q, p, backend=backend).astype(mx.float32).mean()
    want = float(oracle.rows(loss.name, q, p).value.mean())
    assert got.item() == pytest.approx(want, rel=1e-5)
    assert rounded.item() != pytest.approx(want, rel=1e-5)


def test_module_and_function_reduce_alike(loss: Loss, backend: Backend) -> None:
    q, p = draw_logits((2, 3, 11))
    weights = mx.array(WEIGHTS)
    for reduction in ("none", "sum", "mean"):
        module = loss.module(reduction=reduction, temperature=2.0, backend=backend)
        want = loss.function(
            q, p, weights=weights, reduction=reduction, temperature=2.0, backend=backend
        )
        assert mx.array_equal(module(q, p, weights), want)
    assert loss.module(backend=backend)(q, p).shape == ()
