"""Classes, or a number, for a text or a pair of texts: logits are (B, C)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import datasets
from datasets import Dataset
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase

from ternarybert.data.classification import CLASSIFICATION, ClassificationTask
from ternarybert.data.task import TaskData
from ternarybert.errors import DataError
from ternarybert.training.batches import LENGTH, TokenizedData, longest_input
from ternarybert.training.heads.base import Head
from ternarybert.training.losses import loss_labels, loss_pred


class ClassificationHead(Head[ClassificationTask]):
    """A class or a number for each row."""

    kind = CLASSIFICATION
    suffix = "ForSequenceClassification"
    description = "classification head"
    auto_class = AutoModelForSequenceClassification
    two_stages = False
    per_token = False

    def model_options(self) -> dict[str, Any]:
        """As many outputs as the task has labels, under their names."""
        options: dict[str, Any] = {
            "num_labels": self.task.num_labels,
            "problem_type": "regression" if self.task.regression else None,
        }
        if self.task.labels is not None:
            names = dict(enumerate(self.task.labels))
            options |= {"id2label": names, "label2id": {name: i for i, name in names.items()}}
        return options

    def check_training_labels(self, data: TaskData[ClassificationTask]) -> None:
        """Rows with labels of known classes are needed."""
        if data.train is None or not self.task.has_references(data.train) or not self.task.num_labels:
            raise DataError(f"fine-tuning on '{self.task.name}' needs training rows with labels")

    def tokenize(
        self,
        data: TaskData[ClassificationTask],
        tokenizer: PreTrainedTokenizerBase,
        model: PreTrainedModel,
        *,
        labeled: bool = False,
    ) -> TokenizedData:
        """One input per row; either all rows have labels or none."""
        return tokenize_texts(data, tokenizer, longest_input(self.task, model))

    def logits(self, outputs: Any) -> Tensor:
        """One for each class."""
        logits: Tensor = outputs.logits
        return logits

    def loss_pred(self, student: Tensor, teacher: Tensor, mask: Tensor | None, reduction: str) -> Tensor:
        """SCE(P^S, P^T), or MSE for regression."""
        return loss_pred(student, teacher, regression=self.task.regression, reduction=reduction)

    def loss_labels(self, logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Cross-entropy, or mean squared error for regression."""
        return loss_labels(logits, labels, regression=self.task.regression)


def tokenize_texts(
    data: TaskData[Any], tokenizer: PreTrainedTokenizerBase, max_length: int | None = None
) -> TokenizedData:
    """Token ids, segment ids and labels of every row; too long ones are truncated, the longer text of a pair first."""
    limit = min(max_length or data.task.max_length, tokenizer.model_max_length)
    encode = partial(_encode, tokenizer=tokenizer, max_length=limit)
    with _without_cache_and_bars():
        train = None if data.train is None else encode(data.train)
        evals = {name: encode(rows) for name, rows in data.evals.items()}
    return TokenizedData(data, train, evals, tokenizer, limit)


def _encode(rows: Dataset, *, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Dataset:
    def encode(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        encoded = dict(tokenizer(batch["text"], batch.get("text_pair"), truncation=True, max_length=max_length))
        encoded[LENGTH] = [len(ids) for ids in encoded["input_ids"]]
        return encoded

    tokenized = rows.map(encode, batched=True, remove_columns=[c for c in rows.column_names if c != "label"])
    return tokenized.rename_column("label", "labels") if "label" in tokenized.column_names else tokenized


@contextmanager
def _without_cache_and_bars() -> Iterator[None]:
    """Keep `datasets` from writing token ids beside rows that are read from the disk, and from showing bars."""
    caching, bars = datasets.is_caching_enabled(), datasets.are_progress_bars_disabled()
    datasets.disable_caching()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if caching:
            datasets.enable_caching()
        if not bars:
            datasets.enable_progress_bars()
