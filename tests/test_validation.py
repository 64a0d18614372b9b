"""The order of the checks: each step with its exact words, and each before all later ones."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import mlx.core as mx
import pytest

from mlx_distill import (
    BackendError,
    DistillError,
    DtypeMismatchError,
    OutOfRangeError,
    RankMismatchError,
    ShapePairMismatchError,
    UnsupportedDtypeError,
)
from subjects import Loss

if TYPE_CHECKING:
    from mlx_distill import Backend

FLOATS = ("float32", "float16", "bfloat16")


def absent_backend() -> Backend:
    return "cuda" if mx.metal.is_available() else "metal"


class Call(NamedTuple):
    """One call that breaks some of the rules."""

    shape_q: tuple[int, ...] = (2, 4)
    shape_p: tuple[int, ...] | None = None  # None: as q
    dtype_q: mx.Dtype = mx.float32
    dtype_p: mx.Dtype | None = None
    weights_shape: tuple[int, ...] | None = None
    weights_dtype: mx.Dtype = mx.float32
    backend: Backend = "mlx"

    def run(self, loss: Loss, *, module: bool = False) -> mx.array:
        q = mx.zeros(self.shape_q, dtype=self.dtype_q)
        p = mx.zeros(
            self.shape_q if self.shape_p is None else self.shape_p,
            dtype=self.dtype_q if self.dtype_p is None else self.dtype_p,
        )
        shape = self.weights_shape
        weights = None if shape is None else mx.ones(shape).astype(self.weights_dtype)
        if module:
            return loss.module(backend=self.backend)(q, p, weights)
        return loss.function(q, p, weights=weights, backend=self.backend)


# Step 5 needs an axis that MLX cannot make; test_validation_shapes.py reaches it.
STEPS: dict[str, tuple[type[DistillError], Call]] = {
    "1 rank of q": (RankMismatchError, Call(shape_q=(4,), shape_p=(2, 4))),
    "2 rank of p": (RankMismatchError, Call(shape_p=(4,))),
    "3 shapes": (ShapePairMismatchError, Call(shape_p=(2, 8))),
    "4 last axis": (OutOfRangeError, Call(shape_q=(2, 0))),
    "6 dtypes differ": (DtypeMismatchError, Call(dtype_p=mx.float16)),
    "7 dtype": (UnsupportedDtypeError, Call(dtype_q=mx.int32)),
    "8 weights shape": (ShapePairMismatchError, Call(weights_shape=(3,))),
    "8 weights dtype": (
        UnsupportedDtypeError,
        Call(weights_shape=(2,), weights_dtype=mx.complex64),
    ),
    "9 backend": (BackendError, Call(backend=absent_backend())),
}


def both(first: str, second: str) -> Call | None:
    """Return a call that breaks both steps, or None where one excludes the other."""
    a, b = STEPS[first][1], STEPS[second][1]
    default = Call()
    merged = default._asdict()
    for name, standard in default._asdict().items():
        # By text: a dtype does not compare with None.
        texts = {str(value): value for value in (getattr(a, name), getattr(b, name))}
        texts.pop(str(standard), None)
        if len(texts) > 1:
            return _by_hand(first, second)
        merged[name] = next(iter(texts.values()), standard)
    return Call(**merged)


def _by_hand(first: str, second: str) -> Call | None:
    return {
        ("1 rank of q", "2 rank of p"): Call(shape_q=(4,), shape_p=(4,)),
        ("1 rank of q", "3 shapes"): Call(shape_q=(4,), shape_p=(2, 8)),
        ("1 rank of q", "4 last axis"): Call(shape_q=(0,), shape_p=(2, 0)),
        ("2 rank of p", "3 shapes"): Call(shape_q=(2, 8), shape_p=(4,)),
        ("3 shapes", "4 last axis"): Call(shape_q=(2, 0), shape_p=(3, 0)),
        ("6 dtypes differ", "7 dtype"): Call(dtype_q=mx.int32, dtype_p=mx.int8),
        ("8 weights shape", "8 weights dtype"): Call(
            weights_shape=(3,), weights_dtype=mx.complex64
        ),
    }.get((first, second))


@pytest.mark.parametrize("module", [False, True], ids=["function", "module"])
@pytest.mark.parametrize("step", STEPS)
def test_step_raises_its_error(loss: Loss, step: str, *, module: bool) -> None:
    kind, call = STEPS[step]
    with pytest.raises(DistillError) as caught:
        call.run(loss, module=module)
    assert type(caught.value) is kind


@pytest.mark.parametrize("module", [False, True], ids=["function", "module"])
@pytest.mark.parametrize(("first", "second"), list(combinations(STEPS, 2)))
def test_earlier_step_wins(loss: Loss, first: str, second: str, *, module: bool) -> None:
    call = both(first, second)
    assert call is not None
    with pytest.raises(DistillError) as alone:
        STEPS[first][1].run(loss)
    with pytest.raises(DistillError) as caught:
        call.run(loss, module=module)
    assert type(caught.value) is type(alone.value)
    assert getattr(caught.value, "context", "") == getattr(alone.value, "context", "")


@pytest.mark.parametrize(
    ("side", "call", "shape"),
    [
        ("q", Call(shape_q=(4,), shape_p=(2, 4)), (4,)),
        ("q", Call(shape_q=(), shape_p=(2, 4)), ()),
        ("q", Call(shape_q=(4,), shape_p=(4,)), (4,)),
        ("p", Call(shape_p=(4,)), (4,)),
        ("p", Call(shape_p=()), ()),
    ],
    ids=str,
)
def test_rank_below_two_names_its_side(
    loss: Loss, side: str, call: Call, shape: tuple[int, ...]
) -> None:
    with pytest.raises(RankMismatchError) as caught:
        call.run(loss)
    words = "rank (must be >= 2; reshape rank-1 [V] to [1, V])"
    assert caught.value.context == f"{loss.prefix}: logits_{side} {words}"
    assert caught.value.actual == len(shape)
    assert caught.value.actual_shape == shape


@pytest.mark.parametrize(
    "shape", [(2, 8), (3, 4), (1, 4), (2, 1), (1, 2, 4), (8, 1), (4, 2)], ids=str
)
def test_shapes_never_broadcast(loss: Loss, shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapePairMismatchError) as caught:
        Call(shape_p=shape).run(loss)
    assert caught.value.context == f"{loss.prefix}: logits_q vs logits_p shape"
    assert caught.value.expected == (2, 4)
    assert caught.value.actual == shape


@pytest.mark.parametrize("vocabularies", [(151936, 152064), (152064, 151936)], ids=str)
def test_vocabulary_mismatch_gives_both_sizes_and_says_how_to_crop(
    loss: Loss, vocabularies: tuple[int, int]
) -> None:
    student, teacher = vocabularies
    with pytest.raises(ShapePairMismatchError) as caught:
        Call(shape_q=(2, student), shape_p=(2, teacher)).run(loss)
    text = str(caught.value)
    assert "151936" in text
    assert "152064" in text
    larger = "logits_q" if student > teacher else "logits_p"
    assert f"{larger}[..., :151936]" in text


@pytest.mark.parametrize("shape", [(2, 0), (0, 0), (2, 3, 0)], ids=str)
def test_empty_vocabulary_is_out_of_range(loss: Loss, shape: tuple[int, ...]) -> None:
    with pytest.raises(OutOfRangeError) as caught:
        Call(shape_q=shape).run(loss)
    assert caught.value.context == f"{loss.prefix}: logits last dimension"
    assert caught.value.requirement == "must be > 0"
    assert caught.value.value == "0"


@pytest.mark.parametrize(
    ("dtype_q", "dtype_p"),
    [
        (mx.float32, mx.float16),
        (mx.bfloat16, mx.float32),
        (mx.float16, mx.bfloat16),
        (mx.int32, mx.float32),
    ],
    ids=str,
)
def test_mixed_dtypes_are_refused_and_both_named(
    loss: Loss, dtype_q: mx.Dtype, dtype_p: mx.Dtype
) -> None:
    with pytest.raises(DtypeMismatchError) as caught:
        Call(dtype_q=dtype_q, dtype_p=dtype_p).run(loss)
    names = [str(dtype).rpartition(".")[2] for dtype in (dtype_q, dtype_p)]
    assert [caught.value.expected, caught.value.got] == names
    assert "astype" in str(caught.value)


@pytest.mark.parametrize(
    "dtype", [mx.int32, mx.uint8, mx.bool_, mx.int64, mx.complex64, mx.float64], ids=str
)
def test_other_dtypes_are_refused_with_the_cast_that_helps(loss: Loss, dtype: mx.Dtype) -> None:
    stream = mx.cpu if dtype == mx.float64 else mx.default_device()
    with mx.stream(stream), pytest.raises(UnsupportedDtypeError) as caught:
        Call(dtype_q=dtype).run(loss)
    context = f"{loss.prefix}: logits dtype (cast with .astype(mx.float32) before calling)"
    assert caught.value.context == context
    assert caught.value.dtype == str(dtype).rpartition(".")[2]
    assert caught.value.supported == FLOATS


@pytest.mark.parametrize("shape", [(), (1,), (2, 1), (2, 4), (1, 2), (0,)], ids=str)
def test_weights_never_broadcast(loss: Loss, shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapePairMismatchError) as caught:
        Call(weights_shape=shape).run(loss)
    assert "weights" in caught.value.context
    assert caught.value.context.startswith(f"{loss.prefix}: ")
    assert caught.value.expected == (2,)
    assert caught.value.actual == shape


def test_complex_weights_are_refused(loss: Loss) -> None:
    with pytest.raises(UnsupportedDtypeError) as caught:
        Call(weights_shape=(2,), weights_dtype=mx.complex64).run(loss)
    assert caught.value.context.startswith(f"{loss.prefix}: weights")
    assert caught.value.dtype == "complex64"


def test_an_absent_backend_is_named_and_never_replaced(loss: Loss) -> None:
    with pytest.raises(BackendError, match=absent_backend()):
        Call(backend=absent_backend()).run(loss)
    with pytest.raises(BackendError, match=absent_backend()):
        Call(shape_q=(0, 4), backend=absent_backend()).run(loss)
