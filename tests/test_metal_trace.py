"""The Metal launch, traced without Metal: MLX prints the kernel that it would compile."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, cast

import mlx.core as mx
import pytest

from mlx_distill._ops import launch
from mlx_distill._ops.options import Scaling
from mlx_distill.kernels import handles
from mlx_distill.kernels.handles import KernelHandle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mlx_distill.kernels.handles import CompiledKernel, KernelBackend

FORWARDS = [(handles.KL_FORWARD, 4), (handles.JS_FORWARD, 5)]
BACKWARDS = [(handles.KL_BACKWARD, 4), (handles.JS_BACKWARD, 5)]
METAL_NAMES = {mx.float32: "float", mx.float16: "float16_t", mx.bfloat16: "bfloat16_t"}
SCALING = Scaling(temperature=2.0, scale_by_t2=False)


@pytest.fixture
def trace(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., str]:
    """What MLX generates for a bare launch; printed while the launch is traced for export."""
    compiled = KernelHandle.compiled

    def verbose(handle: KernelHandle, backend: KernelBackend) -> CompiledKernel:
        return cast("CompiledKernel", partial(compiled(handle, backend), verbose=True))

    monkeypatch.setattr(KernelHandle, "compiled", verbose)

    def run(function: Callable[..., object], inputs: Sequence[mx.array]) -> str:
        mx.export_function(str(tmp_path / "trace.mlxfn"), function, *inputs)
        return capfd.readouterr().out

    return run


def signature(source: str) -> dict[str, str]:
    """Parameter name to type, of the kernel in `source`."""
    (parameters,) = re.findall(r"\[\[kernel\]\] void \w+\((.*?)\) \{", source, re.DOTALL)
    found = re.findall(r"^\s*(.+?)\s*(\w+) \[\[", parameters, re.MULTILINE)
    return {name: kind for kind, name in found}


def space(elements: int) -> str:
    return "constant" if elements < 8 else "device"


@pytest.mark.parametrize("dtype", METAL_NAMES, ids=METAL_NAMES.values())
@pytest.mark.parametrize("rows", [1, 7, 8, 9])
@pytest.mark.parametrize("vocabulary", [1, 5, 1000])
@pytest.mark.parametrize(("handle", "width"), FORWARDS, ids=["kl", "js"])
def test_forward_has_the_signature_that_its_text_takes(
    trace: Callable[..., str],
    handle: KernelHandle,
    width: int,
    vocabulary: int,
    rows: int,
    dtype: mx.Dtype,
) -> None:
    def bare(q: mx.array, p: mx.array) -> tuple[mx.array, mx.array]:
        return launch.forward(handle, "metal", q, p, SCALING, width)

    logits = mx.zeros((rows, vocabulary), dtype=dtype)
    source = trace(bare, [logits, logits])
    kind = f"const {space(rows * vocabulary)} {METAL_NAMES[dtype]}*"
    found = signature(source)
    assert found["logits_q"] == found["logits_p"] == kind
    assert found["scaling"] == "const constant float*"
    assert found["loss"] == found["statistics"] == "device float*"
    assert found["logits_q_shape"] == "const constant int*"
    assert handle.header("metal") in source
    assert handle.source() in source


@pytest.mark.parametrize("dtype", METAL_NAMES, ids=METAL_NAMES.values())
@pytest.mark.parametrize("rows", [1, 7, 8, 9])
@pytest.mark.parametrize(("handle", "width"), BACKWARDS, ids=["kl", "js"])
def test_backward_has_the_signature_that_its_text_takes(
    trace: Callable[..., str], handle: KernelHandle, width: int, rows: int, dtype: mx.Dtype
) -> None:
    def bare(q: mx.array, p: mx.array, c: mx.array, s: mx.array) -> mx.array:
        return launch.gradient(handle, "metal", q, p, c, s, SCALING)

    logits = mx.zeros((rows, 11), dtype=dtype)
    source = trace(bare, [logits, logits, mx.zeros((rows,)), mx.zeros((rows, width))])
    found = signature(source)
    assert found["logits_q"] == found["logits_p"] == f"const device {METAL_NAMES[dtype]}*"
    assert found["cotangent"] == f"const {space(rows)} float*"
    assert found["statistics"] == f"const {space(rows * width)} float*"
    assert found["gradient"] == f"device {METAL_NAMES[dtype]}*"


@pytest.mark.parametrize(
    "handle", [*(pair[0] for pair in FORWARDS + BACKWARDS)], ids=lambda handle: handle.name
)
def test_attributes_that_the_text_uses_are_parameters(
    trace: Callable[..., str], handle: KernelHandle
) -> None:
    def bare(q: mx.array, p: mx.array, c: mx.array, s: mx.array) -> object:
        if handle.direction == "forward":
            return launch.forward(handle, "metal", q, p, SCALING, s.shape[1])
        return launch.gradient(handle, "metal", q, p, c, s, SCALING)

    logits = mx.zeros((2, 16))
    found = signature(trace(bare, [logits, logits, mx.zeros((2,)), mx.zeros((2, 5))]))
    attributes = set(found) - {*handle.input_names, *handle.output_names, "logits_q_shape"}
    assert attributes == {
        "thread_index_in_threadgroup",
        "threads_per_threadgroup",
        "thread_index_in_simdgroup",
        "simdgroup_index_in_threadgroup",
        "threadgroup_position_in_grid",
    }
