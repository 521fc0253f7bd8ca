"""Sentence embedders: one vector per text, as sentence-transformers computes it from the same folder.

The encoder runs in the engine; pooling, Dense, normalization and prompts are the folder's own
(packed/embedder_modules.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ternarybert.errors import InputError, suggest
from ternarybert.packed.embedder_modules import EmbedderModules, unit_length
from ternarybert.runtime.model import POOLINGS, Model
from ternarybert.runtime.network import Floats, Output
from ternarybert.runtime.text import Text, as_texts
from ternarybert.runtime.vectors import quantize_vectors, similarities


@dataclass(frozen=True)
class EncodeOptions:
    """What `Embedder.encode` makes of the pooled states."""

    pooling: str | None = None
    normalize: bool = False
    truncate_dim: int | None = None
    precision: str = "float32"
    ranges: NDArray[Any] | None = field(default=None, compare=False)


class Embedder(Model):
    """Embeds texts with the pooling, Dense, normalization, prompts and length of its folder."""

    def __init__(self, *args: Any, modules: EmbedderModules, **more: Any) -> None:
        super().__init__(*args, **more)
        self.modules = modules

    @property
    def width(self) -> int:
        """The number of dimensions of a vector."""
        return self.modules.width(self.runner.sizes.hidden)

    def encode(
        self,
        texts: Any,
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        prompt_name: str | None = None,
        prompt: str | None = None,
        truncate_dim: int | None = None,
        precision: str = "float32",
        ranges: NDArray[Any] | None = None,
    ) -> Any:
        """Embed texts: an array with a row per text, or one row for a single text.

        A prompt is put before every text: `prompt` itself, the one named `prompt_name`, or the model's default.
        `truncate_dim` keeps the first dimensions, and `normalize` scales what is left to length 1. `precision` stores
        vectors in fewer bits (runtime/vectors.py); int8 and uint8 need `ranges`, or at least two texts to take them
        from. With `pooling` (mean, cls, max, pooler, tokens) the encoder's own states are pooled in that way, without
        Dense and Normalize.
        """
        options = EncodeOptions(pooling, bool(normalize), truncate_dim, precision, ranges)
        return self._encode(texts, self.modules.prompt(prompt_name, prompt), options)

    @property
    def state_output(self) -> Output:
        """What the engine computes for a vector."""
        return self._state(None)

    def vectors(self, states: Sequence[Floats], prompt: str = "") -> Floats:
        """The vectors of texts from their rows of `state_output`, for callers that run the engine themselves."""
        pooled = [self._pooled(rows, prompt, None) for rows in states]
        return self.modules.project(
            np.concatenate(pooled) if pooled else np.empty((0, self.runner.sizes.hidden), np.float32)
        )

    def encode_query(self, texts: Any, **options: Any) -> Any:
        """Embed questions, with the prompt named `query` if the model has one."""
        return self._encode(texts, self.modules.first_prompt("query"), EncodeOptions(**options))

    def encode_document(self, texts: Any, **options: Any) -> Any:
        """Embed what is searched, with the prompt named `document`, `passage` or `corpus` if the model has one."""
        prompt = self.modules.first_prompt("document", "passage", "corpus")
        return self._encode(texts, prompt, EncodeOptions(**options))

    def similarity(self, a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float32]:
        """How similar vectors are, (rows of a, rows of b), by the model's own measure: mostly the cosine."""
        return similarities(a, b, self.modules.similarity)

    def _encode(self, texts: Any, prompt: str, options: EncodeOptions) -> Any:
        given, single = as_texts(texts)
        _check(options, self.width, single)
        prompted = [_prompted(text, prompt) for text in given]
        if options.pooling not in (None, "max"):
            return self._plain(prompted, single, options)
        states = [rows for _, _, rows in self._run(prompted, self._state(options.pooling))]
        if options.pooling is None:
            return _finished(self.vectors(states, prompt), single, options)
        pooled = [self._pooled(rows, prompt, options.pooling) for rows in states]
        vectors = np.concatenate(pooled) if pooled else np.empty((0, self.runner.sizes.hidden), np.float32)
        return _finished(vectors, single, options)

    def _plain(self, texts: list[Text], single: bool, options: EncodeOptions) -> Any:
        """States of the encoder, as of a model without modules."""
        vectors = super().encode(texts, pooling=options.pooling or "mean")
        if options.pooling == "tokens":
            done = [_finished(rows, False, options) for rows in vectors]
            return done[0] if single else done
        return _finished(vectors, single, options)

    def _state(self, pooling: str | None) -> Output:
        """What the engine computes: whatever is not a plain mean or the first token is pooled here."""
        pooling = pooling or self.modules.pooling
        return POOLINGS[pooling] if pooling in POOLINGS and self.modules.include_prompt else Output.HIDDEN

    def _pooled(self, rows: Floats, prompt: str, pooling: str | None) -> Floats:
        """One row: that of the engine, or the pooled states of the tokens."""
        pooling = pooling or self.modules.pooling
        if self._state(pooling) != Output.HIDDEN:
            return rows
        if prompt and not self.modules.include_prompt:
            rows = rows[min(self._prompt_tokens(prompt), len(rows) - 1) :]
        if pooling == "max":
            return np.asarray(rows.max(0, keepdims=True))
        return rows[:1] if pooling == "cls" else rows.mean(0, keepdims=True, dtype=np.float64).astype(np.float32)

    def _prompt_tokens(self, prompt: str) -> int:
        """How many tokens of an input are the prompt's: its own, without the one that ends a text."""
        return len(self.text.tokenizer.encode(prompt).ids) - 1


def _check(options: EncodeOptions, width: int, single: bool) -> None:
    if options.pooling is not None and options.pooling != "max" and options.pooling not in POOLINGS:
        raise InputError(f"unknown pooling '{options.pooling}'{suggest(options.pooling, [*POOLINGS, 'max'])}")
    if options.truncate_dim is not None and not 1 <= options.truncate_dim <= width:
        raise InputError(f"truncate_dim is {options.truncate_dim}; the model's vectors have {width} dimensions")
    if single and options.precision.endswith("int8") and options.ranges is None:
        raise InputError(f"precision '{options.precision}' of a single text needs ranges=, see calibration_ranges")


def _prompted(text: Text, prompt: str) -> Text:
    if not prompt:
        return text
    if not isinstance(text, str):
        raise InputError(f"a prompt goes before a single text, not before a pair such as {text!r:.40}")
    return prompt + text


def _finished(vectors: Floats, single: bool, options: EncodeOptions) -> Any:
    if options.truncate_dim is not None:
        vectors = vectors[:, : options.truncate_dim]
    if options.normalize:
        vectors = unit_length(vectors)
    done = quantize_vectors(vectors, options.precision, options.ranges)
    return done[0] if single else done
