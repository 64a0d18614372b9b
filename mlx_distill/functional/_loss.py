"""What every loss function does around its divergence."""

from __future__ import annotations

import mlx.core as mx

from mlx_distill._ops.autograd import Divergence, row_losses
from mlx_distill._ops.backends import resolve_backend
from mlx_distill._ops.options import Backend, Reduction, Scaling, check_options
from mlx_distill._ops.reduction import as_rows, reduce_rows
from mlx_distill._ops.validation import (
    check_array,
    check_logits,
    check_normalizer,
    check_weights,
)


def divergence_loss(
    name: str,
    divergence: Divergence,
    logits_q: mx.array,
    logits_p: mx.array,
    *,
    temperature: float,
    scale_by_t2: bool,
    weights: mx.array | None,
    normalizer: float | mx.array | None,
    reduction: Reduction,
    backend: Backend,
) -> mx.array:
    """Validate, flatten to rows, call the op, reduce."""
    check_options(name, temperature, scale_by_t2, reduction, backend)
    check_normalizer(name, normalizer, reduction)
    check_array(f"{name}: logits_q", logits_q)
    check_array(f"{name}: logits_p", logits_p)
    check_logits(name, logits_q, logits_p)
    shape = logits_q.shape[:-1]
    check_weights(name, weights, shape)
    rows = row_losses(
        divergence,
        as_rows(logits_q),
        as_rows(logits_p),
        Scaling(float(temperature), scale_by_t2),
        resolve_backend(name, backend),
    )
    return reduce_rows(
        rows,
        shape,
        weights=weights,
        normalizer=normalizer,
        reduction=reduction,
        dtype=logits_q.dtype,
    )
