"""A tag for every word: logits are (B, C, n), and the first token of a word, or of its parts, carries its label.

A row is a window of a sentence (`data/token_windows.py`). Its labels are those of its tokens, and also say which tokens
count: the first one of every part of a word that belongs to the window, which are those that the engine reads. L_pred
is the soft cross-entropy of these, a mean over the words of a row, so that k micro-batches equal one batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from datasets import Dataset
from torch import Tensor
from transformers import AutoModelForTokenClassification, PreTrainedModel, PreTrainedTokenizerBase

from ternarybert.data.task import TaskData
from ternarybert.data.token_classification import (
    TOKEN_CLASSIFICATION,
    SentenceWindows,
    TokenClassificationTask,
    cut_sentences,
)
from ternarybert.errors import DataError, UnsupportedModelError
from ternarybert.training.batches import IGNORED, LENGTH, TOKEN_LABELS, Logits, TokenizedData, longest_input
from ternarybert.training.heads.base import Head
from ternarybert.training.losses import loss_labels_words, loss_pred_words

UNKNOWN = -1  # the label of a word that has none


class TokenClassificationHead(Head[TokenClassificationTask]):
    """Logits for each token."""

    kind = TOKEN_CLASSIFICATION
    suffix = "ForTokenClassification"
    description = "head that labels words"
    auto_class = AutoModelForTokenClassification
    two_stages = False
    per_token = True

    def model_options(self) -> dict[str, Any]:
        """As many outputs as there are tags, under their names."""
        names = dict(enumerate(self.task.labels or ()))
        return {"num_labels": len(names), "id2label": names, "label2id": {name: i for i, name in names.items()}}

    def check_training_labels(self, data: TaskData[TokenClassificationTask]) -> None:
        """Sentences with tags are needed."""
        if not data.train or not self.task.has_references(data.train) or not self.task.labels:
            raise DataError(f"fine-tuning on '{self.task.name}' needs training sentences with tags")

    def tokenize(
        self,
        data: TaskData[TokenClassificationTask],
        tokenizer: PreTrainedTokenizerBase,
        model: PreTrainedModel,
        *,
        labeled: bool = False,
    ) -> TokenizedData:
        """One input per window; either all sentences have tags or none."""
        limit = min(longest_input(self.task, model), tokenizer.model_max_length)
        if not tokenizer.is_fast:
            raise UnsupportedModelError("words need a fast tokenizer, one with a tokenizer.json")
        tokenizer.padding_side = "right"  # labels are counted from a window's first token

        def cut(sentences: Any) -> list[SentenceWindows]:
            return list(cut_sentences(sentences, tokenizer.backend_tokenizer, limit))

        windows = {name: cut(sentences) for name, sentences in data.evals.items()}
        evals = {name: self._rows(data.evals[name], each) for name, each in windows.items()}
        train = None if data.train is None else self._rows(data.train, cut(data.train))
        return TokenizedData(data, train, evals, tokenizer, limit, windows)

    def _rows(self, sentences: Any, cut: Sequence[SentenceWindows]) -> Dataset:
        columns: dict[str, list[Any]] = {"input_ids": [], "attention_mask": [], TOKEN_LABELS: [], LENGTH: []}
        for sentence, each in zip(sentences, cut, strict=True):
            ids = (
                [[UNKNOWN] * len(tokens) for tokens in each.words]
                if sentence.tags is None
                else self.task.part_ids(sentence, each.words, IGNORED)
            )
            for window in each.windows:
                columns["input_ids"].append(window.ids)
                columns["attention_mask"].append(np.ones(len(window.ids), np.int8))
                columns[TOKEN_LABELS].append(each.labels(window, ids, IGNORED))
                columns[LENGTH].append(len(window.ids))
        return Dataset.from_dict(columns)

    def logits(self, outputs: Any) -> Tensor:
        """One for each tag and token."""
        logits: Tensor = outputs.logits
        return logits.transpose(1, 2)

    def counted(self, mask: Tensor | None, labels: Tensor | None) -> Tensor | None:
        """The first tokens of words and their parts; padding is no word, whatever the recipe says."""
        return mask if labels is None else labels != IGNORED

    def loss_pred(self, student: Tensor, teacher: Tensor, mask: Tensor | None, reduction: str) -> Tensor:
        """SCE(P^S, P^T) of the words."""
        return loss_pred_words(student, teacher, mask, reduction)

    def loss_labels(self, logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Cross-entropy of the words."""
        if bool((labels == UNKNOWN).any()):
            raise DataError("the recipe has a weight for labels (distill.labels), but the data have no tags")
        return loss_labels_words(logits, labels, IGNORED)

    def predictions(self, tokenized: TokenizedData, name: str, logits: Logits) -> list[list[str]]:
        """The tags of every sentence, put together from its windows."""
        predicted, row = [], 0
        for each in tokenized.windows[name]:
            own = [window.own_rows(logits[row + i].T) for i, window in enumerate(each.windows)]
            row += len(own)
            predicted.append(self.task.tags_of(np.concatenate(own), each.words))
        return predicted
