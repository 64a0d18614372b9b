"""Kullback-Leibler divergence KL(p || q) of teacher p and student q."""

from __future__ import annotations

import mlx.core as mx

from mlx_distill._ops import kl
from mlx_distill._ops.autograd import Divergence
from mlx_distill._ops.options import Backend, Reduction
from mlx_distill.functional._loss import divergence_loss
from mlx_distill.kernels.handles import KL_BACKWARD, KL_FORWARD

_KL = Divergence(
    forward=kl.forward,
    gradient=kl.gradient,
    smooth_gradient=kl.smooth_gradient,
    statistics=4,
    forward_kernel=KL_FORWARD,
    backward_kernel=KL_BACKWARD,
)


def kl_div_loss(
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
    r"""Forward KL divergence of teacher and student, KL(p || q), from logits.

    .. math::

        D_\mathrm{KL}(p \,\|\, q) = \sum_{v=1}^{V} p_v \log\frac{p_v}{q_v},
        \qquad p = \mathrm{softmax}(x_p / T), \quad q = \mathrm{softmax}(x_q / T)

    with :math:`x_p` the teacher's logits, :math:`x_q` the student's and :math:`T` the
    temperature. It is 0 where student and teacher agree and never negative. Forward KL makes
    the student cover every token that the teacher gives mass to: a token that the student
    rules out (:math:`q_v = 0 < p_v`) costs :math:`+\infty`. :func:`js_div_loss` stays finite
    there, and is the one to use when the student's distribution has to sit on both sides.

    The gradient with respect to ``logits_q`` is :math:`(q - p) / T` (times :math:`T^2` with
    ``scale_by_t2``), exact, in the dtype of ``logits_q``. The gradient with respect to
    ``logits_p`` is zero on every backend: the teacher is a constant.

    Args:
        logits_q: student logits [..., V], float32, float16 or bfloat16; at least two axes,
            the last one the vocabulary.
        logits_p: teacher logits [..., V], of the same shape and dtype.
        temperature: divides both sets of logits, :math:`10^{-20} \le T \le 10^{20}`.
        scale_by_t2: multiply the loss by :math:`T^2`, so that gradients keep their size as
            the temperature changes (Hinton et al.).
        weights: one factor for each token [...], bool, integer or floating; True or 1 marks
            a token that counts. A token of weight 0 adds exactly 0 to loss and gradient
            whatever its logits hold, nan included. Differentiable if floating. Negative
            and nan weights are not checked.
        normalizer: denominator of ``"mean"`` in the place of the sum of weights, a float or
            a 0-d array, e.g. the token count of a whole batch when gradients are
            accumulated. A constant to the gradient; 0 gives 0.
        reduction: ``"none"``, ``"sum"`` or ``"mean"``, over tokens: the vocabulary is always
            summed.
        backend: ``"auto"``, ``"metal"``, ``"cuda"`` or ``"mlx"`` (plain MLX operations).
            ``"auto"`` takes the kernels of the default device, if it is a GPU.

    Returns:
        The divergence in nats. ``"none"``: [...], in the logits' dtype. ``"sum"`` and
        ``"mean"``: a float32 scalar; the mean is ``sum(w * l) / sum(w)``, and 0 when no
        token counts.

    Raises:
        ArgumentTypeError: an argument of the wrong Python type.
        OutOfRangeError: a temperature, reduction or backend outside what is allowed; a
            normalizer that is negative or that float32 cannot hold, or given without
            ``"mean"``; an empty vocabulary; more rows than a kernel can launch.
        RankMismatchError: logits with fewer than two axes.
        ShapePairMismatchError: logits of different shapes, weights not of shape [...], or a
            normalizer that is not 0-d.
        DtypeMismatchError: logits of different dtypes.
        UnsupportedDtypeError: logits of another dtype, or complex weights or normalizer.
        BackendError: a named backend is not available, or its kernel failed.

    Examples:
        >>> import mlx.core as mx
        >>> from mlx_distill import kl_div_loss
        >>> student = mx.log(mx.array([[0.25, 0.75]]))
        >>> teacher = mx.log(mx.array([[0.5, 0.5]]))
        >>> print(f"{kl_div_loss(student, teacher).item():.4f}")
        0.1438

        Only the first token counts:

        >>> student, teacher = mx.zeros((1, 2, 4)), mx.array([[[2.0, 0, 0, 0]] * 2])
        >>> mask = mx.array([[True, False]])
        >>> print(f"{kl_div_loss(student, teacher, weights=mask, reduction='mean').item():.4f}")
        0.4680

    See Also:
        :class:`~mlx_distill.KLDivLoss`: the same as a module.
        :func:`js_div_loss`: symmetric, bounded by ln 2.

    References:
        S. Kullback and R. A. Leibler, On Information and Sufficiency, 1951.
        G. Hinton, O. Vinyals and J. Dean, Distilling the Knowledge in a Neural Network, 2015.
    """
    return divergence_loss(
        "kl_div_loss",
        _KL,
        logits_q,
        logits_p,
        temperature=temperature,
        scale_by_t2=scale_by_t2,
        weights=weights,
        normalizer=normalizer,
        reduction=reduction,
        backend=backend,
    )
