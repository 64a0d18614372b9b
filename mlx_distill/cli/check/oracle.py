"""Both losses and their gradients in NumPy float64, edges included."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import mlx.core as mx
import numpy as np
import numpy.typing as npt

LossName: TypeAlias = Literal["kl", "js"]
Matrix: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.uint16] | npt.NDArray[np.uint32]

LN2 = float(np.log(2.0))


class Truth(NamedTuple):
    """What rows of logits [rows, V] should give, for a cotangent of one."""

    value: Matrix  # [rows]
    gradient: Matrix  # [rows, V]
    largest: Matrix  # [rows, V], max(p, q)
    slope: float  # 1 / T, or T with scale_by_t2


def as_integers(x: mx.array) -> Integers:
    """The bits of `x`, a floating array of two or four bytes an entry."""
    return np.asarray(x.view(mx.uint32 if x.dtype.size == 4 else mx.uint16))


def as_float64(x: mx.array) -> Matrix:
    """The exact entries of `x`, converted without the device."""
    if x.dtype == mx.bfloat16:
        return (as_integers(x).astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.asarray(x).astype(np.float64)


def truth(loss: LossName, q: Matrix, p: Matrix, *, temperature: float, scale_by_t2: bool) -> Truth:
    """Value and gradient of each row of student and teacher logits [rows, V]."""
    with np.errstate(all="ignore"):
        valid = np.isfinite(q.max(axis=-1)) & np.isfinite(p.max(axis=-1))
        log_q, prob_q = _softmax(q, temperature)
        log_p, prob_p = _softmax(p, temperature)
        # Both -inf gives nan; what is 0 there is selected below.
        log_ratio = log_p - log_q
        if loss == "kl":
            value = np.where(prob_p > 0, prob_p * log_ratio, 0.0).sum(axis=-1)
            gradient = prob_q - prob_p
        else:
            q_over_m = np.where(prob_q > 0, LN2 - np.logaddexp(0.0, log_ratio), 0.0)
            p_over_m = np.where(prob_p > 0, LN2 - np.logaddexp(0.0, -log_ratio), 0.0)
            kl_q = (prob_q * q_over_m).sum(axis=-1)
            value = 0.5 * (kl_q + (prob_p * p_over_m).sum(axis=-1))
            gradient = 0.5 * prob_q * (q_over_m - kl_q[:, None])
        scale = temperature**2 if scale_by_t2 else 1.0
        return Truth(
            np.where(valid, scale * value, np.nan),
            np.where(valid[:, None], scale / temperature * gradient, np.nan),
            np.maximum(prob_q, prob_p),
            scale / temperature,
        )


def _softmax(x: Matrix, temperature: float) -> tuple[Matrix, Matrix]:
    """Log-probabilities and probabilities; nan where a row has no maximum that is finite."""
    tempered = (x - x.max(axis=-1, keepdims=True)) / temperature
    exp = np.exp(tempered)
    total = exp.sum(axis=-1, keepdims=True)
    return tempered - np.log(total), exp / total
