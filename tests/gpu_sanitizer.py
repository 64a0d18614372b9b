"""Runs every kernel under NVIDIA's compute-sanitizer, on a machine with a GPU and CUDA.

    python tests/gpu_sanitizer.py

Arguments are passed on to compute-sanitizer.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial

import mlx.core as mx
import numpy as np

from mlx_distill import js_div_loss, kl_div_loss

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
# Set in the process that compute-sanitizer watches.
LAUNCHES = "MLX_DISTILL_SANITIZED"


def launch_all() -> int:
    """Run both losses forward and backward on small sizes; return how many launches that were."""
    launches = 0
    generator = np.random.default_rng(0)
    for vocabulary in (1, 5, 33, 1000, 4097):
        for dtype in (mx.float32, mx.float16, mx.bfloat16):
            for rows in (1, 9):
                draws = generator.standard_normal((2, rows, vocabulary), dtype=np.float32)
                # An infinite gap takes the careful way through a row, a zero cotangent the short.
                draws[0, -1, : vocabulary // 2] = -np.inf
                q, p = (mx.array(draw).astype(dtype) for draw in draws)
                cotangent = mx.arange(rows).astype(dtype)
                for function in (kl_div_loss, js_div_loss):
                    run = partial(function, logits_p=p, backend="cuda")
                    mx.eval(mx.vjp(run, [q], [cotangent]))
                    launches += 2
    return launches


def main(arguments: list[str]) -> int:
    """Return 0 where no tool found anything."""
    if os.environ.get(LAUNCHES):
        print(f"{launch_all()} launches")
        return 0
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        print("compute-sanitizer is not on the path: it comes with the CUDA toolkit")
        return 2
    failed = []
    for tool in TOOLS:
        print(f"== {tool}", flush=True)
        options = ["--tool", tool, "--error-exitcode", "1", *arguments]
        command = [sanitizer, *options, sys.executable, __file__]
        if subprocess.run(command, env={**os.environ, LAUNCHES: "1"}, check=False).returncode != 0:
            failed.append(tool)
    print(f"failed: {', '.join(failed)}" if failed else f"clean: {', '.join(TOOLS)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
