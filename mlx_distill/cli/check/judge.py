"""Results against float64: what was missed, and how much of the tolerance was used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from mlx_distill.cli.check.calls import Call, Outcome, Subject, run_call
from mlx_distill.cli.check.oracle import LossName, Matrix, as_float64, as_integers
from mlx_distill.cli.check.tolerance import expect, shares

_SHORT = 4  # entries of a row that is shown whole


class Miss(NamedTuple):
    """The worst entry of a row that is out of tolerance."""

    what: str
    row: str
    at: tuple[int, ...]  # row, entry
    got: float
    expected: float
    share: float  # of the tolerance; inf where nan, an infinity or an exact 0 is missed


class Verdict(NamedTuple):
    """What one case came to."""

    rows: int  # compared
    value: float | None = None  # worst error as a share of the tolerance, if there is one
    gradient: float | None = None
    misses: tuple[Miss, ...] = ()
    error: str = ""  # why nothing could be compared
    not_run: str = ""  # what this machine lacks


def worst(shares_found: Iterable[float | None]) -> float | None:
    """The largest of them, None if there is none."""
    return max((share for share in shares_found if share is not None), default=None)


def run_and_judge(subject: Subject, call: Call) -> Verdict:
    """Run one call and compare it with float64."""
    before = [as_integers(x).copy() for x in (call.logits_q, call.logits_p)]
    verdict = judge(subject.loss, call, run_call(subject, call))
    after = [as_integers(x) for x in (call.logits_q, call.logits_p)]
    if not all(map(np.array_equal, before, after)):
        return verdict._replace(error="the logits were written to")
    return verdict


def judge(loss: LossName, call: Call, outcome: Outcome) -> Verdict:
    """Compare the outcome of a call with float64."""
    rows = max(1, len(call.labels))
    logits = call.logits_q
    error = _form("value", outcome.value, *_value_form(call))
    error = error or _form("gradient", outcome.gradient, logits.shape, logits.dtype)
    if not error and mx.any(outcome.teacher_gradient != 0):
        error = "the gradient in logits_p is not 0"
    if error:
        return Verdict(rows, error=error)
    flat = (len(call.labels), logits.shape[-1])
    q, p = (as_float64(x).reshape(flat) for x in (logits, call.logits_p))
    value = as_float64(outcome.value).reshape(-1)
    gradient = as_float64(outcome.gradient).reshape(flat)
    want = expect(loss, call, q, p)

    def describe(row: int) -> str:
        if flat[1] > _SHORT:
            return call.labels[row]
        return f"{call.labels[row]}: q {_text(*q[row])}, p {_text(*p[row])}"

    of_value = shares(value, want.value, want.value_tolerance)
    of_value[(value < 0) | (value > want.ceiling)] = np.inf
    of_gradient = shares(gradient, want.gradient, want.gradient_tolerance)
    describe_value = describe if call.reduction == "none" else lambda _: call.reduction
    misses = _misses("value", describe_value, value, want.value, of_value)
    misses += _misses("gradient", describe, gradient, want.gradient, of_gradient)
    largest = _largest(of_gradient)
    if loss == "kl":
        with np.errstate(invalid="ignore"):
            error_of = np.where(np.isnan(want.gradient), 0.0, gradient - want.gradient)
        norm = np.linalg.norm(error_of, axis=-1)
        of_norm = shares(norm, np.zeros_like(norm), want.norm_tolerance)
        misses += _misses("L2 error of gradient", describe, norm, np.zeros_like(norm), of_norm)
        largest = max(largest, _largest(of_norm))
    return Verdict(rows, _largest(of_value), largest, tuple(misses))


def _value_form(call: Call) -> tuple[tuple[int, ...], mx.Dtype]:
    if call.reduction == "none":
        return call.logits_q.shape[:-1], call.logits_q.dtype
    return (), mx.float32


def _form(what: str, x: mx.array, shape: tuple[int, ...], dtype: mx.Dtype) -> str:
    if x.shape == shape and x.dtype == dtype:
        return ""
    return f"{what}: expected {dtype} {shape}, got {x.dtype} {x.shape}"


def _largest(share: Matrix) -> float:
    return float(np.max(share)) if share.size else 0.0


def _text(*entries: float) -> str:
    return f"[{', '.join(f'{x:.9g}' for x in entries)}]"


def _misses(
    what: str, describe: Callable[[int], str], got: Matrix, want: Matrix, share: Matrix
) -> list[Miss]:
    """The worst miss of each row; arrays [rows] or [rows, V]."""
    found = []
    for row in np.flatnonzero((share > 1).any(axis=tuple(range(1, share.ndim)))):
        at = np.unravel_index(int(np.argmax(share[row])), share.shape[1:])
        index = (int(row), *map(int, at))
        numbers = (float(x[index]) for x in (got, want, share))
        found.append(Miss(what, describe(int(row)), index, *numbers))
    return found
