"""The batches that are timed: random tokens in the requested shapes, and one with the lengths of real texts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ternarybert.errors import OptionError

RAGGED = "ragged"
CHECK = "check"  # not timed: the outputs of all engines are compared on it
CALIBRATION_TEXTS = "texts.npz"  # of a run with real texts: engines with fixed activation ranges take them from these
SHAPES = ("1x16", "1x128", "1x384", "8x128", RAGGED)
_FIRST_WORD = 1000  # lower ids are special tokens and unused entries of BERT's vocabulary

# Lengths in tokens of the first 32 pairs of MRPC's dev set with BERT's vocabulary: a batch of real texts.
RAGGED_LENGTHS = (
    44, 52, 74, 47, 36, 48, 52, 67, 49, 51, 78, 47, 64, 70, 53, 55,
    59, 65, 74, 48, 37, 53, 42, 68, 49, 45, 51, 60, 53, 58, 45, 68,
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """A batch padded with zeros, for engines without ragged batches."""

    ids: NDArray[np.int64]
    mask: NDArray[np.int64]

    @property
    def lengths(self) -> list[int]:
        """The number of tokens of each sequence, without padding."""
        return [int(n) for n in self.mask.sum(1)]

    @property
    def types(self) -> NDArray[np.int64]:
        """Token types: all 0."""
        return np.zeros_like(self.ids)

    def sequences(self) -> list[list[int]]:
        """The ids without padding."""
        return [row[:n].tolist() for row, n in zip(self.ids, self.lengths, strict=True)]

    def feed(self) -> dict[str, NDArray[np.int64]]:
        """The batch under the input names of transformers models."""
        return {"input_ids": self.ids, "attention_mask": self.mask, "token_type_ids": self.types}


def lengths_of(shape: str, longest: int) -> list[int]:
    """The sequence lengths of a shape such as `8x128` or `ragged`."""
    if shape == RAGGED:
        lengths = list(RAGGED_LENGTHS)
    else:
        match = re.fullmatch(r"(\d+)x(\d+)", shape)
        if not match or not int(match[1]) or not int(match[2]):
            raise OptionError(f"'{shape}' is not a shape; give BATCHxLENGTH, such as 8x128, or {RAGGED}")
        lengths = [int(match[2])] * int(match[1])
    if max(lengths) > longest:
        raise OptionError(f"{shape}: the model accepts at most {longest} tokens")
    return lengths


def make_tokens(lengths: list[int], vocabulary: int, seed: int = 0) -> TokenBatch:
    """A batch of random words."""
    rng = np.random.default_rng(seed)
    width = max(lengths)
    ids = rng.integers(min(_FIRST_WORD, vocabulary // 2), vocabulary, (len(lengths), width))
    mask = (np.arange(width) < np.array(lengths)[:, None]).astype(np.int64)
    return TokenBatch(ids * mask, mask)


def pad_tokens(sequences: list[list[int]], width: int | None = None) -> TokenBatch:
    """A batch of given sequences, padded to the longest of them, or to `width` tokens."""
    lengths = [len(sequence) for sequence in sequences]
    mask = (np.arange(width or max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
    ids = np.zeros_like(mask)
    ids[mask.astype(bool)] = np.concatenate([np.array(sequence, np.int64) for sequence in sequences])
    return TokenBatch(ids, mask)


def write_sequences(path: Path, sequences: list[list[int]]) -> None:
    """Write token ids of texts of any length."""
    batch = pad_tokens(sequences)
    np.savez(path, allow_pickle=False, ids=batch.ids, mask=batch.mask)


def read_sequences(path: Path) -> list[list[int]]:
    """Read what `write_sequences` wrote."""
    with np.load(path) as arrays:
        return TokenBatch(arrays["ids"], arrays["mask"]).sequences()


def write_inputs(path: Path, shapes: tuple[str, ...], config: dict[str, Any]) -> None:
    """Write all batches of a run, and the one for the check."""
    vocabulary, longest = int(config["vocab_size"]), int(config["max_position_embeddings"])
    batches = {shape: make_tokens(lengths_of(shape, longest), vocabulary) for shape in shapes}
    batches[CHECK] = make_tokens([min(n, longest) for n in (32, 7, 25, 32, 18, 9, 30, 21)], vocabulary, seed=1)
    arrays = {f"{name}.{part}": getattr(tokens, part) for name, tokens in batches.items() for part in ("ids", "mask")}
    np.savez(path, allow_pickle=False, **arrays)


def read_inputs(path: Path) -> dict[str, TokenBatch]:
    """Read the batches that `write_inputs` wrote."""
    with np.load(path) as arrays:
        names = sorted({name.rpartition(".")[0] for name in arrays.files})
        return {name: TokenBatch(arrays[f"{name}.ids"], arrays[f"{name}.mask"]) for name in names}
