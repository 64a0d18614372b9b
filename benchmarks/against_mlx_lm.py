"""Time and peak memory of forward + backward against mlx-lm's losses, in one run.

    python benchmarks/against_mlx_lm.py [rows] [vocabulary]

Prints medians of 7, taken in turn, their ratio, and the least extra peak of 5 runs in
float32-sized logits arrays. Needs mlx-lm.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version

import mlx.core as mx
from mlx_lm.tuner import losses as peer

from mlx_distill import js_div_loss, kl_div_loss

Loss = Callable[[mx.array, mx.array], mx.array]


def gradient(loss: Loss, logits_p: mx.array) -> Callable[[mx.array], list[mx.array]]:
    """Forward and backward of the summed loss."""

    def total(logits_q: mx.array) -> mx.array:
        return loss(logits_q, logits_p).sum()

    return lambda logits_q: list(mx.value_and_grad(total)(logits_q))


def value(loss: Loss, logits_p: mx.array) -> Callable[[mx.array], list[mx.array]]:
    """Forward alone."""
    return lambda logits_q: [loss(logits_q, logits_p)]


def seconds(run: Callable[[mx.array], list[mx.array]], logits_q: mx.array) -> float:
    """Wall time of one evaluation."""
    begun = time.perf_counter()
    mx.eval(run(logits_q))
    return time.perf_counter() - begun


def extra_peak(run: Callable[[mx.array], list[mx.array]], logits_q: mx.array) -> float:
    """Least extra peak of 5 runs, in float32-sized logits arrays."""
    peaks = []
    for _ in range(5):
        mx.synchronize()
        mx.clear_cache()
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        outputs = run(logits_q)
        mx.eval(outputs)
        peaks.append(mx.get_peak_memory() - before)
        del outputs
    return min(peaks) / (4 * logits_q.size)


def main(rows: int, vocabulary: int) -> None:
    """Print one line for each loss and dtype."""
    print(f"[{rows}, {vocabulary}] on {mx.default_device()}, mlx {version('mlx')}")
    for dtype in (mx.float32, mx.bfloat16):
        logits_q, logits_p = (
            (3 * mx.random.normal((rows, vocabulary), key=mx.random.key(i))).astype(dtype)
            for i in range(2)
        )
        mx.eval(logits_q, logits_p)
        for ours, theirs in (
            (kl_div_loss, peer.kl_div_loss),
            (js_div_loss, peer.js_div_loss),
        ):
            runs = [gradient(loss, logits_p) for loss in (ours, theirs)]
            for run in runs:
                seconds(run, logits_q)
            pairs = [[seconds(run, logits_q) for run in runs] for _ in range(7)]
            mine, other = (statistics.median(column) for column in zip(*pairs, strict=True))
            forward = extra_peak(value(ours, logits_p), logits_q)
            print(
                f"{ours.__name__} {str(dtype).rpartition('.')[2]:<9}"
                f"ours {1e3 * mine:6.0f} ms  mlx-lm {1e3 * other:6.0f} ms  "
                f"ratio {other / mine:4.2f}  extra peak: forward {forward:.2f}, "
                f"forward + backward {extra_peak(runs[0], logits_q):.2f} "
                f"(mlx-lm {extra_peak(runs[1], logits_q):.2f})"
            )


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    main(*(numbers or [256, 32000]))
