"""A loaded model: texts in, answers out.

A text's answer does not depend on the others: batches are only there to keep the engine busy. Every method may be
called from several threads at a time. What the answers are, `heads.py` says.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from ternarybert.errors import InputError, PackedConfigError, TruncationWarning, UnsupportedModelError, suggest
from ternarybert.runtime.network import Batch, Floats, Output, Runner
from ternarybert.runtime.text import Text, TextEncoder, as_stream, as_texts

POOLINGS = {"mean": Output.MEAN, "cls": Output.FIRST, "pooler": Output.DENSE, "tokens": Output.HIDDEN}

_TOKENS = 2048  # computed together
_FIRST_CHUNK, _LARGEST_CHUNK, _CHUNK_SECONDS = 32, 2048, 0.25  # texts taken in at a time grow until they take so long


class Model:
    """What all models can do; by itself, an encoder without a task."""

    output: ClassVar[Output | None] = None  # of the engine, for `logits`
    needs_offsets: ClassVar[bool] = False

    def __init__(self, runner: Runner, text: TextEncoder, config: Mapping[str, Any], num_threads: int = 1) -> None:
        self.runner, self.text, self.config, self.num_threads = runner, text, config, num_threads
        self.labels = label_names(config, runner.sizes.head)

    @property
    def kernel(self) -> str:
        """What computes: the name of a kernel, or `oracle`."""
        return self.runner.kernel

    @property
    def max_length(self) -> int:
        """How many tokens of an input are read."""
        return self.text.max_length

    def predict(self, texts: Any) -> Any:
        """The answer to a text, a pair, or each of many."""
        given, single = as_texts(texts)
        answers = list(self.stream(given))
        return answers[0] if single else answers

    def stream(self, texts: Iterable[Any]) -> Iterator[Any]:
        """Answer one text after the other, in order, without ever holding all of them."""
        for text, encoding, rows in self._run(as_stream(texts), self._output()):
            yield self._answer(text, encoding, rows)

    def logits(self, texts: Any) -> Any:
        """Unscaled scores: an array with a row per text, or, for heads on every token, an array per text."""
        output = self._output()
        given, single = as_texts(texts)
        rows = [rows for _, _, rows in self._run(given, output)]
        if output == Output.TOKEN_LOGITS:
            return rows[0] if single else rows
        return rows[0][0] if single else _stack(rows, self.runner.sizes.head)

    def encode(self, texts: Any, *, pooling: str = "mean", normalize: bool = False) -> Any:
        """Vectors of texts: the `mean` over tokens, the first token (`cls`), the `pooler`'s output, or all `tokens`.

        One array with a row per text; with `tokens` an array per text with a row per token. `normalize` gives vectors
        of length 1, so that a product of two is their cosine.
        """
        if pooling not in POOLINGS:
            raise InputError(f"unknown pooling '{pooling}'{suggest(pooling, POOLINGS)}")
        given, single = as_texts(texts)
        found = [_unit(rows) if normalize else rows for _, _, rows in self._run(given, POOLINGS[pooling])]
        if pooling == "tokens":
            return found[0] if single else found
        width = self.runner.sizes.dense if pooling == "pooler" else self.runner.sizes.hidden
        return found[0][0] if single else _stack(found, width)

    def close(self) -> None:
        """Free the memory now and not when nobody holds the model any more."""
        self.runner.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _output(self) -> Output:
        if self.output is None:
            names = self.config.get("architectures")
            raise UnsupportedModelError(f"{(names or ['this'])[0]} has no head that answers anything; use encode()")
        return self.output

    def _answer(self, text: Text, encoding: Encoding, rows: Floats) -> Any:
        raise NotImplementedError

    def _run(self, texts: Iterable[Text], output: Output) -> Iterator[tuple[Text, Encoding, Floats]]:
        """Each text with its tokens and its rows of the output, in order; cut texts are counted and told at the end."""
        seen = cut = 0
        for chunk in chunks(iter(texts)):
            encodings = self.text.encode(chunk, offsets=self.needs_offsets, parallel=self.num_threads > 1)
            seen += len(chunk)
            cut += sum(map(self.text.was_cut, encodings))
            types = self.text.has_types
            inputs = [(encoding.ids, encoding.type_ids if types else None) for encoding in encodings]
            yield from zip(chunk, encodings, self._compute(inputs, output), strict=True)
        if cut:
            warnings.warn(
                f"{cut} of {seen} texts are longer than {self.max_length} tokens; the rest of them was not read",
                TruncationWarning,
                stacklevel=3,
            )

    def _compute(self, inputs: Sequence[tuple[Any, Any]], output: Output) -> list[Floats]:
        """The rows of each input (ids, and types or None), computed with others of its length."""
        found: list[Floats | None] = [None] * len(inputs)
        per_token = output in (Output.HIDDEN, Output.TOKEN_LOGITS)
        for places in batches([len(ids) for ids, _ in inputs]):
            types = [inputs[i][1] for i in places]
            batch = Batch.of([inputs[i][0] for i in places], None if types[0] is None else types)
            rows = self.runner.run(batch, output)
            starts = batch.starts() if per_token else range(len(places) + 1)
            for i, ends in zip(places, pairwise(starts), strict=True):
                found[i] = rows[slice(*ends)]
        return found  # type: ignore[return-value]


def batches(lengths: Sequence[int], tokens: int = _TOKENS) -> Iterator[list[int]]:
    """Places of inputs to compute together: of like length, and no more than so many tokens unless one alone is."""
    places: list[int] = []
    total = 0
    for place in np.argsort(lengths, kind="stable").tolist():
        if places and total + lengths[place] > tokens:
            yield places
            places, total = [], 0
        places.append(place)
        total += lengths[place]
    if places:
        yield places


def label_names(config: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """The labels in the order of the head's outputs."""
    names = config.get("id2label")
    if not isinstance(names, Mapping) or not names:
        return tuple(f"LABEL_{i}" for i in range(count))
    by_id = {str(key): str(name) for key, name in names.items()}
    if count and set(by_id) != {str(i) for i in range(count)}:
        raise PackedConfigError(f"config.json names {len(by_id)} labels, but the model has {count} outputs")
    return tuple(by_id[str(i)] for i in range(count))


def chunks(texts: Iterator[Text], first: int = _FIRST_CHUNK) -> Iterator[list[Text]]:
    """Texts to take in at a time: few at first, more while they take little time, fewer again where they take long."""
    size, start = first, time.monotonic()
    while chunk := list(islice(texts, size)):
        yield chunk
        now = time.monotonic()
        if now - start < _CHUNK_SECONDS:
            size = min(2 * size, _LARGEST_CHUNK)
        elif now - start > 4 * _CHUNK_SECONDS:
            size = max(1, size // 2)
        start = now


def _stack(rows: Sequence[Floats], width: int) -> NDArray[np.float32]:
    return np.concatenate(rows) if rows else np.empty((0, width), np.float32)


def _unit(rows: Floats) -> Floats:
    length = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows / np.maximum(length, np.finfo(np.float32).tiny))
