"""Kernel handles, and the launch around them: tested with fakes, since a launch needs a GPU."""

from __future__ import annotations

import copy
import pickle
from typing import TYPE_CHECKING

import mlx.core as mx
import pytest

from mlx_distill import (
    BackendError,
    EmptyInputError,
    JSDivLoss,
    KLDivLoss,
    LengthMismatchError,
    OutOfRangeError,
)
from mlx_distill._ops import launch
from mlx_distill._ops.options import Scaling
from mlx_distill.kernels import handles
from mlx_distill.kernels.handles import KernelHandle, read_kernel_text

if TYPE_CHECKING:
    from collections.abc import Callable

ALL = [handles.KL_FORWARD, handles.KL_BACKWARD, handles.JS_FORWARD, handles.JS_BACKWARD]
SCALING = Scaling(temperature=1.0, scale_by_t2=False)
by_name = pytest.mark.parametrize("handle", ALL, ids=lambda handle: handle.name)


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch) -> dict[object, object]:
    empty: dict[object, object] = {}
    monkeypatch.setattr(handles, "_COMPILED", empty)
    return empty


def fake(monkeypatch: pytest.MonkeyPatch, call: Callable[..., list[mx.array]]) -> None:
    monkeypatch.setattr(KernelHandle, "_build", lambda _handle, _backend: call)


def run_forward(rows: int = 2, vocabulary: int = 5) -> tuple[mx.array, mx.array]:
    logits = mx.zeros((rows, vocabulary))
    return launch.forward(handles.KL_FORWARD, "metal", logits, logits, SCALING, 4)


@by_name
def test_names_and_arity_are_those_of_the_direction(handle: KernelHandle) -> None:
    assert handle.name == f"mlx_distill_{handle.divergence}_{handle.direction}"
    outputs = {"forward": ("loss", "statistics"), "backward": ("gradient",)}
    assert handle.output_names == outputs[handle.direction]
    assert handle.input_names[:2] == ("logits_q", "logits_p")


@by_name
def test_a_handle_is_a_value(handle: KernelHandle) -> None:
    for twin in (copy.deepcopy(handle), pickle.loads(pickle.dumps(handle))):
        assert twin == handle
        assert hash(twin) == hash(handle)


def test_modules_hold_their_own_handles() -> None:
    assert KLDivLoss().kernels == (handles.KL_FORWARD, handles.KL_BACKWARD)
    assert JSDivLoss().kernels == (handles.JS_FORWARD, handles.JS_BACKWARD)


@by_name
def test_a_kernel_is_built_on_first_use_and_then_reused(
    handle: KernelHandle, empty_cache: dict[object, object]
) -> None:
    assert not empty_cache
    built = handle.compiled("metal")
    assert empty_cache
    assert handle.compiled("metal") is built
    assert copy.deepcopy(handle).compiled("metal") is built


def test_a_failed_build_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    builds = []

    def build(_handle: KernelHandle, _backend: str) -> Callable[..., list[mx.array]]:
        builds.append(1)
        if len(builds) == 1:
            raise ValueError("no compiler today")
        return lambda **_: [mx.zeros((2,)), mx.zeros((2, 4))]

    monkeypatch.setattr(KernelHandle, "_build", build)
    with pytest.raises(BackendError, match="no compiler today") as caught:
        run_forward()
    assert isinstance(caught.value.__cause__, ValueError)
    assert run_forward()[0].shape == (2,)
    assert len(builds) == 2


@by_name
def test_every_target_has_the_same_body_and_shared_text(handle: KernelHandle) -> None:
    metal, cuda = handle.header("metal"), handle.header("cuda")
    assert metal != cuda
    for part in ("rows.metal", "statistics.metal", f"{handle.divergence}.metal"):
        assert read_kernel_text(part) in metal
        assert read_kernel_text(part) in cuda


def test_a_launch_without_outputs_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(monkeypatch, lambda **_: [])
    with pytest.raises(EmptyInputError) as caught:
        run_forward()
    assert caught.value.context == "mlx_distill_kl_forward: kernel outputs"


def test_a_launch_with_another_number_of_outputs_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake(monkeypatch, lambda **_: [mx.zeros((2,))])
    with pytest.raises(LengthMismatchError) as caught:
        run_forward()
    assert (caught.value.expected, caught.value.actual) == (2, 1)


def test_a_failed_launch_chains_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> list[mx.array]:
        raise RuntimeError("out of registers")

    fake(monkeypatch, fail)
    with pytest.raises(BackendError, match=r"mlx_distill_kl_forward.*out of registers") as caught:
        run_forward()
    assert isinstance(caught.value.__cause__, RuntimeError)


@pytest.mark.parametrize("rows", [1, 256, 257, 70_000])
@pytest.mark.parametrize("vocabulary", [1, 7, 1000, 32000, 151936])
def test_the_grid_is_whole_threadgroups_of_whole_simd_groups(
    monkeypatch: pytest.MonkeyPatch, rows: int, vocabulary: int
) -> None:
    seen: dict[str, tuple[int, int, int]] = {}

    def call(**arguments: tuple[int, int, int]) -> list[mx.array]:
        seen.update(grid=arguments["grid"], group=arguments["threadgroup"])
        return [mx.zeros((1,)), mx.zeros((1, 4))]

    fake(monkeypatch, call)
    run_forward(rows, vocabulary)
    threads = seen["group"][0]
    assert threads % 32 == 0
    assert 32 <= threads <= 1024
    assert seen == {"grid": (rows * threads, 1, 1), "group": (threads, 1, 1)}


def test_more_rows_than_a_grid_holds_are_refused_before_the_launch() -> None:
    logits = mx.zeros((2**26, 1))  # lazy: never evaluated
    with pytest.raises(OutOfRangeError) as caught:
        launch.forward(handles.KL_FORWARD, "metal", logits, logits, SCALING, 4)
    assert caught.value.value == str(2**26)
