"""Rows to token ids, and a model's logits for them."""

from __future__ import annotations

from dataclasses import dataclass
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

from ternarybert.tasks import TaskData

LENGTH = "length"  # column that length grouping reads
Logits = NDArray[np.float32]


@dataclass(frozen=True)
class Features:
    """Tokenized rows of a task, and the tokenizer that made them."""

    train: Dataset | None
    evals: dict[str, Dataset]
    tokenizer: PreTrainedTokenizerBase
    max_length: int


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
    model: PreTrainedModel, features: Dataset, tokenizer: PreTrainedTokenizerBase, batch_size: int = 32
) -> Logits:
    """A model's logits for every row, in the rows' order; similar lengths share a batch."""
    order = np.argsort(features[LENGTH], kind="stable")
    rows = features.remove_columns([c for c in features.column_names if c == "labels"])
    collate, found = Collator(tokenizer), []
    was_training = model.training
    model.eval()
    with torch.no_grad():
        for start in range(0, len(order), batch_size):
            batch = collate([rows[int(i)] for i in order[start : start + batch_size]])
            found.append(model(**{k: v.to(model.device) for k, v in batch.items()}).logits.float().cpu().numpy())
    model.train(was_training)
    logits = np.concatenate(found)
    return np.asarray(logits[np.argsort(order)], dtype=np.float32)


def references(features: Dataset) -> NDArray[Any] | None:
    """The labels of the rows, where they have any."""
    return np.asarray(features["labels"]) if "labels" in features.column_names else None
