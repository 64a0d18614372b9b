"""The accuracy that the losses promise, as formulas. Everything is float64 NumPy.

value       1e-6 + 1e-6 |value|                        per row
gradient    |c| k (3e-6 max(p, q) + 1e-10)             per element
KL gradient 1e-5 ||gradient|| + 3e-7 |c| k             in L2, per row

c is the cotangent, k is 1 / T, or T with scale_by_t2. The L2 floor is what a gradient of zeros
fails at V = 151936, where most entries are below 1e-7. Half-precision outputs may add half a unit
in the last place.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np

from oracle import Matrix, number

# (significand bits, smallest normal exponent) of the half precisions.
HALF_FORMATS = {mx.float16: (11, -14), mx.bfloat16: (8, -126)}

SUM_RTOL = 1e-5  # of sum and mean, against float64


def largest_finite(dtype: mx.Dtype) -> float:
    """Return the largest finite number of `dtype`."""
    return float(str(mx.finfo(dtype).max))


def round_to(value: float, dtype: mx.Dtype) -> float:
    """Return `value` as `dtype` holds it."""
    return number(mx.array(value).astype(dtype))


def half_ulp(size: Matrix, dtype: mx.Dtype) -> Matrix:
    """Return the rounding error that an output of `dtype` may add; 0 for float32."""
    if dtype not in HALF_FORMATS:
        return np.zeros_like(size)
    bits, lowest = HALF_FORMATS[dtype]
    # Below the smallest normal number the spacing stays.
    exponent = np.frexp(np.maximum(np.nan_to_num(size), 2.0**lowest))[1] - 1
    spacing: Matrix = np.ldexp(1.0, exponent - (bits - 1))
    return spacing / 2


def value_tolerance(want: Matrix, dtype: mx.Dtype) -> Matrix:
    """Return the error allowed per row."""
    allowed = 1e-6 + 1e-6 * np.abs(want)
    return allowed + half_ulp(np.abs(want) + allowed, dtype)


def gradient_tolerance(
    want: Matrix, largest: Matrix, cotangent: Matrix, slope: float, dtype: mx.Dtype
) -> Matrix:
    """Return the error allowed per element; `largest` is max(p, q), `slope` is k."""
    allowed = np.abs(cotangent)[..., None] * slope * (3e-6 * largest + 1e-10)
    return allowed + half_ulp(np.abs(want) + allowed, dtype)


def gradient_norm_tolerance(
    want: Matrix, cotangent: Matrix, slope: float, dtype: mx.Dtype
) -> Matrix:
    """Return the L2 error allowed per row of a KL gradient."""
    rounding = np.linalg.norm(half_ulp(np.abs(want), dtype), axis=-1)
    floor = 3e-7 * np.abs(cotangent) * slope
    allowed: Matrix = 1e-5 * np.linalg.norm(want, axis=-1) + floor + rounding
    return allowed


def reduction_tolerance(want: float, weights: Matrix, denominator: float) -> float:
    """Return the error allowed for sum (denominator 1) and mean: 1e-5 and the rows' own floor."""
    return SUM_RTOL * abs(want) + 1e-6 * float(np.abs(weights).sum()) / abs(denominator)
