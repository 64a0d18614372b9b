"""A small decoder-only transformer."""

from __future__ import annotations

from typing import cast

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten

from mlx_distill.cli.demo.options import ModelSize


class Block(nn.Module):
    """Causal self-attention and a feed-forward layer, each beside a residual path."""

    def __init__(self, size: ModelSize) -> None:
        super().__init__()
        width = size.width
        self.heads = size.heads
        self.norm_attention = nn.RMSNorm(width)
        self.to_qkv = nn.Linear(width, 3 * width, bias=False)
        self.rope = nn.RoPE(width // size.heads)
        self.from_heads = nn.Linear(width, width, bias=False)
        self.norm_mlp = nn.RMSNorm(width)
        self.up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(4 * width, width, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        """Features [batch, window, width] to features of the same shape."""
        x = x + self._attend(self.norm_attention(x))
        return x + self.down(nn.relu(self.up(self.norm_mlp(x))))

    def _attend(self, x: mx.array) -> mx.array:
        batch, window, width = x.shape
        by_head = (batch, window, self.heads, width // self.heads)
        q, k, v = (
            part.reshape(by_head).transpose(0, 2, 1, 3) for part in mx.split(self.to_qkv(x), 3, -1)
        )
        heads = mx.fast.scaled_dot_product_attention(
            self.rope(q), self.rope(k), v, scale=by_head[-1] ** -0.5, mask="causal"
        )
        return self.from_heads(heads.transpose(0, 2, 1, 3).reshape(x.shape))


class LanguageModel(nn.Module):
    """Tokens [batch, window] to logits [batch, window, vocabulary]."""

    def __init__(self, vocabulary: int, size: ModelSize) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, size.width)
        self.blocks = [Block(size) for _ in range(size.blocks)]
        self.norm = nn.RMSNorm(size.width)
        self.head = nn.Linear(size.width, vocabulary, bias=False)

    def __call__(self, tokens: mx.array) -> mx.array:
        """Logits of the token that follows each."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def make_model(vocabulary: int, size: ModelSize, seed: int) -> LanguageModel:
    """A model whose weights depend on the seed alone."""
    mx.random.seed(seed)
    model = LanguageModel(vocabulary, size)
    mx.eval(model.parameters())
    return model


def count_parameters(model: nn.Module) -> int:
    """How many numbers the model holds."""
    leaves = cast("list[tuple[str, mx.array]]", tree_flatten(model.parameters()))
    return sum(array.size for _, array in leaves)
