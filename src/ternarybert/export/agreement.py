"""Whether an exported file answers as our engine does: both read the same texts, and the results are compared.

`OnnxModel` runs ONNX Runtime on our tokens; `LlamaModel` runs llama.cpp, which reads the texts itself. A file whose
answers are too far from ours is an error, and is not written.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ternarybert.errors import ExportError, TruncationWarning, name_missing_extras
from ternarybert.packed.embedder_modules import unit_length
from ternarybert.runtime.embedder import Embedder
from ternarybert.runtime.model import Answerer, Model, Tagger
from ternarybert.runtime.network import Floats

LARGEST_ERROR = 0.3  # |theirs - ours| / |ours|; unit vectors that far apart have a cosine of 0.955
_BATCH = 8
SENTENCES = (
    "It works.",
    "The film starts slowly, but its last half hour is worth every minute of the wait.",
    "How do I reset the password of an account that was made before the company changed its name?",
    "Rain is expected in the north on Thursday, with strong winds along the coast and snow above 900 meters.",
    "I would not buy this kettle again: the lid broke in the first week and nobody answered my mails.",
    "The committee met on 14 March 2019 in Lisbon and approved the budget by 17 votes to 9.",
    "Heat the oil, add the onions and stir until they are soft; then add the rice and a cup of hot broth.",
    "Maria Keller joined the orchestra in Vienna after ten years with a small ensemble in Porto.",
    "Why is the sky blue at noon and red in the evening?",
    "Their second album is louder, faster and, in the end, much less interesting than the first one.",
    "The patient had a mild fever for three days and was sent home with tablets and a sheet of advice.",
    "A queue is a list in which elements are added at one end and removed at the other, so that the one that has "
    "waited longest is served first; a stack, by contrast, gives back the one that arrived last.",
)


@dataclass(frozen=True)
class Agreement:
    """How far the answers of an exported file are from ours."""

    texts: int
    largest: float  # difference of two numbers
    error: float  # |theirs - ours| / |ours| over all texts
    cosine: float | None  # of vectors, the lowest
    same: float | None  # share of labels that are ours

    def __str__(self) -> str:
        what = (
            f"cosine with ours at least {self.cosine:.4f}" if self.same is None else f"{self.same:.1%} of labels ours"
        )
        if self.same is None and self.cosine is None:
            what = f"relative difference {self.error:.4f}"
        if self.cosine is not None:
            what = f"cosine with ours at least {self.cosine:.4f}"
        elif self.same is not None:
            what = f"{self.same:.1%} of labels as ours"
        return f"on {self.texts} texts: {what}, largest difference {self.largest:.4f}"


def compare(model: Model, texts: Sequence[str], theirs: Floats) -> Agreement:
    """Compare rows of another engine with those of our model; refuse an export that is too far off."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)  # both sides read the same tokens
        ours, vectors = our_rows(model, texts), model.output is None
    if theirs.shape != ours.shape or not np.isfinite(theirs).all():
        raise ExportError(
            f"the exported model gives {theirs.shape} numbers, or some that are not finite; ours {ours.shape}"
        )
    difference = theirs - ours
    error = float(np.linalg.norm(difference) / max(np.linalg.norm(ours), np.finfo(np.float32).tiny))
    if error > LARGEST_ERROR:
        raise ExportError(
            f"the answers of the exported model differ from ours by {error:.0%} on average, more than "
            f"{LARGEST_ERROR:.0%}; it was not written"
        )
    cosine = float((unit_length(theirs) * unit_length(ours)).sum(-1).min()) if vectors else None
    same = float((theirs.argmax(-1) == ours.argmax(-1)).mean()) if not vectors and ours.shape[1] > 1 else None
    return Agreement(len(texts), float(np.abs(difference).max()), error, cosine, same)


def our_rows(model: Model, texts: Sequence[str]) -> Floats:
    """Our own answers: a row per text, or per token where the head is on tokens."""
    if isinstance(model, Embedder):
        return np.asarray(model.encode(list(texts), prompt=""))
    if model.output is None:
        return np.concatenate(model.encode(list(texts), pooling="tokens"))
    rows = model.logits(list(texts))
    return np.concatenate(rows) if isinstance(rows, list) else np.asarray(rows)


class OnnxModel:
    """An exported file in ONNX Runtime."""

    def __init__(self, path: Path, model: Model, *, threads: int = 1) -> None:
        with name_missing_extras():
            import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self.model = model
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._wanted = {one.name for one in self._session.get_inputs()}
        outputs = [one.name for one in self._session.get_outputs()]
        self._outputs = outputs[-1:] if isinstance(model, Embedder) else outputs

    def rows(self, texts: Sequence[str]) -> Floats:
        """The rows that `our_rows` gives, from this engine."""
        model, parts = self.model, []
        for start in range(0, len(texts), _BATCH):
            feed = padded(model, texts[start : start + _BATCH])
            given = {key: value for key, value in feed.items() if key in self._wanted}
            results = self._session.run(self._outputs, given)
            rows = np.stack(results, axis=-1) if isinstance(model, Answerer) else results[0]
            per_token = isinstance(model, Tagger | Answerer) or (
                model.output is None and not isinstance(model, Embedder)
            )
            parts.append(rows[feed["attention_mask"] == 1] if per_token else rows)
        return np.concatenate(parts).astype(np.float32)


def padded(model: Model, texts: Sequence[str]) -> dict[str, Any]:
    """The tokens of texts as the inputs of an ONNX model, padded behind."""
    encodings = model.text.encode(list(texts))
    shape = len(encodings), max(len(encoding.ids) for encoding in encodings)
    feed = {name: np.zeros(shape, np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
    for row, encoding in enumerate(encodings):
        length = len(encoding.ids)
        feed["input_ids"][row, :length] = encoding.ids
        feed["attention_mask"][row, :length] = 1
        if model.text.has_types:
            feed["token_type_ids"][row, :length] = encoding.type_ids
    return feed


class LlamaModel:
    """An exported file in llama.cpp."""

    def __init__(self, path: Path, model: Model, *, threads: int = 1) -> None:
        with name_missing_extras():
            import xllamacpp

        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(path)
        parameters.embedding, parameters.warmup, parameters.verbosity = True, False, -1
        parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = model.max_length
        parameters.n_parallel = 1
        parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
        kinds = xllamacpp.llama_pooling_type
        pooling = model.modules.pooling if isinstance(model, Embedder) else "rank"
        parameters.pooling_type = getattr(kinds, f"LLAMA_POOLING_TYPE_{pooling.upper()}")
        self.model, self._server = model, xllamacpp.Server(parameters)

    def rows(self, texts: Sequence[str]) -> Floats:
        """The rows that `our_rows` gives, from this engine."""
        found = np.array([self._row(text) for text in texts], np.float32)
        if isinstance(self.model, Embedder):
            return unit_length(found) if self.model.modules.normalizes else found
        return found[:, : len(self.model.labels)]  # behind the logits of a classifier come numbers without a meaning

    def _row(self, text: str) -> list[float]:
        # Ours truncates; llama.cpp refuses what is too long. Normalized vectors of a classifier would lose its logits.
        asked = {"input": _fitting(self.model, text), "embd_normalize": -1}
        row: list[float] = self._server.handle_embeddings(asked)["data"][0]["embedding"]
        return row


def _fitting(model: Model, text: str) -> str:
    """As much of a text as the model reads."""
    encoding = model.text.encode([text], offsets=True)[0]
    return text[: max(end for _, end in encoding.offsets)] if model.text.was_truncated(encoding) else text
