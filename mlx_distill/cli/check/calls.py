"""What is called: a loss, a backend, a dtype, and one set of arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from mlx_distill import Reduction, js_div_loss, kl_div_loss
from mlx_distill._ops.backends import ResolvedBackend
from mlx_distill.cli.check.oracle import LossName


class LossFunction(Protocol):
    """The part of the losses' signature that is used here."""

    def __call__(
        self,
        logits_q: mx.array,
        logits_p: mx.array,
        *,
        temperature: float,
        scale_by_t2: bool,
        weights: mx.array | None,
        reduction: Reduction,
        backend: ResolvedBackend,
    ) -> mx.array:
        """The loss on `backend`."""
        ...


LOSSES: dict[LossName, LossFunction] = {"kl": kl_div_loss, "js": js_div_loss}
DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}

# Exact in every dtype; -2 first, so that a single row has a cotangent other than one too.
_COTANGENTS = np.array([-2.0, 0.5, 3.0, 1.0], dtype=np.float32)


class Subject(NamedTuple):
    """What a row of the table is about."""

    backend: ResolvedBackend
    loss: LossName
    dtype_name: str

    @property
    def dtype(self) -> mx.Dtype:
        """The dtype of the logits."""
        return DTYPES[self.dtype_name]


class Call(NamedTuple):
    """Arguments of one call, and the cotangent of its result."""

    logits_q: mx.array
    logits_p: mx.array
    cotangent: mx.array
    labels: tuple[str, ...]  # what each row is
    temperature: float = 1.0
    scale_by_t2: bool = False
    weights: mx.array | None = None
    reduction: Reduction = "none"


class Outcome(NamedTuple):
    """What one call gave, evaluated."""

    value: mx.array
    gradient: mx.array
    teacher_gradient: mx.array


Build = Callable[[], Call]


def run_call(subject: Subject, call: Call) -> Outcome:
    """Value and gradients on the subject's backend."""

    def loss(logits_q: mx.array, logits_p: mx.array) -> mx.array:
        return LOSSES[subject.loss](
            logits_q,
            logits_p,
            temperature=call.temperature,
            scale_by_t2=call.scale_by_t2,
            weights=call.weights,
            reduction=call.reduction,
            backend=subject.backend,
        )

    values, gradients = mx.vjp(loss, [call.logits_q, call.logits_p], [call.cotangent])
    mx.eval(values, gradients)
    return Outcome(values[0], gradients[0], gradients[1])


def to_dtype(x: npt.NDArray[np.float32], dtype: mx.Dtype) -> mx.array:
    """`x` as an MLX array of `dtype`."""
    return mx.array(x).astype(dtype)


def cotangent_for(shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    """A cotangent [...] that is neither one nor constant."""
    return to_dtype(np.resize(_COTANGENTS, shape), dtype)


def on_gpu() -> bool:
    """Whether the default device is a GPU."""
    return mx.default_device().type == mx.DeviceType.gpu
