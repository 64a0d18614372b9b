"""Small kernels for the tests of the harness: 64 threads, one input, one output."""

from __future__ import annotations

import mlx.core as mx

from host.run import Mode, Result, Schedule, run_kernel
from host.trace import KernelText

N = 64


def run(
    source: str,
    *,
    header: str = "",
    q: mx.array | None = None,
    size: int = N,
    threads: int = N,
    group: int = N,
    schedule: Schedule = "serial",
    seed: int = 0,
    mode: Mode | None = None,
    dtype: mx.Dtype = mx.float32,
    offsets: dict[str, int] | None = None,
) -> Result:
    """Run `source` over q [64] and out [size] with `t`, `lane` and `simd` defined on line 1."""
    names = (
        "uint t = thread_index_in_threadgroup; uint lane = thread_index_in_simdgroup; "
        "uint simd = simdgroup_index_in_threadgroup; (void)t; (void)lane; (void)simd;"
    )
    return run_kernel(
        KernelText("planted", names + source, header),
        inputs={"q": mx.arange(N, dtype=mx.float32) if q is None else q},
        outputs={"out": ((size,), dtype)},
        grid=(threads, 1, 1),
        threadgroup=(group, 1, 1),
        template={"T": dtype},
        schedule=schedule,
        seed=seed,
        mode=mode,
        offsets=offsets,
    )
