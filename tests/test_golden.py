"""Golden values, each made by the command beside it (`python tests/golden.py ...`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import mlx.core as mx
import numpy as np
import pytest

import oracle
from oracle import Name
from subjects import LOSSES, value_and_gradient
from tolerance import gradient_tolerance, value_tolerance

if TYPE_CHECKING:
    from mlx_distill import Backend


class Golden(NamedTuple):
    name: Name
    temperature: float
    student: str
    teacher: str
    value: float
    gradient: list[float]


GOLDENS = [
    # golden.py kl 1 "0.5 -1.25 2 0.125" "1.5 0.25 -0.5 3"
    Golden(
        "kl",
        1.0,
        "0.5 -1.25 2 0.125",
        "1.5 0.25 -0.5 3",
        1.4392065241065772,
        [-0.011729938942641333, -0.021133859866857235, 0.68365981026217288, -0.65079601145267432],
    ),
    # golden.py js 1 "0.5 -1.25 2 0.125" "1.5 0.25 -0.5 3"
    Golden(
        "js",
        1.0,
        "0.5 -1.25 2 0.125",
        "1.5 0.25 -0.5 3",
        0.3407915758816598,
        [-0.026702807362199308, -0.00860840976072436, 0.12683348255469992, -0.09152226543177625],
    ),
    # golden.py kl 0.7 "0.5 -1.25 2 0.125" "1.5 0.25 -0.5 3"
    Golden(
        "kl",
        0.7,
        "0.5 -1.25 2 0.125",
        "1.5 0.25 -0.5 3",
        2.36915612698089,
        [-0.00635874781628010, -0.01306440519528255, 1.1864308450886683, -1.1670076920771056],
    ),
    # golden.py js 0.7 "0.5 -1.25 2 0.125" "1.5 0.25 -0.5 3"
    Golden(
        "js",
        0.7,
        "0.5 -1.25 2 0.125",
        "1.5 0.25 -0.5 3",
        0.49033268524596018,
        [-0.03296007888151268, -0.00516320278839048, 0.14236414873446312, -0.10424086706455995],
    ),
    # golden.py kl 3 "40 -40 0" "-40 40 0"
    Golden(
        "kl",
        3.0,
        "40 -40 0",
        "-40 40 0",
        26.666623477348923,
        [0.33333279346686153, -0.33333279346686153, 0.0],
    ),
    # golden.py js 3 "40 -40 0" "-40 40 0"
    Golden(
        "js",
        3.0,
        "40 -40 0",
        "-40 40 0",
        0.69314605787024112,
        [1.8711421046577079e-7, -1.1658175159470959e-11, -1.8710255229061132e-7],
    ),
    # golden.py kl 1 "1 2 3" "1.0009765625 2 2.9990234375"
    Golden(
        "kl",
        1.0,
        "1 2 3",
        "1.0009765625 2 2.9990234375",
        2.0247973404783639e-7,
        [-0.0001385815790462711, -0.00013746010299213033, 0.00027604168203840143],
    ),
    # golden.py js 1 "1 2 3" "1.0009765625 2 2.9990234375"
    Golden(
        "js",
        1.0,
        "1 2 3",
        "1.0009765625 2 2.9990234375",
        5.061318819450291e-8,
        [-3.4634348093686667e-5, -3.4366395147881527e-5, 6.9000743241568193e-5],
    ),
]


def logits(text: str) -> mx.array:
    return mx.array([[float(x) for x in text.split()]])


@pytest.mark.parametrize(
    "golden", GOLDENS, ids=lambda g: f"{g.name}-T{g.temperature:g}-{g.student}"
)
def test_golden_value_and_gradient_come_out(backend: Backend, golden: Golden) -> None:
    loss = next(loss for loss in LOSSES if loss.name == golden.name)
    q, p = logits(golden.student), logits(golden.teacher)
    got = value_and_gradient(
        loss.function, q, p, mx.ones(1), temperature=golden.temperature, backend=backend
    )
    want, slopes = np.array([golden.value]), np.array([golden.gradient])
    assert np.abs(got.value64 - want) <= value_tolerance(want, mx.float32)
    found = oracle.rows(golden.name, q, p, temperature=golden.temperature)
    allowed = gradient_tolerance(slopes, found.largest, np.ones(1), found.slope, mx.float32)
    assert (np.abs(got.gradient64 - slopes) <= allowed).all()


@pytest.mark.parametrize(
    "golden", GOLDENS, ids=lambda g: f"{g.name}-T{g.temperature:g}-{g.student}"
)
def test_golden_values_agree_with_the_oracle(golden: Golden) -> None:
    found = oracle.rows(
        golden.name, logits(golden.student), logits(golden.teacher), temperature=golden.temperature
    )
    assert found.value == pytest.approx(np.array([golden.value]), rel=1e-9)
    assert found.gradient == pytest.approx(np.array([golden.gradient]), rel=1e-9, abs=1e-20)
