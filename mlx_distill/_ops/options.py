"""The options that every loss shares: their types and their checks."""

from __future__ import annotations

import math
from numbers import Real
from typing import Literal, NamedTuple, TypeAlias, get_args

import mlx.core as mx

from mlx_distill.errors import ArgumentTypeError, OutOfRangeError

Reduction: TypeAlias = Literal["none", "sum", "mean"]
Backend: TypeAlias = Literal["auto", "metal", "cuda", "mlx"]

_FLOAT32_TINY = 2.0**-126
_FLOAT32_MAX = 3.4028234663852886e38
TEMPERATURE_MIN = 1e-20
TEMPERATURE_MAX = 1e20


class Scaling(NamedTuple):
    """How a row op scales: logits by 1 / temperature, the loss by temperature ** 2 if asked."""

    temperature: float
    scale_by_t2: bool

    def of_value(self, loss: mx.array) -> mx.array:
        """The loss, times temperature ** 2 if asked."""
        # Twice by T: T ** 2 alone leaves float32's range long before T does.
        return loss * self.temperature * self.temperature if self.scale_by_t2 else loss

    @property
    def of_gradient(self) -> float:
        """d loss / d logits over d loss / d tempered logits: 1 / T, times T ** 2 if asked."""
        return self.temperature if self.scale_by_t2 else 1.0 / self.temperature


def check_temperature(context: str, temperature: float) -> None:
    if isinstance(temperature, bool) or not isinstance(temperature, Real):
        raise ArgumentTypeError(f"{context}: temperature", "a float", _type_name(temperature))
    requirement = f"must be finite, {TEMPERATURE_MIN:g} <= temperature <= {TEMPERATURE_MAX:g}"
    if not TEMPERATURE_MIN <= _as_float(temperature) <= TEMPERATURE_MAX:
        raise OutOfRangeError(f"{context}: temperature", requirement, _shown(temperature))


def check_scale_by_t2(context: str, scale_by_t2: bool) -> None:
    if not isinstance(scale_by_t2, bool):
        raise ArgumentTypeError(f"{context}: scale_by_t2", "a bool", _type_name(scale_by_t2))


def check_reduction(context: str, reduction: str) -> None:
    _check_word(f"{context}: reduction", reduction, get_args(Reduction))


def check_backend(context: str, backend: str) -> None:
    _check_word(f"{context}: backend", backend, get_args(Backend))


def check_options(
    context: str, temperature: float, scale_by_t2: bool, reduction: str, backend: str
) -> None:
    """Check every option that is fixed at construction, in signature order."""
    check_temperature(context, temperature)
    check_scale_by_t2(context, scale_by_t2)
    check_reduction(context, reduction)
    check_backend(context, backend)


def check_number(context: str, value: float) -> None:
    """Check that `value` is 0 or a positive number that float32 can hold."""
    if value != 0 and not _FLOAT32_TINY <= _as_float(value) <= _FLOAT32_MAX:
        requirement = "must be 0 or a positive float32"
        raise OutOfRangeError(context, requirement, _shown(value))


def _check_word(context: str, word: str, allowed: tuple[str, ...]) -> None:
    if not isinstance(word, str):
        raise ArgumentTypeError(context, "a str", _type_name(word))
    if word not in allowed:
        words = ", ".join(repr(choice) for choice in allowed)
        raise OutOfRangeError(context, f"must be one of {words}", repr(word))


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an int or fraction beyond any float
        return math.inf if value > 0 else -math.inf


def _shown(value: float) -> str:
    try:
        return str(value)
    except ValueError:  # Python prints no int of more than 4300 digits
        return str(_as_float(value))


def _type_name(value: object) -> str:
    return type(value).__name__
