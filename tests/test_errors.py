"""The error classes: fields, messages, builtins, and that they survive copies and pickles."""

from __future__ import annotations

import copy
import pickle
from typing import Any, NamedTuple

import pytest

import mlx_distill
from mlx_distill import (
    ArgumentTypeError,
    BackendError,
    DistillError,
    DtypeMismatchError,
    EmptyInputError,
    LengthMismatchError,
    OutOfRangeError,
    RankMismatchError,
    ShapePairMismatchError,
    UnsupportedDtypeError,
)


class Case(NamedTuple):
    kind: type[DistillError]
    builtin: type[Exception]
    fields: dict[str, Any]  # in the reference's order


CASES = [
    Case(
        RankMismatchError,
        ValueError,
        {"context": "a rank", "actual": 1, "actual_shape": (4,)},
    ),
    Case(
        ShapePairMismatchError,
        ValueError,
        {"context": "a vs b shape", "expected": (2, 4), "actual": (2, 8)},
    ),
    Case(
        OutOfRangeError,
        ValueError,
        {"context": "a dimension", "requirement": "must be > 0", "value": "0"},
    ),
    Case(
        LengthMismatchError,
        ValueError,
        {"context": "kernel outputs", "expected": 2, "actual": 1},
    ),
    Case(EmptyInputError, ValueError, {"context": "kernel outputs"}),
    Case(DtypeMismatchError, TypeError, {"expected": "float32", "got": "float16"}),
    Case(
        UnsupportedDtypeError,
        TypeError,
        {"context": "a dtype", "dtype": "int32", "supported": ("float32", "float16")},
    ),
    Case(
        ArgumentTypeError,
        TypeError,
        {"context": "logits_q", "expected": "an array", "got": "list"},
    ),
    Case(BackendError, RuntimeError, {"message": "no such device"}),
]
cases = pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind.__name__)


def fields_of(error: DistillError) -> dict[str, object]:
    return {name: getattr(error, name) for name in error.__match_args__}


@cases
def test_match_args_are_the_fields_in_order(case: Case) -> None:
    assert case.kind.__match_args__ == tuple(case.fields)


@cases
def test_keyword_and_positional_construction_give_the_same(case: Case) -> None:
    by_keyword = case.kind(**case.fields)
    by_position = case.kind(*case.fields.values())
    assert fields_of(by_keyword) == fields_of(by_position) == case.fields
    assert str(by_keyword) == str(by_position)
    assert repr(by_keyword) == repr(by_position)


@cases
@pytest.mark.parametrize("how", ["pickle", "copy", "deepcopy", *range(pickle.HIGHEST_PROTOCOL + 1)])
def test_errors_survive_pickles_and_copies(case: Case, how: str | int) -> None:
    error = case.kind(**case.fields)
    error.add_note("while testing")
    made = {"copy": copy.copy, "deepcopy": copy.deepcopy}.get(
        str(how), lambda e: pickle.loads(pickle.dumps(e, how if isinstance(how, int) else None))
    )(error)
    assert type(made) is case.kind
    assert fields_of(made) == case.fields
    assert str(made) == str(error)
    assert made.__notes__ == ["while testing"]


@cases
def test_errors_are_caught_as_builtins_and_by_the_base(case: Case) -> None:
    assert issubclass(case.kind, DistillError)
    assert issubclass(case.kind, case.builtin)
    others = {ValueError, TypeError, RuntimeError} - {case.builtin}
    assert not any(issubclass(case.kind, other) for other in others)
    with pytest.raises(case.builtin):
        raise case.kind(**case.fields)
    with pytest.raises(DistillError):
        raise case.kind(**case.fields)


@cases
def test_messages_show_every_field(case: Case) -> None:
    text = str(case.kind(**case.fields))
    for value in case.fields.values():
        shown = (
            ", ".join(value)
            if case.kind is UnsupportedDtypeError and isinstance(value, tuple)
            else str(value)
        )
        assert shown in text


def test_errors_match_by_position() -> None:
    match ShapePairMismatchError("a vs b shape", (2, 4), (2, 8)):
        case ShapePairMismatchError(context, (2, expected), (_, actual)):
            assert (context, expected, actual) == ("a vs b shape", 4, 8)
        case _:
            pytest.fail("did not match")


def test_shapes_are_kept_as_tuples() -> None:
    error = ShapePairMismatchError("shape", [2, 4], [2, 8])
    assert error.expected == (2, 4)
    assert error.actual == (2, 8)
    assert RankMismatchError("rank", 1, [4]).actual_shape == (4,)


def test_every_error_is_public() -> None:
    for case in CASES:
        assert getattr(mlx_distill, case.kind.__name__) is case.kind
        assert case.kind.__module__ == "mlx_distill.errors"
    assert mlx_distill.DistillError is DistillError


def test_a_cause_stays_chained() -> None:
    cause = OSError("driver")
    with pytest.raises(BackendError) as caught:
        raise BackendError("kernel failed") from cause
    assert caught.value.__cause__ is cause
