"""Each kernel and dtype compiled for CUDA: it compiles, fits, and reads 16 bytes at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path

import mlx.core as mx
import pytest

from mlx_distill.kernels import handles
from mlx_distill.kernels.handles import KernelHandle
from nvrtc.compiler import (
    CompileError,
    Cubin,
    compile_silently,
    compile_source,
)
from nvrtc.mlx_source import MlxTexts, generate
from nvrtc.sass import is_vector, listing, parse
from subjects import DTYPES

KERNELS = (handles.KL_FORWARD, handles.KL_BACKWARD, handles.JS_FORWARD, handles.JS_BACKWARD)
ARCHITECTURES = ("sm_80", "sm_90", "sm_120")

# JS reads a row once for its statistics and once for its terms.
VECTOR_LOOPS = {"kl_forward": 1, "js_forward": 2, "kl_backward": 1, "js_backward": 1}
REDUCTION_BYTES = {"forward": 4 * 32 * 4, "backward": 0}
# With more of them a multiprocessor holds fewer than four groups of 256 threads.
MOST_REGISTERS = 64


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("handle", KERNELS, ids=lambda handle: handle.name)
def test_a_kernel_needs_no_stack_and_moves_16_bytes_at_a_time(
    handle: KernelHandle,
    dtype: str,
    architecture: str,
    texts: MlxTexts,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    source = generate(handle, DTYPES[dtype], texts)
    cubin = compile_source(source, handle.name, architecture, texts)
    code = parse(listing(cubin.code, tmp_path))
    found = cubin.resources
    record_property(
        "cuda resources",
        f"{handle.name:25}{dtype:10}{architecture:7}{found.registers:4} registers,"
        f"{found.shared:5} shared,{found.stack:3} stack,{found.spill_stores:3} spilled",
    )
    assert astuple(found)[2:] == (0, 0, 0)
    assert not code.local_memory()
    assert found.registers <= MOST_REGISTERS
    assert found.shared == REDUCTION_BYTES[handle.direction]

    loops = code.vector_loops()
    assert len(loops) >= VECTOR_LOOPS[f"{handle.divergence}_{handle.direction}"]
    for loop in loops:
        assert all(is_vector(name) for name in (*loop.loads(), *loop.stores()))
        # Both sides of each pass, and the gradient of as many entries.
        assert len(loop.loads()) % 2 == 0
        written = len(loop.loads()) // 2 if handle.direction == "backward" else 0
        assert len(loop.stores()) == written


def test_a_report_does_not_change_the_code(texts: MlxTexts, tmp_path: Path) -> None:
    source, name = generate(handles.JS_FORWARD, mx.bfloat16, texts), handles.JS_FORWARD.name
    silent = compile_silently(source, name, "sm_90", texts)
    reported = compile_source(source, name, "sm_90", texts).code
    # The options themselves are in the file, so the files differ.
    assert listing(silent, tmp_path) == listing(reported, tmp_path)


def compile_planted(body: str, texts: MlxTexts) -> Cubin:
    """Compile `body`, between the same texts as a kernel of the library."""
    source = (
        f"{texts.start}{handles.KL_FORWARD.header('cuda')}namespace mlx::core::cu {{\n"
        f"__global__ void planted(const float* in, float* out, int size) {{\n{body}\n}}\n}}\n"
    )
    return compile_source(source, "planted", "sm_90", texts)


def test_a_stack_is_seen(texts: MlxTexts, tmp_path: Path) -> None:
    body = """
        float kept[64];
        for (int i = 0; i < 64; i++) kept[i] = in[i] * in[size + i];
        for (int i = 0; i < size; i++) out[i] = kept[int(in[i]) & 63];
    """
    planted = compile_planted(body, texts)
    assert planted.resources.stack > 0
    assert parse(listing(planted.code, tmp_path)).local_memory()


def test_loads_of_single_entries_are_seen(texts: MlxTexts, tmp_path: Path) -> None:
    body = "for (int i = threadIdx.x; i < size; i += blockDim.x) out[i] = in[i] + 1.0f;"
    code = parse(listing(compile_planted(body, texts).code, tmp_path))
    assert any(loop.loads() and loop.stores() for loop in code.loops)
    assert not code.vector_loops()


def test_a_name_that_mlx_declares_too_is_an_error(texts: MlxTexts) -> None:
    """In MLX's namespace its own load_vector hides ours: a body has to leave it to a helper."""
    with pytest.raises(CompileError, match="load_vector"):
        compile_planted(
            "out[0] = ::load_vector<float>(in).at[0] + load_vector<float>(in).at[0];", texts
        )
