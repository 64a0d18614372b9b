"""Calls at the edges: special rows, dropped rows, views, no rows at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import get_args

import mlx.core as mx
import numpy as np

from mlx_distill import Reduction
from mlx_distill.cli.check.accuracy import TEMPERATURES
from mlx_distill.cli.check.calls import Build, Call, cotangent_for, to_dtype
from mlx_distill.cli.check.edge_rows import ORDINARY, POISON, VALID, Fill, spread, stack

# Rows of an odd length begin at every alignment in turn.
_WIDE = 4097

_VIEWS: dict[str, Callable[[mx.array], mx.array]] = {
    "rows-reversed": lambda x: x[::-1],
    "entries-reversed": lambda x: x[:, ::-1],
    "every-second-entry": lambda x: x[1::2, ::2],
    "transposed": lambda x: x.T,
    "three-axes-transposed": lambda x: x.reshape(2, 3, -1).transpose(1, 0, 2),
    "row-broadcast": lambda x: mx.broadcast_to(x[:1], x.shape),
    "entry-broadcast": lambda x: mx.broadcast_to(x[:, :1], (x.shape[0], 7)),
}


def edge_calls(dtype: mx.Dtype, *, quick: bool) -> Iterator[tuple[str, Build]]:
    """Names and builders of the calls."""
    temperatures = TEMPERATURES[:1] if quick else TEMPERATURES
    fills: tuple[Fill | None, ...] = (None, *get_args(Fill))
    for fill in fills:
        where = f"among-{fill}" if fill else "alone"
        for temperature in temperatures:
            yield f"{where}-T{temperature:g}", partial(_edge_rows, fill, dtype, temperature)
        yield f"cotangent-0-{where}", partial(_cotangent_zero, fill, dtype)
    reductions: tuple[Reduction, ...] = get_args(Reduction)
    for reduction, kind in product(reductions, (mx.float32, mx.bool_)):
        name = "true-false" if kind == mx.bool_ else "numbers"
        yield f"weights-{name}-{reduction}", partial(_weights, kind, reduction, dtype)
    for name, entries in product(_VIEWS, (10, 4100)):
        yield f"view-{name}-of-6x{entries}", partial(_view, name, entries, dtype)
    for name in ("transposed", "broadcast", "strided"):
        yield f"cotangent-{name}", partial(_cotangent_view, name, dtype)
    for shape, reduction in product(((0, 7), (2, 0, 7)), reductions):
        name = "x".join(map(str, shape))
        yield f"empty-{name}-{reduction}", partial(_empty, shape, reduction, dtype)


def _edge_rows(fill: Fill | None, dtype: mx.Dtype, temperature: float) -> Call:
    # Ordinary rows between the others show what spreads.
    named = {"ordinary, first": ORDINARY, **VALID}
    for name, row in POISON.items():
        named |= {name: row, f"ordinary, after {name}": ORDINARY}
    rows = list(named.values())
    q, p = spread(rows, _WIDE, fill, dtype) if fill else stack(rows, dtype)
    cotangent = cotangent_for((len(rows),), dtype)
    return Call(q, p, cotangent, tuple(named), temperature=temperature)


def _cotangent_zero(fill: Fill | None, dtype: mx.Dtype) -> Call:
    call = _edge_rows(fill, dtype, 1.0)
    cotangent = np.array([label.startswith("ordinary") for label in call.labels], np.float32)
    cotangent[2::4] *= -1.0  # a negative zero too
    return call._replace(cotangent=to_dtype(cotangent, dtype))


def _weights(kind: mx.Dtype, reduction: Reduction, dtype: mx.Dtype) -> Call:
    named = {"ordinary, first": ORDINARY, **POISON, "gap 100": VALID["gap 100"]}
    named["-inf in q"] = VALID["-inf in q"]
    q, p = stack(list(named.values()), dtype)
    weights = np.zeros(len(named), np.float32)
    weights[0], weights[-2] = 0.5, 2.0
    shape = (len(named),) if reduction == "none" else ()
    return Call(
        q,
        p,
        cotangent_for(shape, dtype if reduction == "none" else mx.float32),
        tuple(named),
        weights=to_dtype(weights, kind),
        reduction=reduction,
    )


def _view(name: str, entries: int, dtype: mx.Dtype) -> Call:
    x = np.random.default_rng(5).standard_normal((2, 6, entries), dtype=np.float32)
    q, p = (_VIEWS[name](to_dtype(side, dtype)) for side in 3 * x)
    return _plain(q, p)


def _cotangent_view(name: str, dtype: mx.Dtype) -> Call:
    x = np.random.default_rng(6).standard_normal((2, 3, 4, 11), dtype=np.float32)
    call = _plain(to_dtype(3 * x[0], dtype), to_dtype(3 * x[1], dtype))
    numbers = mx.arange(1, 25).astype(dtype)
    cotangent = {
        "transposed": numbers[:12].reshape(4, 3).T,
        "broadcast": mx.broadcast_to(numbers[1], (3, 4)),
        "strided": numbers.reshape(3, 8)[:, ::-2],
    }[name]
    return call._replace(cotangent=cotangent)


def _plain(q: mx.array, p: mx.array) -> Call:
    shape = q.shape[:-1]
    labels = tuple(f"row {i}" for i in np.ndindex(*shape))
    return Call(q, p, cotangent_for(shape, q.dtype), labels)


def _empty(shape: tuple[int, ...], reduction: Reduction, dtype: mx.Dtype) -> Call:
    logits = mx.zeros(shape, dtype=dtype)
    cotangent = mx.zeros(shape[:-1], dtype=dtype) if reduction == "none" else mx.array(2.0)
    return Call(logits, logits, cotangent, (), reduction=reduction)
