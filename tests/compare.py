"""Comparisons with the oracle within the promised tolerances."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

import oracle
from oracle import Matrix
from subjects import Loss, Options, Outcome, cotangent_like, value_and_gradient
from tolerance import (
    gradient_norm_tolerance,
    gradient_tolerance,
    largest_finite,
    value_tolerance,
)


def assert_within(got: Matrix, want: Matrix, allowed: Matrix, what: str) -> None:
    """Fail unless `got` is within `allowed` of `want`; NaN and infinities must agree exactly."""
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    with np.errstate(all="ignore"):
        error = np.where(np.isfinite(want) & np.isfinite(got), np.abs(got - want), np.inf)
        same = (got == want) | (np.isnan(got) & np.isnan(want))
        excess = np.where(same, 0.0, error / allowed)
    if excess.size and not excess.max() <= 1:
        worst = int(np.argmax(excess))
        at = tuple(map(int, np.unravel_index(worst, excess.shape)))
        pair = f"got {got.flat[worst]:.9g}, expected {want.flat[worst]:.9g}"
        times = f"{excess.flat[worst]:.3g} times the tolerance"
        raise AssertionError(f"{what} at {at}: {pair}, {times}")


def assert_value(got: mx.array, want: Matrix, what: str = "value") -> None:
    """Fail unless row values are within tolerance; above the dtype's range they must be +inf."""
    rounded = np.where(np.abs(want) > largest_finite(got.dtype), np.copysign(np.inf, want), want)
    assert_within(oracle.to_float64(got), rounded, value_tolerance(rounded, got.dtype), what)


def assert_gradient(
    loss: Loss, got: mx.array, found: oracle.Rows, cotangent: Matrix, what: str = "gradient"
) -> None:
    """Fail unless each element, and for KL each row in L2, is within tolerance."""
    want = oracle.reduce_rows(found, reduction="none", cotangent=cotangent).gradient
    dtype, slope = got.dtype, found.slope
    allowed = gradient_tolerance(want, np.nan_to_num(found.largest), cotangent, slope, dtype)
    got64 = oracle.to_float64(got)
    assert_within(got64, want, allowed, what)
    if loss.name == "kl":
        valid = np.asarray(~np.isnan(want).any(axis=-1))
        error = np.linalg.norm(np.where(valid[..., None], got64 - want, 0.0), axis=-1)
        norm = gradient_norm_tolerance(np.nan_to_num(want), cotangent, slope, dtype)
        assert_within(error, np.zeros_like(error), norm, f"L2 of the {what}")


def assert_matches_oracle(
    loss: Loss,
    logits_q: mx.array,
    logits_p: mx.array,
    options: Options,
    *,
    cotangent: mx.array | None = None,
    labels: Sequence[str] = (),
) -> Outcome:
    """Fail unless value and gradient of the per-row loss agree with float64."""
    got = value_and_gradient(loss.function, logits_q, logits_p, cotangent, **options)
    assert got.value.shape == logits_q.shape[:-1]
    assert got.value.dtype == got.gradient.dtype == logits_q.dtype
    found = oracle.rows(
        loss.name,
        logits_q,
        logits_p,
        temperature=options.get("temperature", 1.0),
        scale_by_t2=options.get("scale_by_t2", False),
    )
    given = cotangent_like(got.value) if cotangent is None else cotangent
    rows = f"rows are {list(labels)}, " if labels else ""
    assert_value(got.value, found.value, f"{rows}value")
    assert_gradient(loss, got.gradient, found, oracle.to_float64(given), f"{rows}gradient")
    return got
