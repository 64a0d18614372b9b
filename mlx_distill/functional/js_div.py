"""Jensen-Shannon divergence between student and teacher."""

from __future__ import annotations

import mlx.core as mx

from mlx_distill._ops import js
from mlx_distill._ops.autograd import Divergence
from mlx_distill._ops.options import Backend, Reduction
from mlx_distill.functional._loss import divergence_loss
from mlx_distill.kernels.handles import JS_BACKWARD, JS_FORWARD

_JS = Divergence(
    forward=js.forward,
    gradient=js.gradient,
    smooth_gradient=js.smooth_gradient,
    statistics=5,
    forward_kernel=JS_FORWARD,
    backward_kernel=JS_BACKWARD,
)


def js_div_loss(
    logits_q: mx.array,
    logits_p: mx.array,
    *,
    temperature: float = 1.0,
    scale_by_t2: bool = False,
    weights: mx.array | None = None,
    normalizer: float | mx.array | None = None,
    reduction: Reduction = "none",
    backend: Backend = "auto",
) -> mx.array:
    r"""Jensen-Shannon divergence between student and teacher, from logits.

    .. math::

        D_\mathrm{JS}(p, q) = \tfrac12 D_\mathrm{KL}(p \,\|\, m)
        + \tfrac12 D_\mathrm{KL}(q \,\|\, m), \qquad m = \tfrac12 (p + q)

    with :math:`p = \mathrm{softmax}(x_p / T)` the teacher's and
    :math:`q = \mathrm{softmax}(x_q / T)` the student's distribution. It is symmetric, 0 where
    they agree, and at most :math:`\ln 2`, also where one of them rules a token out: its
    gradient is bounded, and fades where student and teacher share no token at all.

    The gradient with respect to ``logits_q`` is
    :math:`\frac{q}{2T} (\log\frac{q}{m} - D_\mathrm{KL}(q \,\|\, m))`, exact, in the dtype of
    ``logits_q``. The gradient with respect to ``logits_p`` is zero on every backend: the
    teacher is a constant. The student goes first always; the divergence is symmetric, so no
    other order is needed. With ``scale_by_t2`` value, bound and gradient carry :math:`T^2`.

    Args:
        logits_q: student logits [..., V], as in :func:`kl_div_loss`.
        logits_p: teacher logits [..., V], of the same shape and dtype.
        temperature: divides both sets of logits, :math:`10^{-20} \le T \le 10^{20}`.
        scale_by_t2: multiply the loss by :math:`T^2`.
        weights: one factor for each token [...], as in :func:`kl_div_loss`.
        normalizer: denominator of ``"mean"``, as in :func:`kl_div_loss`.
        reduction: ``"none"``, ``"sum"`` or ``"mean"``, over tokens.
        backend: ``"auto"``, ``"metal"``, ``"cuda"`` or ``"mlx"``.

    Returns:
        The divergence in nats. ``"none"``: [...], in the logits' dtype. ``"sum"`` and
        ``"mean"``: a float32 scalar.

    Raises:
        DistillError: as :func:`kl_div_loss`, class by class.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_distill import js_div_loss
        >>> student = mx.log(mx.array([[0.25, 0.75]]))
        >>> teacher = mx.log(mx.array([[0.5, 0.5]]))
        >>> print(f"{js_div_loss(student, teacher).item():.4f}")
        0.0338

        Student and teacher that share no token are ln 2 apart:

        >>> student, teacher = mx.array([[300.0, 0.0]]), mx.array([[0.0, 300.0]])
        >>> print(f"{js_div_loss(student, teacher).item():.4f}")
        0.6931

    See Also:
        :class:`~mlx_distill.JSDivLoss`: the same as a module.
        :func:`kl_div_loss`: forward KL.

    References:
        J. Lin, Divergence Measures Based on the Shannon Entropy, 1991.
    """
    return divergence_loss(
        "js_div_loss",
        _JS,
        logits_q,
        logits_p,
        temperature=temperature,
        scale_by_t2=scale_by_t2,
        weights=weights,
        normalizer=normalizer,
        reduction=reduction,
        backend=backend,
    )
