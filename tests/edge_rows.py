"""Rows at the edges of the contract, as they are written in its table."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
import numpy as np

from subjects import INF, NAN
from tolerance import largest_finite

# Stand for the dtype's lowest and largest finite number in a row.
LOWEST, LARGEST = "lowest", "largest"

Entry = float | str


class EdgeRow(NamedTuple):
    """One student and one teacher row."""

    q: tuple[Entry, ...]
    p: tuple[Entry, ...]


# Rows with a value: a number, or +inf for KL.
VALID = {
    "masked_in_both": EdgeRow((1.0, 2.0, -INF, 0.5), (0.5, 1.5, -INF, 1.0)),
    "masked_in_teacher": EdgeRow((1.0, 2.0, 3.0, 0.5), (0.5, 1.5, -INF, 1.0)),
    "masked_in_student": EdgeRow((1.0, -INF, 3.0, 0.5), (1.0, 2.0, 3.0, -1.0)),
    "masked_apart": EdgeRow((1.0, -INF, 0.5, 2.0), (-INF, 2.0, 3.0, -1.0)),
    "disjoint": EdgeRow((0.0, 1.0, -INF, -INF), (-INF, -INF, 0.0, 2.0)),
    "one_hot_teacher": EdgeRow((1.0, 2.0, 3.0, 0.5), (-INF, 0.0, -INF, -INF)),
    "one_hot_student": EdgeRow((-INF, 0.0, -INF, -INF), (1.0, 2.0, 3.0, 0.5)),
    "one_hot_both": EdgeRow((-INF, 5.0, -INF, -INF), (-INF, -7.0, -INF, -INF)),
    "lowest_in_both": EdgeRow((1.0, 2.0, LOWEST, 0.0), (2.0, 1.0, LOWEST, 0.5)),
    "lowest_in_teacher": EdgeRow((1.0, 2.0, 0.0, 0.5), (2.0, 1.0, LOWEST, 0.5)),
    "lowest_in_student": EdgeRow((1.0, 2.0, LOWEST, 0.5), (2.0, 1.0, 0.0, 0.5)),
    "lowest_beside_inf": EdgeRow((1.0, 2.0, -INF, 0.5), (2.0, 1.0, LOWEST, 0.5)),
    "inf_beside_lowest": EdgeRow((1.0, 2.0, LOWEST, 0.5), (2.0, 1.0, -INF, 0.5)),
    "lowest_but_one_in_both": EdgeRow((LOWEST, LOWEST, 3.0, LOWEST), (LOWEST, 1.0, 3.0, LOWEST)),
    "all_lowest": EdgeRow((LOWEST,) * 4, (0.0, 1.0, 2.0, 3.0)),
    "all_largest": EdgeRow((LARGEST,) * 4, (0.0, 1.0, 2.0, 3.0)),
    "largest_against_zero": EdgeRow((LARGEST, 0.0, 0.0, 0.0), (0.0, 0.0, 1.0, 2.0)),
    "zero_against_largest": EdgeRow((0.0, 0.0, 1.0, 2.0), (LARGEST, 0.0, 0.0, 0.0)),
    "whole_range": EdgeRow((LARGEST, LOWEST, 0.0, 0.0), (LOWEST, LARGEST, 0.0, 0.0)),
    "whole_range_alike": EdgeRow((LARGEST, LOWEST, 0.0, 0.0), (LARGEST, LOWEST, 1.0, 0.0)),
    "gap_of_200": EdgeRow((200.0, 0.0, 0.0, 0.0), (0.0, 200.0, 0.0, 0.0)),
    "gap_of_600": EdgeRow((0.0, 0.0, 0.0, 0.0), (300.0, 0.0, -300.0, 0.0)),
    "gap_of_30000": EdgeRow((3e4, 0.0, -3e4, 1.0), (0.0, 3e4, 0.0, 1.0)),
    "underflow_in_both": EdgeRow((0.0, -150.0, 0.3, 0.1), (0.2, -150.0, 0.0, -0.5)),
    "rare_where_student_is_masked": EdgeRow((0.0, -INF, 1.0, 2.0), (0.0, -200.0, 1.0, 2.0)),
    "zeros_of_both_signs": EdgeRow((0.0, -0.0, 1.0, 2.0), (-0.0, 0.0, 1.0, 2.0)),
}

# Rows whose loss is NaN unless their weight is 0.
POISON = {
    "nan_in_student": EdgeRow((NAN, 2.0, 3.0, 1.0), (3.0, 2.0, 1.0, 0.0)),
    "nan_in_teacher": EdgeRow((3.0, 2.0, 1.0, 0.0), (1.0, 2.0, 3.0, NAN)),
    "nan_in_both": EdgeRow((3.0, NAN, 1.0, 0.0), (1.0, NAN, 3.0, 2.0)),
    "nan_beside_inf": EdgeRow((3.0, NAN, 1.0, INF), (1.0, 2.0, 3.0, 2.0)),
    "inf_in_student": EdgeRow((INF, 2.0, 3.0, 1.0), (3.0, 2.0, 1.0, 0.0)),
    "inf_in_teacher": EdgeRow((3.0, 2.0, 1.0, 0.0), (1.0, 2.0, INF, 0.0)),
    "inf_in_both": EdgeRow((INF, 2.0, 1.0, 0.0), (INF, 2.0, 1.0, 0.0)),
    "all_masked_student": EdgeRow((-INF,) * 4, (3.0, 2.0, 1.0, 0.0)),
    "all_masked_teacher": EdgeRow((3.0, 2.0, 1.0, 0.0), (-INF,) * 4),
    "all_masked_both": EdgeRow((-INF,) * 4, (-INF,) * 4),
    "all_nan": EdgeRow((NAN,) * 4, (NAN,) * 4),
}

ORDINARY = EdgeRow((0.5, -1.0, 2.0, 0.0), (1.0, 0.25, -0.5, 3.0))


def stack(rows: list[EdgeRow], dtype: mx.Dtype) -> tuple[mx.array, mx.array]:
    """Return the rows as logits of `dtype`."""
    return _array([row.q for row in rows], dtype), _array([row.p for row in rows], dtype)


def spread(row: EdgeRow, vocabulary: int, dtype: mx.Dtype) -> tuple[mx.array, mx.array]:
    """Return `row` as one wide row, its entries at the ends and in the middle, the rest masked."""
    places = [0, vocabulary // 2, vocabulary - 2, vocabulary - 1]
    wide = np.full((2, 1, vocabulary), -np.inf, dtype=np.float32)
    q, p = stack([row], mx.float32)
    wide[0, :, places] = np.array(q).T
    wide[1, :, places] = np.array(p).T
    return mx.array(wide[0]).astype(dtype), mx.array(wide[1]).astype(dtype)


def _array(rows: list[tuple[Entry, ...]], dtype: mx.Dtype) -> mx.array:
    largest = largest_finite(dtype)
    named = {LOWEST: -largest, LARGEST: largest}
    numbers = [[named[x] if isinstance(x, str) else x for x in row] for row in rows]
    return mx.array(numbers, dtype=mx.float32).astype(dtype)
