"""Rows and questions to token ids, and a model's logits for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from datasets import (
    Dataset,
    disable_caching,
    disable_progress_bars,
    enable_caching,
    enable_progress_bars,
    is_caching_enabled,
)
from numpy.typing import NDArray
from torch import Tensor
from transformers import DataCollatorWithPadding, PreTrainedModel, PreTrainedTokenizerBase

from ternarybert.data import SquadData, SquadTask, Task, TaskData
from ternarybert.data.squad.windows import UNKNOWN, Window
from ternarybert.errors import UnsupportedModelError
from ternarybert.families import max_tokens

LENGTH = "length"  # column that length grouping reads
Logits = NDArray[np.float32]
_CACHED_PAIRS = 2**17  # of tokens: with 12 heads, 6 MB of scores


@dataclass(frozen=True)
class Features:
    """Tokenized rows of a task, and the tokenizer that made them. For questions, a row is a window."""

    train: Dataset | None
    evals: dict[str, Dataset]
    tokenizer: PreTrainedTokenizerBase
    max_length: int
    windows: dict[str, list[Window]] = field(default_factory=dict)  # of each evaluation set


def longest_input(task: Task | SquadTask, model: PreTrainedModel) -> int:
    """Where texts are cut: at the task's length, or at the model's where that is shorter."""
    return min(task.max_length, max_tokens(model.config) or task.max_length)


def tokenize(data: TaskData, tokenizer: PreTrainedTokenizerBase, max_length: int | None = None) -> Features:
    """Token ids, segment ids and labels of every row, cut at the task's length from the longer of two texts."""
    limit = min(max_length or data.task.max_length, tokenizer.model_max_length)
    caching = is_caching_enabled()
    disable_progress_bars()
    disable_caching()  # or token ids would pile up beside rows that are read from the disk
    try:
        convert = partial(_convert, tokenizer=tokenizer, max_length=limit)
        train = None if data.train is None else convert(data.train)
        return Features(train, {name: convert(rows) for name, rows in data.evals.items()}, tokenizer, limit)
    finally:
        enable_progress_bars()
        if caching:
            enable_caching()


def _convert(rows: Dataset, *, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Dataset:
    def encode(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        encoded = dict(tokenizer(batch["text"], batch.get("text_pair"), truncation=True, max_length=max_length))
        encoded[LENGTH] = [len(ids) for ids in encoded["input_ids"]]
        return encoded

    features = rows.map(encode, batched=True, remove_columns=[c for c in rows.column_names if c != "label"])
    return features.rename_column("label", "labels") if "label" in features.column_names else features


def tokenize_questions(
    data: SquadData,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int | None = None,
    *,
    labelled: bool = False,
    types: bool = True,
) -> Features:
    """Windows of every question; `labelled` leaves out those of the training part whose answer is not known.

    `types` are token types for models that have them, whatever the tokenizer would give in transformers: the runtime
    does the same.
    """
    limit = min(max_length or data.task.max_length, tokenizer.model_max_length)
    if not tokenizer.is_fast:
        raise UnsupportedModelError("questions need a fast tokenizer, one with a tokenizer.json")
    tokenizer.padding_side = "right"  # labels and answers are counted from a window's first token
    cut = replace(data.task, max_length=limit).windower(tokenizer.backend_tokenizer)
    windows = {name: cut.windows(questions) for name, questions in data.evals.items()}
    evals = {name: _rows_of(found, types) for name, found in windows.items()}
    train = None
    if data.train is not None:
        found = cut.windows(data.train)
        train = _rows_of([w for w in found if w.start != UNKNOWN] if labelled else found, types)
    return Features(train, evals, tokenizer, limit, windows)


def _rows_of(windows: Sequence[Window], types: bool) -> Dataset:
    """A window's label is its pair of start and end; without any label there is no such column."""
    columns: dict[str, list[Any]] = {
        "input_ids": [window.input_ids for window in windows],
        "attention_mask": [np.ones(len(window), np.int8) for window in windows],
        LENGTH: [len(window) for window in windows],
    }
    if types:
        columns["token_type_ids"] = [window.token_type_ids for window in windows]
    if any(window.start != UNKNOWN for window in windows):
        columns["labels"] = [(window.start, window.end) for window in windows]
    return Dataset.from_dict(columns)


class Collator:
    """Rows to a padded batch: to its longest row, or always to the full length (`pad="max"`)."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, pad: str = "dynamic", max_length: int | None = None) -> None:
        full = pad == "max"
        self.pad = DataCollatorWithPadding(
            tokenizer, padding="max_length" if full else True, max_length=max_length if full else None
        )

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Tensor]:
        """One batch of tensors."""
        batch: dict[str, Tensor] = self.pad([{k: v for k, v in row.items() if k != LENGTH} for row in rows])
        return batch


def predict_logits(
    model: PreTrainedModel,
    features: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    batch_size: int = 32,
    read: Callable[[Any], Tensor] = lambda outputs: outputs.logits,
    tell: Callable[[float], None] = lambda share: None,
) -> Logits:
    """A model's logits for every row, in the rows' order; similar lengths share a batch.

    A batch has up to `batch_size` rows, on a processor fewer where they are long. `read` takes the logits from the
    model's outputs; those of tokens are padded with zeros to the longest row. `tell` hears after every batch which
    share of all tokens is done.
    """
    order = np.argsort(features[LENGTH], kind="stable")
    lengths = np.asarray(features[LENGTH])[order]
    done = np.cumsum(lengths)
    rows = features.remove_columns([c for c in features.column_names if c == "labels"])
    collate, found = Collator(tokenizer), []
    was_training = model.training
    model.eval()
    with torch.no_grad():
        start = 0
        while start < len(order):
            ahead = lengths[start : start + batch_size]
            alike = order[start : start + (_cached(ahead) if model.device.type == "cpu" else batch_size)]
            batch = collate([rows[int(i)] for i in alike])
            outputs = model(**{k: v.to(model.device) for k, v in batch.items()})
            found.append(read(outputs).float().cpu().numpy())
            start += len(alike)
            tell(float(done[start - 1] / done[-1]))
    model.train(was_training)
    return np.asarray(_stack(found)[np.argsort(order)], dtype=np.float32)


def predict_sets(model: PreTrainedModel, features: Features, read: Callable[[Any], Tensor]) -> dict[str, Logits]:
    """A model's logits for every evaluation set."""
    return {name: predict_logits(model, rows, features.tokenizer, read=read) for name, rows in features.evals.items()}


def _cached(lengths: NDArray[np.int64]) -> int:
    """How many of these rows, the shortest first, to compute at once so that the scores of all heads stay cached.

    Where they do not, a processor takes up to four times as long.
    """
    pairs = np.arange(1, len(lengths) + 1) * lengths**2
    return max(1, int((pairs <= _CACHED_PAIRS).sum()))


def _stack(batches: list[Logits]) -> Logits:
    width = max(batch.shape[-1] for batch in batches)
    same = [(0, 0)] * (batches[0].ndim - 1)
    return np.concatenate([np.pad(batch, [*same, (0, width - batch.shape[-1])]) for batch in batches])


def references(features: Dataset) -> NDArray[Any] | None:
    """The labels of the rows, where they have any."""
    return np.asarray(features["labels"]) if "labels" in features.column_names else None
