"""Forward KL divergence as a module."""

from __future__ import annotations

import mlx.core as mx

from mlx_distill.functional import kl_div_loss
from mlx_distill.kernels.handles import KL_BACKWARD, KL_FORWARD
from mlx_distill.losses._base import DivergenceLoss


class KLDivLoss(DivergenceLoss):
    """Module twin of :func:`~mlx_distill.kl_div_loss`, which has the formula and the limits.

    It holds options and kernel handles only: nothing is added to the parameters of a student
    that holds it, and it can be copied and pickled.

    Args:
        temperature: divides both sets of logits.
        scale_by_t2: multiply the loss by the temperature squared.
        reduction: ``"mean"`` (the default here), ``"sum"`` or ``"none"``.
        backend: ``"auto"``, ``"metal"``, ``"cuda"`` or ``"mlx"``.

    Raises:
        OutOfRangeError: an option outside what is allowed.
        ArgumentTypeError: an option of the wrong Python type.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_distill import KLDivLoss
        >>> loss = KLDivLoss(temperature=2.0)
        >>> loss
        KLDivLoss(temperature=2.0, scale_by_t2=False, reduction='mean', backend='auto')
        >>> loss(mx.zeros((2, 3, 8)), mx.zeros((2, 3, 8))).item()
        0.0
    """

    kernels = (KL_FORWARD, KL_BACKWARD)

    def __call__(
        self,
        logits_q: mx.array,
        logits_p: mx.array,
        weights: mx.array | None = None,
        normalizer: float | mx.array | None = None,
    ) -> mx.array:
        """The loss of student logits [..., V] against teacher logits [..., V]."""
        return kl_div_loss(
            logits_q,
            logits_p,
            temperature=self.temperature,
            scale_by_t2=self.scale_by_t2,
            weights=weights,
            normalizer=normalizer,
            reduction=self.reduction,
            backend=self.backend,
        )
