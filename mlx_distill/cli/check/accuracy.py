"""Logits of every spread and offset at one vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from itertools import product

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from mlx_distill.cli.check.calls import Build, Call, cotangent_for, on_gpu, to_dtype

Logits = npt.NDArray[np.float32]

VOCABULARIES = (1, 7, 1000, 4095, 4096, 4097, 32000, 151936)
WIDE = 10000  # what --quick thins out
TEMPERATURES = (0.7, 1.0, 3.0)

_OFFSETS = {
    "no offset": (0.0, 0.0),
    "offset 1e4 on q": (1e4, 0.0),
    "offset 1e4 on p": (0.0, 1e4),
    "offset 1e4 on both": (1e4, 1e4),
}
_GRID = tuple(product((1.0, 5.0, 20.0), _OFFSETS))
_NOISE = (0.0, 1e-4, 1e-2)


def accuracy_calls(vocabulary: int, dtype: mx.Dtype, *, quick: bool) -> Iterator[tuple[str, Build]]:
    """Names and builders of the calls at one vocabulary."""
    # Nine, three rows and one: on Metal an array of fewer than eight entries lies in
    # another address space.
    for number, temperature in enumerate(TEMPERATURES):
        if quick and temperature != 1.0:
            continue
        parts = [slice(9, 12), slice(5 * number, 5 * number + 1)]
        if not (quick and vocabulary > WIDE):
            parts.append(slice(9))
        for part in parts:
            rows = len(_GRID[part])
            build = partial(_spread, vocabulary, dtype, temperature, part)
            yield f"rows{rows}-T{temperature:g}", build
    yield "t-squared", partial(_spread, vocabulary, dtype, 3.0, slice(4, 7), scale_by_t2=True)
    yield "near-equal", partial(_near, vocabulary, dtype)
    for name, shifts in {"misaligned-alike": (1, 1), "misaligned-apart": (1, 2)}.items():
        yield name, partial(_misaligned, vocabulary, dtype, shifts)


def repeat_call(dtype: mx.Dtype) -> Call:
    """The widest logits; many rows where a GPU can run them at once."""
    rows = 64 if on_gpu() else 3
    q, p = 20 * _normals((rows, VOCABULARIES[-1]), 1)
    return _call(to_dtype(q, dtype), to_dtype(p, dtype), ("std 20",) * rows)


def _draw(vocabulary: int) -> tuple[Logits, Logits, tuple[str, ...]]:
    """Student, teacher and what each row is: every spread and offset once."""
    q, p = _normals((len(_GRID), vocabulary), 0)
    std = np.array([[std] for std, _ in _GRID], dtype=np.float32)
    offset = np.array([_OFFSETS[where] for _, where in _GRID], dtype=np.float32)
    labels = tuple(f"std {std:g}, {where}" for std, where in _GRID)
    return q * std + offset[:, :1], p * std + offset[:, 1:], labels


def _spread(
    vocabulary: int,
    dtype: mx.Dtype,
    temperature: float,
    part: slice,
    *,
    scale_by_t2: bool = False,
) -> Call:
    q, p, labels = _draw(vocabulary)
    call = _call(to_dtype(q[part], dtype), to_dtype(p[part], dtype), labels[part])
    return call._replace(temperature=temperature, scale_by_t2=scale_by_t2)


def _near(vocabulary: int, dtype: mx.Dtype) -> Call:
    base, step = _normals((len(_NOISE), vocabulary), 2)
    noise = np.array([[size] for size in _NOISE], dtype=np.float32)
    labels = tuple(f"std 5, p is q plus noise of std {size:g}" for size in _NOISE)
    return _call(to_dtype(5 * base, dtype), to_dtype(5 * base + noise * step, dtype), labels)


def _misaligned(vocabulary: int, dtype: mx.Dtype, shifts: tuple[int, int]) -> Call:
    """Contiguous rows that begin a few entries into their buffers."""
    q, p, labels = _draw(vocabulary)
    views = []
    for x, shift in zip((q[3:6], p[3:6]), shifts, strict=True):
        buffer = to_dtype(np.concatenate([np.zeros(shift, np.float32), x.ravel()]), dtype)
        mx.eval(buffer)
        views.append(buffer[shift:].reshape(x.shape))
    return _call(views[0], views[1], labels[3:6])


def _call(q: mx.array, p: mx.array, labels: tuple[str, ...]) -> Call:
    return Call(q, p, cotangent_for(q.shape[:-1], q.dtype), labels)


@lru_cache(maxsize=2)
def _normals(shape: tuple[int, int], seed: int) -> Logits:
    return np.random.default_rng(seed).standard_normal((2, *shape), dtype=np.float32)
