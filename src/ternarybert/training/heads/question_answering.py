"""A span of a text as the answer to a question: logits are (B, 2, n), how well each token starts and ends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from transformers import AutoModelForQuestionAnswering, PreTrainedModel, PreTrainedTokenizerBase

from ternarybert.data.squad.spans import Prediction
from ternarybert.data.squad.task import ANSWERING, QUESTION_ANSWERING, QuestionAnsweringTask
from ternarybert.data.squad.windows import UNKNOWN, Window
from ternarybert.data.task import ScoresBySet, TaskData
from ternarybert.errors import DataError, UnsupportedModelError
from ternarybert.training.batches import LENGTH, Logits, TokenizedData, longest_input
from ternarybert.training.heads.base import Head
from ternarybert.training.losses import loss_labels_spans, loss_pred_spans


class QuestionAnsweringHead(Head[QuestionAnsweringTask]):
    """Start and end logits for each token."""

    kind = QUESTION_ANSWERING
    suffix = "ForQuestionAnswering"
    description = "question-answering head"
    auto_class = AutoModelForQuestionAnswering
    two_stages = True
    per_token = True

    def model_options(self) -> dict[str, Any]:
        """Two outputs per token, for start and end."""
        return {"num_labels": 2}

    def check_training_labels(self, data: TaskData[QuestionAnsweringTask]) -> None:
        """Some questions need answers; an empty list is one too."""
        if not data.train:
            raise DataError(f"'{self.task.name}' has no training questions")
        if all(question.answers is None for question in data.train):
            raise DataError(f"fine-tuning on '{self.task.name}' needs training questions with 'answers'")

    def tokenize(
        self,
        data: TaskData[QuestionAnsweringTask],
        tokenizer: PreTrainedTokenizerBase,
        model: PreTrainedModel,
        *,
        labeled: bool = False,
    ) -> TokenizedData:
        """One input per window."""
        types = getattr(model.config, "type_vocab_size", 0) > 1
        return tokenize_questions(data, tokenizer, longest_input(self.task, model), labeled=labeled, types=types)

    def logits(self, outputs: Any) -> Tensor:
        """Start and end."""
        return torch.stack([outputs.start_logits, outputs.end_logits], dim=1)

    def loss_pred(self, student: Tensor, teacher: Tensor, mask: Tensor | None, reduction: str) -> Tensor:
        """SCE(start) + SCE(end)."""
        return loss_pred_spans(student, teacher, mask, reduction)

    def loss_labels(self, logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """The mean of two cross-entropies."""
        return loss_labels_spans(logits, labels, mask)

    def predictions(self, tokenized: TokenizedData, name: str, logits: Logits) -> list[Prediction]:
        """Spans of the texts."""
        return self.task.predict(tokenized.windows[name], logits[:, 0], logits[:, 1])

    def tuned(self, tokenized: TokenizedData, name: str, logits: Logits) -> QuestionAnsweringHead:
        """With the no-answer threshold that is best on this set; it is saved with the model."""
        if self.task.null_threshold is None:
            return self
        best = self.scores(tokenized, {name: logits})[name].get("best_f1_thresh")
        return self if best is None else QuestionAnsweringHead(replace(self.task, null_threshold=best))

    def update_config(self, config: Any, tokenized: TokenizedData, sets: ScoresBySet) -> None:
        """Save the sizes of windows, and the threshold that is best on the first evaluation set."""
        task = replace(self.task, max_length=tokenized.max_length)
        best = next(iter(sets.values())).get("best_f1_thresh")
        if best is not None:
            task = replace(task, null_threshold=best)
        setattr(config, ANSWERING, task.answering())


def tokenize_questions(
    data: TaskData[QuestionAnsweringTask],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int | None = None,
    *,
    labeled: bool = False,
    types: bool = True,
) -> TokenizedData:
    """Windows of every question; `labeled` drops training windows whose answer is unknown.

    `types` adds token types for models that have them, whether or not the tokenizer would: the runtime does the same.
    """
    limit = min(max_length or data.task.max_length, tokenizer.model_max_length)
    if not tokenizer.is_fast:
        raise UnsupportedModelError("questions need a fast tokenizer, one with a tokenizer.json")
    tokenizer.padding_side = "right"  # labels and answers are counted from a window's first token
    windower = replace(data.task, max_length=limit).windower(tokenizer.backend_tokenizer)
    windows = {name: windower.windows(questions) for name, questions in data.evals.items()}
    evals = {name: _rows(each, types) for name, each in windows.items()}
    train = None
    if data.train is not None:
        train_windows = windower.windows(data.train)
        train = _rows([w for w in train_windows if w.start != UNKNOWN] if labeled else train_windows, types)
    return TokenizedData(data, train, evals, tokenizer, limit, windows)


def _rows(windows: Sequence[Window], types: bool) -> Dataset:
    """The label of a window is its pair of start and end; without any label there is no such column."""
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
