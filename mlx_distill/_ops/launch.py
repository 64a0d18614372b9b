"""One launch of a row kernel; the same signatures as the plain-MLX path."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mlx.core as mx

from mlx_distill._ops.options import Scaling
from mlx_distill.errors import BackendError, EmptyInputError, LengthMismatchError, OutOfRangeError
from mlx_distill.kernels.handles import KernelBackend, KernelHandle

_SIMD_WIDTH = 32
# On an H200 256 threads to a row are the fastest (KL forward + backward 90 percent of a
# copy's rate, 85 with 1024): several rows share a multiprocessor, and one loads while another
# reduces.
_MAX_THREADS = 256
_VECTOR_BYTES = 16
_GRID_LIMIT = 2**31
# The kernels step through a row in int32, by as many vectors as there are threads.
_MAX_VOCABULARY = 2**31 - 2**14

_LOG2_E = 1.0 / math.log(2.0)


def forward(
    handle: KernelHandle,
    backend: KernelBackend,
    logits_q: mx.array,
    logits_p: mx.array,
    scaling: Scaling,
    statistics: int,
) -> tuple[mx.array, mx.array]:
    """Row losses [rows] and `statistics` row statistics [rows, n], float32."""
    rows = logits_q.shape[0]
    loss, saved = _launch(
        handle,
        backend,
        [logits_q, logits_p, _pack(scaling)],
        [(rows,), (rows, statistics)],
        [mx.float32, mx.float32],
    )
    return loss, saved


def gradient(
    handle: KernelHandle,
    backend: KernelBackend,
    logits_q: mx.array,
    logits_p: mx.array,
    cotangent: mx.array,
    statistics: mx.array,
    scaling: Scaling,
) -> mx.array:
    """d loss / d logits_q [rows, V] in its dtype."""
    (out,) = _launch(
        handle,
        backend,
        [logits_q, logits_p, cotangent, statistics, _pack(scaling)],
        [logits_q.shape],
        [logits_q.dtype],
    )
    return out


def _pack(scaling: Scaling) -> mx.array:
    temperature = scaling.temperature
    of_value = temperature if scaling.scale_by_t2 else 1.0  # the kernel multiplies twice
    return mx.array([_LOG2_E / temperature, of_value, scaling.of_gradient])


def _launch(
    handle: KernelHandle,
    backend: KernelBackend,
    inputs: Sequence[mx.array],
    output_shapes: Sequence[Sequence[int]],
    output_dtypes: Sequence[mx.Dtype],
) -> list[mx.array]:
    logits = inputs[0]
    rows, vocabulary = logits.shape
    threads = _threads(vocabulary, logits.dtype.size)
    if vocabulary > _MAX_VOCABULARY:
        raise OutOfRangeError(
            f"{handle.name}: vocabulary", f"must be <= {_MAX_VOCABULARY}", str(vocabulary)
        )
    if rows * threads >= _GRID_LIMIT:
        raise OutOfRangeError(
            f"{handle.name}: rows", f"must be < {_GRID_LIMIT // threads}", str(rows)
        )
    try:
        outputs = handle.compiled(backend)(
            inputs=inputs,
            output_shapes=output_shapes,
            output_dtypes=output_dtypes,
            grid=(rows * threads, 1, 1),
            threadgroup=(threads, 1, 1),
            template=[("T", logits.dtype)],
        )
    except Exception as exc:
        raise BackendError(f"{handle.name}: the {backend} kernel failed: {exc}") from exc
    context = f"{handle.name}: kernel outputs"
    if not outputs:
        raise EmptyInputError(context)
    if len(outputs) != len(handle.output_names):
        raise LengthMismatchError(context, len(handle.output_names), len(outputs))
    return outputs


def _threads(vocabulary: int, item_size: int) -> int:
    vectors = math.ceil(vocabulary * item_size / _VECTOR_BYTES)
    groups = math.ceil(vectors / _SIMD_WIDTH)
    return min(_MAX_THREADS, groups * _SIMD_WIDTH)
