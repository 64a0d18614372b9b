"""Exceptions that say which argument was wrong, what was required and what was found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

__all__ = [
    "ArgumentTypeError",
    "BackendError",
    "DistillError",
    "DtypeMismatchError",
    "EmptyInputError",
    "LengthMismatchError",
    "OutOfRangeError",
    "RankMismatchError",
    "ShapePairMismatchError",
    "UnsupportedDtypeError",
]

Shape = tuple[int, ...]


class DistillError(Exception):
    """Base of every error that the library raises on purpose.

    Each subclass is also the builtin that fits (`ValueError`, `TypeError` or
    `RuntimeError`), carries its facts as plain attributes in `__match_args__`
    order, and survives `pickle` and `copy`.
    """

    __match_args__: ClassVar[tuple[str, ...]] = ()

    def _fields(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__match_args__)

    def __reduce__(self) -> tuple[object, ...]:
        # Exception.__reduce__ replays `args`, which keyword construction leaves empty.
        return type(self), self._fields() or self.args, dict(self.__dict__)

    def __repr__(self) -> str:
        pairs = zip(self.__match_args__, self._fields(), strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in pairs)})"


class RankMismatchError(DistillError, ValueError):
    """An array has too few axes.

    Attributes:
        context: the argument and what its rank must be.
        actual: the rank found.
        actual_shape: the whole shape found.
    """

    __match_args__ = ("context", "actual", "actual_shape")

    def __init__(self, context: str, actual: int, actual_shape: Sequence[int]) -> None:
        self.context = context
        self.actual = actual
        self.actual_shape: Shape = tuple(actual_shape)
        super().__init__(*self._fields())

    def __str__(self) -> str:
        return f"{self.context}: got rank {self.actual}, shape {self.actual_shape}"


class ShapePairMismatchError(DistillError, ValueError):
    """Two shapes that must be equal are not.

    Attributes:
        context: which two arrays were compared.
        expected: the shape that was required.
        actual: the shape found.
    """

    __match_args__ = ("context", "expected", "actual")

    def __init__(self, context: str, expected: Sequence[int], actual: Sequence[int]) -> None:
        self.context = context
        self.expected: Shape = tuple(expected)
        self.actual: Shape = tuple(actual)
        super().__init__(*self._fields())

    def __str__(self) -> str:
        text = f"{self.context}: expected {self.expected}, got {self.actual}"
        if "logits_p" in self.context and self._only_vocabularies_differ():
            student, teacher = self.expected[-1], self.actual[-1]
            larger = "logits_q" if student > teacher else "logits_p"
            text += (
                f"; the vocabularies differ: {student} (logits_q) and {teacher} (logits_p). "
                "If the extra entries are padding, crop the larger: "
                f"{larger}[..., :{min(student, teacher)}]"
            )
        return text

    def _only_vocabularies_differ(self) -> bool:
        return (
            len(self.expected) == len(self.actual) > 0
            and self.expected[:-1] == self.actual[:-1]
            and self.expected[-1] != self.actual[-1]
        )


class OutOfRangeError(DistillError, ValueError):
    """A value lies outside what is allowed.

    Attributes:
        context: the argument.
        requirement: what must hold.
        value: the value found, as text.
    """

    __match_args__ = ("context", "requirement", "value")

    def __init__(self, context: str, requirement: str, value: str) -> None:
        self.context = context
        self.requirement = requirement
        self.value = value
        super().__init__(*self._fields())

    def __str__(self) -> str:
        return f"{self.context}: {self.requirement}, got {self.value}"


class LengthMismatchError(DistillError, ValueError):
    """A kernel launch returned another number of outputs than it declares.

    Attributes:
        context: the launch.
        expected: the number declared.
        actual: the number returned.
    """

    __match_args__ = ("context", "expected", "actual")

    def __init__(self, context: str, expected: int, actual: int) -> None:
        self.context = context
        self.expected = expected
        self.actual = actual
        super().__init__(*self._fields())

    def __str__(self) -> str:
        return f"{self.context}: expected {self.expected}, got {self.actual}"


class EmptyInputError(DistillError, ValueError):
    """A kernel launch returned nothing.

    Attributes:
        context: the launch.
    """

    __match_args__ = ("context",)

    def __init__(self, context: str) -> None:
        self.context = context
        super().__init__(*self._fields())

    def __str__(self) -> str:
        return f"{self.context}: must not be empty"


class DtypeMismatchError(DistillError, TypeError):
    """Student and teacher logits have different dtypes.

    Attributes:
        expected: the student's dtype name, e.g. ``"bfloat16"``.
        got: the teacher's dtype name.
    """

    __match_args__ = ("expected", "got")

    def __init__(self, expected: str, got: str) -> None:
        self.expected = expected
        self.got = got
        super().__init__(*self._fields())

    def __str__(self) -> str:
        taken = ("float32", "float16", "bfloat16")
        advice = (
            f"cast one of them, e.g. logits_p.astype(mx.{self.expected})"
            if self.expected in taken
            else "cast both, e.g. with .astype(mx.float32)"
        )
        return (
            f"logits_q is {self.expected} but logits_p is {self.got}; "
            f"both must have one dtype: {advice}"
        )


class UnsupportedDtypeError(DistillError, TypeError):
    """A dtype that the losses do not take.

    Attributes:
        context: the argument and what to do.
        dtype: the dtype name found.
        supported: the dtype names that are taken.
    """

    __match_args__ = ("context", "dtype", "supported")

    def __init__(self, context: str, dtype: str, supported: Sequence[str]) -> None:
        self.context = context
        self.dtype = dtype
        self.supported: tuple[str, ...] = tuple(supported)
        super().__init__(*self._fields())

    def __str__(self) -> str:
        return f"{self.context}: got {self.dtype}, supported: {', '.join(self.supported)}"


class ArgumentTypeError(DistillError, TypeError):
    """An argument of the wrong Python type.

    Attributes:
        context: the argument.
        expected: the type that was required.
        got: the name of the type found.
    """

    __match_args__ = ("context", "expected", "got")

    def __init__(self, context: str, expected: str, got: str) -> None:
        self.context = context
        self.expected = expected
        self.got = got
        super().__init__(*self._fields())

    def __str__(self) -> str:
        return f"{self.context}: must be {self.expected}, got {self.got}"


class BackendError(DistillError, RuntimeError):
    """A named backend is not available, or a kernel failed; the cause is chained.

    Attributes:
        message: what happened and what to do.
    """

    __match_args__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message
        super().__init__(*self._fields())

    def __str__(self) -> str:
        return self.message
