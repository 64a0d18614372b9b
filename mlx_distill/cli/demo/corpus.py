"""The text: help topics that every CPython carries, split by topic, as tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from mlx_distill.cli.demo.options import DemoError

HELD_OUT_EVERY = 8

Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Split:
    """Paragraphs to train on and paragraphs held out; no paragraph is in both or twice in one."""

    train: str
    held_out: str


@dataclass(frozen=True)
class Corpus:
    """Both parts of the text as tokens of one tokenizer, trained on the first part alone."""

    tokenizer: Tokenizer
    train: Ids
    held_out: Ids
    token_bytes: Ids
    """[vocabulary] How many bytes of text a token stands for."""

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return len(self.token_bytes)

    def count_bytes(self, ids: Ids) -> int:
        """How many bytes of text the tokens stand for."""
        return int(self.token_bytes[ids].sum())


def read_topics() -> Mapping[str, str]:
    """The help topics of this Python, by name."""
    try:
        from pydoc_data.topics import topics  # noqa: PLC0415 - some systems leave it out
    except ImportError as exc:
        raise DemoError(
            "this Python has no pydoc_data.topics, the text to train on; install the complete "
            "standard library, or use another Python"
        ) from exc
    found: Mapping[str, str] = topics
    return found


def split_topics(topics: Mapping[str, str]) -> Split:
    """Hold out every eighth topic, in the order of the names."""
    names = sorted(topics)
    held_out_names = set(names[::HELD_OUT_EVERY])
    held_out = _paragraphs(topics[name] for name in names if name in held_out_names)
    train = _paragraphs(topics[name] for name in names if name not in held_out_names)
    kept = [text for key, text in train.items() if key not in held_out]
    return Split("\n\n".join(kept), "\n\n".join(held_out.values()))


def _paragraphs(texts: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        for paragraph in re.split(r"\n\s*\n", text):
            # Topics quote one another with other line breaks and indents.
            if key := " ".join(paragraph.split()):
                found.setdefault(key, paragraph)
    return found


def tokenize(split: Split, vocabulary: int) -> Corpus:
    """Train a byte-level BPE on the training text and apply it to both parts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([split.train], trainer)
    tokens = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return Corpus(
        tokenizer=tokenizer,
        train=np.array(tokenizer.encode(split.train).ids, np.int32),
        held_out=np.array(tokenizer.encode(split.held_out).ids, np.int32),
        # A byte-level token is spelled with one character for each of its bytes.
        token_bytes=np.array([len(token) for token, _ in tokens], np.int32),
    )


def draw_batches(
    ids: Ids, *, steps: int, batch: int, window: int, seed: tuple[int, ...]
) -> Iterator[tuple[mx.array, mx.array]]:
    """Random windows [batch, window] and the tokens that follow each of theirs."""
    generator = np.random.default_rng(seed)
    for _ in range(steps):
        starts = generator.integers(0, len(ids) - window, batch)
        windows = ids[starts[:, None] + np.arange(window + 1)]
        yield mx.array(windows[:, :-1]), mx.array(windows[:, 1:])


def consecutive_windows(ids: Ids, window: int) -> tuple[Ids, Ids]:
    """All whole windows [n, window] of a text and the tokens that follow."""
    n = (len(ids) - 1) // window
    return ids[: n * window].reshape(n, window), ids[1 : n * window + 1].reshape(n, window)
