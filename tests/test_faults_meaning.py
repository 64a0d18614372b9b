"""Faults reported in public against distillation losses: what is averaged, scaled and returned.

One test for each report, under its number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mlx.core as mx
import numpy as np
import pytest

from mlx_distill import OutOfRangeError, ShapePairMismatchError, js_div_loss, kl_div_loss
from oracle import to_float64
from subjects import Loss, value_and_gradient

if TYPE_CHECKING:
    from mlx_distill import Backend

PER_TOKEN = [[0.870933044, 1.27996039, 0.38100657], [0.220667019, 0.271547787, 0.282261604]]
MEAN = 0.551062735

# Student and teacher of KD33: far enough apart that no mix-up gives the same number.
FAR_Q, FAR_P = [[3.0, 0.0, 0.0, -2.0]], [[0.0, 0.0, 1.0, 1.0]]


def near(expected: Any, rtol: float = 1e-5) -> Any:  # noqa: ANN401  # pytest.approx is untyped
    return pytest.approx(np.array(expected), rel=rtol, abs=1e-7)


def sentences() -> tuple[mx.array, mx.array]:
    """Two sequences of three tokens over four words."""
    rng = np.random.default_rng(1)
    q, p = rng.normal(size=(2, 3, 4)).round(3), rng.normal(size=(2, 3, 4)).round(3)
    return mx.array(q.astype(np.float32)), mx.array(p.astype(np.float32))


def test_kd23_mean_is_over_tokens_not_over_entries(backend: Backend) -> None:
    q, p = sentences()
    got = kl_div_loss(q, p, reduction="mean", backend=backend).item()
    assert got == pytest.approx(MEAN, rel=1e-5)
    assert got != pytest.approx(0.137765684, rel=1e-2)


def test_kd25_weighted_mean_divides_by_the_sum_of_weights(backend: Backend) -> None:
    q, p = sentences()
    weights = mx.array([[1.0, 0.5, 0.0], [2.0, 1.0, 0.0]])
    mean = kl_div_loss(q, p, weights=weights, reduction="mean", backend=backend).item()
    assert mean == pytest.approx(0.494176681, rel=1e-5)
    total = kl_div_loss(q, p, weights=weights, reduction="sum", backend=backend).item()
    assert total == pytest.approx(2.22379506, rel=1e-5)
    ones = kl_div_loss(q, p, weights=mx.ones((2, 3)), reduction="mean", backend=backend).item()
    assert ones == pytest.approx(MEAN, rel=1e-5)


@pytest.mark.parametrize("how", ["normalizer", "sum"])
def test_kd26_accumulated_micro_batches_equal_the_whole_batch(backend: Backend, how: str) -> None:
    rng = np.random.default_rng(2)
    q, p = (mx.array(rng.normal(size=(64, 5)).astype(np.float32)) for _ in range(2))

    def run(s: mx.array, t: mx.array) -> mx.array:
        if how == "sum":
            return kl_div_loss(s, t, reduction="sum", backend=backend) / 64
        return kl_div_loss(s, t, reduction="mean", normalizer=64, backend=backend)

    step = mx.value_and_grad(run)
    (first, gradient), (rest, _) = step(q[:4], p[:4]), step(q[4:], p[4:])
    assert first.item() * 64 == pytest.approx(2.54790011, rel=1e-5)
    assert rest.item() * 64 == pytest.approx(44.6623884, rel=1e-5)
    assert (first + rest).item() == pytest.approx(0.737660759, rel=1e-5)
    row = [0.0015520823, -0.0029636742, -0.004105679, -0.00115654758, 0.00667381848]
    assert to_float64(gradient)[0] == near(row)
    whole = kl_div_loss(q, p, reduction="mean", backend=backend).item()
    assert whole == pytest.approx(0.737660759, rel=1e-5)


def test_kd29_tokens_are_counted_once(backend: Backend) -> None:
    q, p = sentences()
    rows = kl_div_loss(q, p, backend=backend)
    mean = kl_div_loss(q, p, reduction="mean", backend=backend).item()
    assert rows.mean().item() == pytest.approx(mean, rel=1e-6)
    total = kl_div_loss(q, p, reduction="sum", backend=backend).item()
    assert total / 6 == pytest.approx(mean, rel=1e-6)
    assert mean == pytest.approx(MEAN, rel=1e-6)


def test_kd30_cotangent_of_each_token_reaches_its_gradient(backend: Backend) -> None:
    q, p = sentences()
    cotangent = mx.array([[1.0, -2.0, 0.0], [0.5, 3.0, 10.0]])
    got = value_and_gradient(kl_div_loss, q, p, cotangent, backend=backend)
    assert got.value.shape == (2, 3)
    want = [
        [
            [0.225325473, 0.336866643, -0.230144832, -0.332047285],
            [-0.549031552, -0.264304816, 1.3123501, -0.499013728],
            [0.0, 0.0, 0.0, 0.0],
        ],
        [
            [-0.0332686244, 0.0816197434, -0.109400618, 0.0610494988],
            [0.619095251, 0.026593279, -0.863660086, 0.217971556],
            [-1.25017494, -2.08530047, 1.63103767, 1.70443774],
        ],
    ]
    assert got.gradient64 == near(want)
    assert not got.gradient64[0, 2].any()
    by_hand = mx.grad(lambda s: (kl_div_loss(s, p, backend=backend) * cotangent).sum())(q)
    assert to_float64(by_hand) == near(want)


def test_kd31_misspelt_reduction_is_an_error_at_construction(loss: Loss) -> None:
    build: Any = loss.module
    with pytest.raises(ValueError, match="'none', 'sum', 'mean'") as caught:
        build(reduction="avg")
    assert isinstance(caught.value, OutOfRangeError)


def test_kd33_kl_is_of_the_teacher_against_the_student(backend: Backend) -> None:
    q, p = mx.array(FAR_Q), mx.array(FAR_P)
    got = value_and_gradient(kl_div_loss, q, p, mx.ones(1), backend=backend)
    assert got.value64 == near([2.15332819])
    assert got.gradient64 == near([[0.769433364, -0.0894679767, -0.320526555, -0.359438832]])
    assert kl_div_loss(p, q, backend=backend).item() == pytest.approx(1.55381495, rel=1e-5)


def test_kd35_loss_holds_the_entropy_of_the_teacher(loss: Loss, backend: Backend) -> None:
    p = mx.array(FAR_P)
    assert loss.function(p, p, backend=backend).item() == 0.0


def test_kd36_t_squared_is_left_out_unless_asked_for(backend: Backend) -> None:
    q, p = mx.array(FAR_Q), mx.array(FAR_P)
    cotangent = mx.ones(1)
    plain = value_and_gradient(kl_div_loss, q, p, cotangent, temperature=4.0, backend=backend)
    assert plain.value64 == near([0.150374382])
    want = [[0.057317488, -0.00180142603, -0.0173455513, -0.0381705108]]
    assert plain.gradient64 == near(want)
    scaled = value_and_gradient(
        kl_div_loss, q, p, cotangent, temperature=4.0, scale_by_t2=True, backend=backend
    )
    assert scaled.value64 == near([2.40599012])
    want = [[0.917079809, -0.0288228165, -0.27752882, -0.610728172]]
    assert scaled.gradient64 == near(want)
    js = js_div_loss(q, p, temperature=4.0, backend=backend).item()
    assert js == pytest.approx(0.0371686147, rel=1e-5)
    js = js_div_loss(q, p, temperature=4.0, scale_by_t2=True, backend=backend).item()
    assert js == pytest.approx(0.594697836, rel=1e-5)


def test_kd37_every_path_uses_one_temperature_and_no_hard_labels(backend: Backend) -> None:
    q, p = mx.array(FAR_Q), mx.array(FAR_P)
    assert kl_div_loss(q, q, temperature=0.9, backend=backend).item() == 0.0
    plain = kl_div_loss(q, p, temperature=0.9, backend=backend).item()
    assert plain == pytest.approx(2.5761079, rel=1e-5)
    scaled = kl_div_loss(q, p, temperature=0.9, scale_by_t2=True, backend=backend).item()
    assert scaled == pytest.approx(2.0866474, rel=1e-5)


def test_kd38_log_probabilities_of_the_teacher_serve_as_its_logits(backend: Backend) -> None:
    q, p = mx.array(FAR_Q), mx.array(FAR_P)
    stored = p - mx.logsumexp(p, axis=-1, keepdims=True)
    for teacher, rtol in ((p, 1e-5), (stored, 1e-5), (p + 1000, 1e-3), (stored + 1000, 1e-3)):
        value = kl_div_loss(q, teacher, temperature=3.0, backend=backend).item()
        assert value == pytest.approx(0.267615224, rel=rtol)


def test_kd42_last_axis_is_the_vocabulary(backend: Backend) -> None:
    q, p = sentences()
    got = kl_div_loss(q, p, backend=backend)
    assert got.shape == (2, 3)
    assert to_float64(got) == near(PER_TOKEN)


def test_kd44_weights_act_as_the_mask_they_are(backend: Backend) -> None:
    q, p = sentences()
    weights = mx.array([[1, 1, 0], [1, 0, 0]])
    got = value_and_gradient(
        kl_div_loss, q, p, mx.array(1.0), weights=weights, reduction="mean", backend=backend
    )
    assert got.value.item() == pytest.approx(0.79052015, rel=1e-5)
    kept = [mx.stack([x[0, 0], x[0, 1], x[1, 0]]) for x in (q, p)]
    only_kept = kl_div_loss(*kept, reduction="mean", backend=backend).item()
    assert only_kept == pytest.approx(0.79052015, rel=1e-5)
    assert not got.gradient64[np.array(weights) == 0].any()


@pytest.mark.parametrize("shape", [(1, 3, 5), (3, 5), (4, 3, 1)], ids=str)
def test_kd45_teacher_of_another_shape_does_not_broadcast(
    loss: Loss, shape: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match=r"\(4, 3, 5\)") as caught:
        loss.function(mx.zeros((4, 3, 5)), mx.ones(shape))
    assert str(shape) in str(caught.value)


def test_kd47_vocabularies_that_differ_are_named_with_the_crop_that_helps(
    backend: Backend,
) -> None:
    with pytest.raises(ShapePairMismatchError, match=r"151936.*152064.*\[\.\.\., :151936\]"):
        kl_div_loss(mx.zeros((2, 151936)), mx.zeros((2, 152064)))
    q, p = mx.array([[1.0, 2.0, 0.0, -1.0]]), mx.array([[2.0, 1.0, 0.0, 0.0, 5.0, 5.0]])
    cropped = kl_div_loss(q, p[..., :4], backend=backend).item()
    assert cropped == pytest.approx(0.414752979, rel=1e-5)


def test_kd49_teacher_gets_no_gradient(loss: Loss, backend: Backend) -> None:
    q, p = mx.array([[1.0, 2.0, 0.5]]), mx.array([[0.2, 1.0, 3.0]])
    gradient = mx.grad(
        lambda s, t: loss.function(s, t, reduction="sum", backend=backend), argnums=1
    )(q, p)
    assert to_float64(gradient).tolist() == [[0.0, 0.0, 0.0]]
