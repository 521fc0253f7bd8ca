"""The input of the engines: a model of any family as arrays, sizes and a few choices, and batches of token ids.

`load.py` makes a `Network` from a packed folder; `oracle.py` and `engine.py` run it. The fields mirror `tb_config` in
ternarybert.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ternarybert.errors import InputError, UnsupportedModelError
from ternarybert.packed import PackedTensor

Floats: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int32]
Matrix: TypeAlias = PackedTensor | Floats


class Function(IntEnum):
    """Activation functions; `enum tb_function`."""

    IDENTITY = 0
    GELU = 1
    GELU_TANH = 2
    RELU = 3
    TANH = 4


class Range(IntEnum):
    """Which activations share a range; `enum tb_range`."""

    TOKEN = 0
    SEQUENCE = 1


class Output(IntEnum):
    """What a run computes; `enum tb_output`."""

    HIDDEN = 0  # one row per token
    FIRST = 1  # one row per sequence, as are the next three
    MEAN = 2
    DENSE = 3
    LOGITS = 4
    TOKEN_LOGITS = 5  # one row per token


@dataclass(frozen=True, eq=False)
class Linear:
    """x W^T + b."""

    weight: Matrix
    bias: Floats | None


@dataclass(frozen=True, eq=False)
class Norm:
    """LayerNorm."""

    weight: Floats
    bias: Floats


@dataclass(frozen=True, eq=False)
class Layer:
    """One Transformer layer."""

    query: Linear
    key: Linear
    value: Linear
    attention_output: Linear
    attention_norm: Norm
    up: Linear
    down: Linear
    output_norm: Norm


@dataclass(frozen=True)
class Sizes:
    """The sizes of a network; callers need them after the arrays are freed."""

    vocabulary: int
    hidden: int
    heads: int
    intermediate: int
    layers: int
    positions: int
    first_position: int
    types: int  # token types; 0: the model has none
    dense: int  # rows of the dense layer or pooler; 0: there is none
    head: int

    @property
    def max_tokens(self) -> int:
        """The length of the longest sequence that the model can read."""
        return self.positions - self.first_position

    def shape(self, batch: Batch, output: Output) -> tuple[int, int]:
        """Rows and columns of a result, or an error if the model has no such output."""
        if output == Output.DENSE and not self.dense:
            raise UnsupportedModelError("the model has no pooler; use the pooling mean or cls")
        if output in (Output.LOGITS, Output.TOKEN_LOGITS) and not self.head:
            raise UnsupportedModelError("the model has no task head, so it has no logits")
        rows = len(batch.ids) if output in (Output.HIDDEN, Output.TOKEN_LOGITS) else len(batch.lengths)
        columns = {Output.DENSE: self.dense, Output.LOGITS: self.head, Output.TOKEN_LOGITS: self.head}
        return rows, columns.get(output, self.hidden)


@dataclass(frozen=True, eq=False)
class Network:
    """A whole model."""

    sizes: Sizes
    function: Function  # between up and down
    norm_eps: float
    activation_bits: int  # 32: activations are not quantized
    range: Range
    symmetric: bool
    clip: float | None
    word: Matrix
    position: Floats
    type: Floats | None
    embedding_norm: Norm
    layers: tuple[Layer, ...]
    dense: Linear | None  # the pooler, or the dense layer of a head; reads the first token
    dense_function: Function
    dense_quantized: bool  # whether the input of `dense` is quantized
    head: Linear | None


@dataclass(frozen=True, eq=False)
class Batch:
    """Sequences of token ids, back to back, without padding."""

    lengths: Ints
    ids: Ints
    types: Ints | None  # None: type 0

    @classmethod
    def of(cls, sequences: list[Any], types: list[Any] | None = None) -> Batch:
        """Concatenate sequences of ids."""
        if not sequences:
            raise InputError("a batch must have at least one sequence")
        lengths = np.array([len(sequence) for sequence in sequences], np.int32)
        return cls(lengths, _flat(sequences), None if types is None else _flat(types))

    def check(self) -> None:
        """Refuse arrays of inconsistent lengths; an engine would read beyond their ends."""
        if len(self.lengths) < 1 or int(self.lengths.min()) < 1:
            raise InputError("every sequence must have at least one token")
        total = int(self.lengths.sum(dtype=np.int64))
        for array in (self.ids, self.types):
            if array is not None and len(array) != total:
                raise InputError(f"the lengths add up to {total} tokens, but there are {len(array)}")

    def starts(self) -> list[int]:
        """Where each sequence starts, and at the end where the last one ends."""
        return [0, *np.cumsum(self.lengths, dtype=np.int64).tolist()]


class Runner(Protocol):
    """Runs a network: the native engine or the oracle."""

    sizes: Sizes

    @property
    def kernel(self) -> str:
        """The name of the kernel, or `oracle`."""

    def run(self, batch: Batch, output: Output, *, alone: bool = False) -> Floats:
        """Run the model; `Output` defines the rows. `alone` uses the calling thread only."""

    def close(self) -> None:
        """Free the memory; a closed runner cannot run again."""


def _flat(sequences: list[Any]) -> Ints:
    whole = np.concatenate([np.asarray(sequence) for sequence in sequences if len(sequence)] or [np.empty(0, np.int32)])
    limits = np.iinfo(np.int32)
    if whole.ndim != 1 or (whole.size and whole.dtype.kind not in "iu"):
        raise InputError(f"token ids must be integers, not {whole.dtype} of shape {whole.shape}")
    if whole.size and not limits.min <= int(whole.min()) <= int(whole.max()) <= limits.max:
        raise InputError(f"token id {whole[np.argmax(np.abs(whole))]} does not fit into 32 bits")
    return np.ascontiguousarray(whole, np.int32)
