"""Options and arguments of the wrong type or value, before any array work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import mlx.core as mx
import numpy as np
import pytest

from mlx_distill import ArgumentTypeError, DistillError, OutOfRangeError
from mlx_distill._ops.validation import check_logits
from subjects import INF, NAN, Loss

if TYPE_CHECKING:
    from collections.abc import Callable

WRONG_ARRAYS: dict[str, object] = {
    "list": [[1.0, 2.0]],
    "tuple": ((1.0, 2.0),),
    "numpy": np.ones((1, 2), dtype=np.float32),
    "none": None,
    "float": 1.0,
    "str": "logits",
}
wrong_arrays = pytest.mark.parametrize("wrong", WRONG_ARRAYS.values(), ids=WRONG_ARRAYS)

WRONG_TYPES: list[tuple[str, object]] = [
    ("temperature", "1"),
    ("temperature", None),
    ("temperature", True),
    ("temperature", [1.0]),
    ("temperature", 1j),
    ("temperature", mx.array(1.0)),
    ("scale_by_t2", "yes"),
    ("scale_by_t2", None),
    ("scale_by_t2", 2.0),
    ("reduction", None),
    ("reduction", 1),
    ("reduction", ["mean"]),
    ("reduction", b"mean"),
    ("backend", None),
    ("backend", 0),
    ("backend", mx.cpu),
]

WRONG_VALUES: list[tuple[str, object, str]] = [
    *(("temperature", t, "temperature") for t in (0.0, -0.0, -1.0, -1, 0, NAN, INF, -INF)),
    *(("temperature", t, "1e-20") for t in (9e-21, 1e-300, 5e-324)),
    *(("temperature", t, "1e+20") for t in (1.1e20, 1e300, 10**400)),
    *(("reduction", r, "'none', 'sum', 'mean'") for r in ("avg", "", "Mean", "batchmean", "mean ")),
    *(("backend", b, "'auto', 'metal', 'cuda', 'mlx'") for b in ("gpu", "", "cpu", "Metal")),
]

wrong_types = pytest.mark.parametrize(
    ("option", "value"), WRONG_TYPES, ids=[f"{name}-{value!r}" for name, value in WRONG_TYPES]
)
wrong_values = pytest.mark.parametrize(
    ("option", "value", "hint"),
    WRONG_VALUES,
    ids=[f"{name}-{str(value)[:8]}" for name, value, _ in WRONG_VALUES],
)


def untyped(function: Callable[..., object]) -> Callable[..., Any]:
    """Return `function` as a caller without a type checker sees it."""
    return function


def call(loss: Loss, *arguments: object, **options: object) -> object:
    return untyped(loss.function)(*arguments, **options)


def build(loss: Loss, **options: object) -> Any:  # noqa: ANN401  # as untyped() says
    return untyped(loss.module)(**options)


@wrong_arrays
def test_logits_of_another_type_are_refused_and_named(loss: Loss, wrong: object) -> None:
    right = mx.ones((1, 2))
    for side, arguments in (("logits_q", (wrong, right)), ("logits_p", (right, wrong))):
        for run in (lambda *a: call(loss, *a), build(loss)):
            with pytest.raises(ArgumentTypeError) as caught:
                run(*arguments)
            assert caught.value.context == f"{loss.prefix}: {side}"
            assert caught.value.got == type(wrong).__name__


@pytest.mark.parametrize("wrong", [[1.0], (1.0,), np.ones(1), 1.0, "ones"], ids=str)
def test_weights_of_another_type_are_refused_and_named(loss: Loss, wrong: object) -> None:
    q = mx.ones((1, 2))
    for run in (lambda w: call(loss, q, q, weights=w), lambda w: build(loss)(q, q, w)):
        with pytest.raises(ArgumentTypeError) as caught:
            run(wrong)
        assert caught.value.context == f"{loss.prefix}: weights"
        assert caught.value.got == type(wrong).__name__


@wrong_types
def test_an_option_of_another_type_is_refused(loss: Loss, option: str, value: object) -> None:
    q = mx.ones((1, 2))
    for run in (
        lambda: call(loss, q, q, **{option: value}),
        lambda: build(loss, **{option: value}),
    ):
        with pytest.raises(ArgumentTypeError) as caught:
            run()
        assert option in caught.value.context
        assert caught.value.got == type(value).__name__
        assert isinstance(caught.value, TypeError)


@wrong_values
def test_an_option_out_of_range_is_refused_with_what_is_allowed(
    loss: Loss, option: str, value: object, hint: str
) -> None:
    q = mx.ones((1, 2))
    for run in (
        lambda: call(loss, q, q, **{option: value}),
        lambda: build(loss, **{option: value}),
    ):
        with pytest.raises(OutOfRangeError) as caught:
            run()
        assert option in caught.value.context
        assert hint in f"{caught.value.context} {caught.value.requirement}"
        assert str(value) in caught.value.value


@pytest.mark.parametrize("temperature", [1e-20, 1e20, 1, np.float64(2.0)], ids=str)
def test_temperatures_inside_the_range_are_taken(loss: Loss, temperature: float) -> None:
    loss.module(temperature=temperature)
    q = mx.ones((1, 2))
    assert loss.function(q, q, temperature=temperature, backend="mlx").item() == 0.0


@pytest.mark.parametrize("option", ["temperature", "reduction", "backend"])
def test_options_are_checked_before_arrays(loss: Loss, option: str) -> None:
    value: object = -1.0 if option == "temperature" else "wrong"
    for arrays in ((None, None), (mx.ones(3), mx.ones(3)), (mx.ones((1, 2)), mx.ones((1, 3)))):
        with pytest.raises(OutOfRangeError) as caught:
            call(loss, *arrays, **{option: value})
        assert option in caught.value.context


@pytest.mark.parametrize("reduction", ["none", "sum"])
def test_a_normalizer_without_mean_is_out_of_range(loss: Loss, reduction: str) -> None:
    q = mx.ones((1, 2))
    for normalizer in (4.0, 0.0, mx.array(4.0)):
        for run in (
            lambda n: call(loss, q, q, normalizer=n, reduction=reduction),
            lambda n: build(loss, reduction=reduction)(q, q, None, n),
        ):
            with pytest.raises(OutOfRangeError, match="normalizer"):
                run(normalizer)


@pytest.mark.parametrize(
    "normalizer",
    [
        *("4", [4.0], (), True, 4j, np.ones(()), -1.0, -1, NAN, INF, 10**400),
        *(mx.ones((1,)), mx.ones((2, 2)), mx.array(1j)),
    ],
    ids=lambda n: str(n)[:12],
)
def test_a_normalizer_that_can_be_no_count_is_refused(loss: Loss, normalizer: object) -> None:
    q = mx.ones((1, 2))
    for run in (
        lambda: call(loss, q, q, normalizer=normalizer, reduction="mean"),
        lambda: build(loss)(q, q, None, normalizer),
    ):
        with pytest.raises(DistillError, match="normalizer"):
            run()


def test_options_are_keyword_only(loss: Loss) -> None:
    q = mx.ones((1, 2))
    with pytest.raises(TypeError):
        call(loss, q, q, 2.0)
    with pytest.raises(TypeError):
        call(loss, q, q, temprature=2.0)
    with pytest.raises(TypeError):
        untyped(loss.module)(2.0)
    with pytest.raises(TypeError):
        build(loss, temprature=2.0)


class Axes(NamedTuple):
    """What the checks read of an array, for axes that MLX cannot make."""

    shape: tuple[int, ...]
    dtype: mx.Dtype = mx.float32

    @property
    def ndim(self) -> int:
        return len(self.shape)


def check(name: str, logits_q: Axes, logits_p: Axes) -> None:
    untyped(check_logits)(name, logits_q, logits_p)


@pytest.mark.parametrize(
    ("shape", "value"),
    [
        ((2**31, 5), 2**31),
        ((2, 2**31), 2**31),
        ((1, 2**40, 2**35), 2**40),
        ((2**33, 2**32), 2**33),
    ],
    ids=str,
)
def test_an_axis_beyond_int32_is_out_of_range(shape: tuple[int, ...], value: int) -> None:
    with pytest.raises(OutOfRangeError) as caught:
        check("kl_div_loss", Axes(shape), Axes(shape))
    assert caught.value.context == "kl_div_loss: shape dim"
    assert caught.value.requirement == "must fit in i32"
    assert str(value) in caught.value.value


def test_the_largest_axis_of_int32_passes() -> None:
    check("kl_div_loss", Axes((2**31 - 1, 2**31 - 1)), Axes((2**31 - 1, 2**31 - 1)))


@pytest.mark.parametrize(
    ("logits_q", "logits_p", "context"),
    [
        (Axes((2**31,)), Axes((2**31,)), "logits_q rank"),
        (Axes((2**31, 5)), Axes((2**31,)), "logits_p rank"),
        (Axes((2**31, 5)), Axes((2**31, 6)), "logits_q vs logits_p shape"),
        (Axes((2**31, 0)), Axes((2**31, 0)), "logits last dimension"),
        (Axes((2**31, 5)), Axes((2**31, 5), mx.float16), "shape dim"),
        (Axes((2**31, 5), mx.int32), Axes((2**31, 5), mx.int32), "shape dim"),
    ],
    ids=str,
)
def test_the_size_of_an_axis_is_checked_in_its_place(
    logits_q: Axes, logits_p: Axes, context: str
) -> None:
    with pytest.raises(DistillError) as caught:
        check("js_div_loss", logits_q, logits_p)
    assert getattr(caught.value, "context", "").startswith(f"js_div_loss: {context}")
