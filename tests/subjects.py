"""What is under test, under one name each, and how to call it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypedDict, Unpack

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx.utils import tree_flatten

from mlx_distill import JSDivLoss, KLDivLoss, js_div_loss, kl_div_loss
from oracle import Matrix, Name, to_float64

if TYPE_CHECKING:
    from mlx_distill import Backend, Reduction

DTYPES = {"float32": mx.float32, "float16": mx.float16, "bfloat16": mx.bfloat16}
INF = float("inf")
NAN = float("nan")

# Exact in every dtype; -2 first, so that one row has a cotangent other than one too.
COTANGENTS = (-2.0, 0.5, 3.0, 1.0)


class Options(TypedDict, total=False):
    """The options of a loss function."""

    temperature: float
    scale_by_t2: bool
    weights: mx.array | None
    normalizer: float | mx.array | None
    reduction: Reduction
    backend: Backend


class LossFunction(Protocol):
    """The signature that both functions share."""

    def __call__(
        self,
        logits_q: mx.array,
        logits_p: mx.array,
        *,
        temperature: float = ...,
        scale_by_t2: bool = ...,
        weights: mx.array | None = ...,
        normalizer: float | mx.array | None = ...,
        reduction: Reduction = ...,
        backend: Backend = ...,
    ) -> mx.array: ...


class Loss(NamedTuple):
    """One divergence: its oracle's name, its function and its module."""

    name: Name
    function: LossFunction
    module: type[KLDivLoss | JSDivLoss]

    @property
    def prefix(self) -> str:
        """How error contexts begin."""
        return f"{self.name}_div_loss"


LOSSES = (Loss("kl", kl_div_loss, KLDivLoss), Loss("js", js_div_loss, JSDivLoss))


class Outcome(NamedTuple):
    """A value and the gradient in `logits_q`, as MLX gave them and in float64."""

    value: mx.array
    gradient: mx.array

    @property
    def value64(self) -> Matrix:
        return to_float64(self.value)

    @property
    def gradient64(self) -> Matrix:
        return to_float64(self.gradient)


def backends() -> list[Backend]:
    """Return the backends that this machine can run; the plain one always."""
    found: list[Backend] = ["mlx"]
    if mx.default_device().type == mx.DeviceType.gpu:
        if mx.metal.is_available():
            found.append("metal")
        if mx.cuda.is_available():
            found.append("cuda")
    return found


@lru_cache(maxsize=4)
def _normals(shape: tuple[int, ...], seed: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((2, *shape), dtype=np.float32)


def draw_logits(
    shape: tuple[int, ...],
    *,
    std: float | Matrix = 3.0,
    offset_q: float | Matrix = 0.0,
    offset_p: float | Matrix = 0.0,
    dtype: mx.Dtype = mx.float32,
    seed: int = 0,
) -> tuple[mx.array, mx.array]:
    """Return student and teacher logits, the same ones for the same arguments."""
    q, p = _normals(shape, seed)
    return (
        mx.array((q * std + offset_q).astype(np.float32)).astype(dtype),
        mx.array((p * std + offset_p).astype(np.float32)).astype(dtype),
    )


def cotangent_like(value: mx.array) -> mx.array:
    """Return a cotangent for `value` that is neither one nor constant."""
    cycle = np.resize(np.array(COTANGENTS, dtype=np.float32), value.shape)
    return mx.array(cycle.reshape(value.shape)).astype(value.dtype)


def value_and_gradient(
    function: LossFunction,
    logits_q: mx.array,
    logits_p: mx.array,
    cotangent: mx.array | None = None,
    **options: Unpack[Options],
) -> Outcome:
    """Return the loss and its gradient in `logits_q` under `cotangent`."""

    def run(q: mx.array) -> mx.array:
        return function(q, logits_p, **options)

    # The forward is lazy: asking for its shape here costs nothing.
    given = cotangent_like(run(logits_q)) if cotangent is None else cotangent
    values, gradients = mx.vjp(run, [logits_q], [given])
    mx.eval(values, gradients)
    return Outcome(values[0], gradients[0])


def leaves(tree: object) -> dict[str, mx.array]:
    """Return the arrays of a parameter tree by their dotted names."""
    found: dict[str, mx.array] = dict(tree_flatten(tree))
    return found


def bits(x: mx.array) -> bytes:
    """Return the bytes of `x`, to compare runs bit by bit."""
    as_integers = {4: mx.uint32, 2: mx.uint16}[x.dtype.size]
    return np.asarray(mx.contiguous(x.reshape(-1)).view(as_integers)).tobytes()
