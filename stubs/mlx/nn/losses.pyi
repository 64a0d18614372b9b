from typing import Literal, TypeAlias

import mlx.core as mx

_Reduction: TypeAlias = Literal["none", "mean", "sum"]

def cross_entropy(
    logits: mx.array,
    targets: mx.array,
    weights: mx.array | None = None,
    axis: int = -1,
    label_smoothing: float = 0.0,
    reduction: _Reduction = "none",
) -> mx.array: ...
def kl_div_loss(
    inputs: mx.array, targets: mx.array, axis: int = -1, reduction: _Reduction = "none"
) -> mx.array: ...
