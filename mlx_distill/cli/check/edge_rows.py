"""Rows at the edges of the losses' domain."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import mlx.core as mx
import numpy as np

from mlx_distill.cli.check.calls import to_dtype
from mlx_distill.cli.check.oracle import Matrix

Fill: TypeAlias = Literal["ordinary", "masked"]
Entries: TypeAlias = tuple[float, ...]

INF, NAN = float("inf"), float("nan")
# Stand for the lowest and the largest finite number of the dtype.
LOWEST, LARGEST = -1e39, 1e39


class EdgeRow(NamedTuple):
    """Student and teacher entries."""

    q: Entries
    p: Entries
    whole: bool = False  # every other entry of a wide row is as the first


ORDINARY = EdgeRow((0.5, -1.0, 2.0, 0.0), (1.0, 0.25, -0.5, 3.0))

VALID = {
    "same bits": EdgeRow((0.5, -1.0, 2.0, 30.0), (0.5, -1.0, 2.0, 30.0)),
    "same bits, one -inf": EdgeRow((0.5, -INF, 2.0, 0.0), (0.5, -INF, 2.0, 0.0)),
    "same bits, one not -inf": EdgeRow((-INF, -INF, 2.0, -INF), (-INF, -INF, 2.0, -INF)),
    "same bits, one lowest": EdgeRow((0.5, LOWEST, 2.0, 0.0), (0.5, LOWEST, 2.0, 0.0)),
    "-inf in both": EdgeRow((1.0, -INF, 3.0, 0.5), (-0.5, -INF, 1.0, 2.0)),
    "-inf in p": EdgeRow((1.0, 2.0, 3.0, 0.5), (-0.5, -INF, 1.0, 2.0)),
    "-inf in q": EdgeRow((1.0, 2.0, 3.0, -INF), (-0.5, 0.0, 1.0, 2.0)),
    "-inf in each": EdgeRow((-INF, 2.0, 3.0, 0.5), (-0.5, 1.0, -INF, 2.0)),
    "no entry in common": EdgeRow((1.0, 2.0, -INF, -INF), (-INF, -INF, 0.0, 3.0)),
    "one-hot p": EdgeRow((1.0, 2.0, 3.0, 0.5), (-INF, -INF, -INF, 0.0)),
    "one-hot q": EdgeRow((-INF, 7.0, -INF, -INF), (1.0, 2.0, 3.0, 0.5)),
    "one-hot both": EdgeRow((-INF, 7.0, -INF, -INF), (-INF, -3.0, -INF, -INF)),
    "p tiny where q is -inf": EdgeRow((1.0, -INF, 0.0, 2.0), (1.5, -150.0, 0.0, 0.0)),
    "gap 100": EdgeRow((100.0, 0.0, 1.0, 0.0), (0.0, 100.0, 1.0, 0.0)),
    "gap 1000": EdgeRow((0.0, -1000.0, 1.0, 0.0), (0.0, 0.0, 1.0, 0.5)),
    "gap 60000": EdgeRow((3e4, -3e4, 0.0, 1.0), (-3e4, 3e4, 0.0, 1.0)),
    "largest against lowest": EdgeRow((LARGEST, LOWEST, 0.0, 0.0), (LOWEST, LARGEST, 0.0, 0.0)),
    "largest in q": EdgeRow((LARGEST, 0.0, 1.0, 0.0), (0.0, 0.5, 0.0, 1.0)),
    "largest in p": EdgeRow((0.0, 0.5, 0.0, 1.0), (LARGEST, 0.0, 1.0, 0.0)),
    "lowest in both": EdgeRow((1.0, 2.0, LOWEST, 0.5), (-0.5, 1.0, LOWEST, 2.0)),
    "lowest in p": EdgeRow((1.0, 2.0, 3.0, 0.5), (-0.5, 1.0, LOWEST, 2.0)),
    "lowest in q": EdgeRow((1.0, 2.0, LOWEST, 0.5), (-0.5, 1.0, 0.0, 2.0)),
    "lowest in q, -inf in p": EdgeRow((1.0, 2.0, LOWEST, 0.5), (-0.5, 1.0, -INF, 2.0)),
    "-inf in q, lowest in p": EdgeRow((1.0, 2.0, -INF, 0.5), (-0.5, 1.0, LOWEST, 2.0)),
    "q all lowest": EdgeRow((LOWEST,) * 4, (0.0, 1.0, 2.0, 3.0), whole=True),
    "p all lowest": EdgeRow((0.0, 1.0, 2.0, 3.0), (LOWEST,) * 4, whole=True),
    "both all largest": EdgeRow((LARGEST,) * 4, (LARGEST,) * 4, whole=True),
}

# Their loss and gradient are nan, in that row only.
POISON = {
    "nan in q": EdgeRow((1.0, 2.0, NAN, 0.5), (-0.5, 1.0, 0.0, 2.0)),
    "nan in p": EdgeRow((1.0, 2.0, 3.0, 0.5), (-0.5, 1.0, 0.0, NAN)),
    "nan in both": EdgeRow((NAN, 2.0, 3.0, 0.5), (NAN, 1.0, 0.0, 2.0)),
    "nan and +inf": EdgeRow((1.0, NAN, 3.0, INF), (-0.5, 1.0, 0.0, 2.0)),
    "+inf in q": EdgeRow((1.0, INF, 3.0, 0.5), (-0.5, 1.0, 0.0, 2.0)),
    "+inf in p": EdgeRow((1.0, 2.0, 3.0, 0.5), (INF, 1.0, 0.0, 2.0)),
    "+inf in both": EdgeRow((1.0, INF, 3.0, 0.5), (0.0, INF, 0.0, 2.0)),
    "+inf beside -inf": EdgeRow((1.0, INF, -INF, 0.5), (-0.5, 1.0, -INF, 2.0)),
    "q all -inf": EdgeRow((-INF,) * 4, (0.0, 1.0, 2.0, 3.0), whole=True),
    "p all -inf": EdgeRow((0.0, 1.0, 2.0, 3.0), (-INF,) * 4, whole=True),
    "both all -inf": EdgeRow((-INF,) * 4, (-INF,) * 4, whole=True),
    "both all nan": EdgeRow((NAN,) * 4, (NAN,) * 4, whole=True),
}


def stack(rows: list[EdgeRow], dtype: mx.Dtype) -> tuple[mx.array, mx.array]:
    """Student and teacher logits [rows, 4]."""
    return _finish([row.q for row in rows], dtype), _finish([row.p for row in rows], dtype)


def spread(
    rows: list[EdgeRow], vocabulary: int, fill: Fill, dtype: mx.Dtype
) -> tuple[mx.array, mx.array]:
    """The same as rows [rows, V], the entries at both ends and in the middle."""
    wide = np.full((2, len(rows), vocabulary), -np.inf)
    if fill == "ordinary":
        wide = np.random.default_rng(4).standard_normal(wide.shape)
        equal = [row.q == row.p for row in rows]
        wide[1, equal] = wide[0, equal]
    places = [0, vocabulary // 2, vocabulary - 2, vocabulary - 1]
    for i, row in enumerate(rows):
        for side, entries in enumerate((row.q, row.p)):
            if row.whole:
                wide[side, i] = entries[0]
            wide[side, i, places] = entries
    return _finish(wide[0], dtype), _finish(wide[1], dtype)


def _finish(rows: list[Entries] | Matrix, dtype: mx.Dtype) -> mx.array:
    largest = mx.finfo(dtype).max
    x = np.array(rows)
    x = np.where(x == LOWEST, -largest, np.where(x == LARGEST, largest, x))
    return to_dtype(x.astype(np.float32), dtype)
