"""The two heads: classes (or a number) for a text, and a piece of the text as the answer to a question."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ternarybert.distill.features import Features, Logits, longest_input, tokenize, tokenize_questions
from ternarybert.distill.head import AnyTask, Head, Sets
from ternarybert.distill.losses import loss_labels, loss_labels_spans, loss_pred, loss_pred_spans
from ternarybert.distill.scores import answer_scores, confusion, task_scores
from ternarybert.errors import DataError
from ternarybert.tasks import SquadData, SquadTask, Task, TaskData, align_labels
from ternarybert.tasks.scores import check_questions, check_rows
from ternarybert.tasks.squad import ANSWERING
from ternarybert.tasks.squad_answers import Prediction
from ternarybert.tasks.squad_questions import Question


@dataclass(frozen=True)
class ClassHead(Head):
    """Rows of texts; a class each, or a number."""

    task: Task
    suffix = "ForSequenceClassification"
    what = "classification head"
    auto = AutoModelForSequenceClassification
    two_stages = False
    per_token = False

    def new_head(self) -> dict[str, Any]:
        """As many outputs as the task has labels, under their names."""
        options: dict[str, Any] = {
            "num_labels": self.task.num_labels,
            "problem_type": "regression" if self.task.regression else None,
        }
        if self.task.labels is not None:
            names = dict(enumerate(self.task.labels))
            options |= {"id2label": names, "label2id": {name: i for i, name in names.items()}}
        return options

    def check_labels(self, data: TaskData) -> None:
        """Classes and rows of them are needed."""
        if data.train is None or "label" not in data.train.column_names or not self.task.num_labels:
            raise DataError(f"fine-tuning on '{self.task.name}' needs training rows with labels")

    def fit(self, data: TaskData, model: PreTrainedModel) -> TaskData:
        """Renumber the labels as the model does."""
        outputs, wanted = model.config.num_labels, data.task.num_labels
        if wanted is not None and wanted != outputs:
            raise DataError(f"the teacher has {outputs} outputs, but the data have {wanted} labels")
        return align_labels(data, model.config.id2label)

    def check_evals(self, data: TaskData, has_teacher: bool) -> None:
        """Labels or a teacher are needed."""
        check_rows(data, has_teacher)

    def features(
        self, data: TaskData, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, *, labelled: bool = False
    ) -> Features:
        """A row each; either all have labels or none."""
        return tokenize(data, tokenizer, longest_input(self.task, model))

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

    def scores(self, features: Features, name: str, logits: Logits, teacher: Any = None) -> dict[str, float]:
        """The task's metrics, and agreement."""
        return task_scores(self.task, logits, features.evals[name], teacher)

    def confusion(self, features: Features, name: str, logits: Logits) -> list[list[int]] | None:
        """Rows are true classes, columns answers."""
        return confusion(self.task, logits, features.evals[name])


@dataclass(frozen=True)
class SpanHead(Head):
    """Questions about a text; the answer is a piece of it."""

    task: SquadTask
    suffix = "ForQuestionAnswering"
    what = "question-answering head"
    auto = AutoModelForQuestionAnswering
    two_stages = True
    per_token = True

    def new_head(self) -> dict[str, Any]:
        """Two outputs a token, for start and end."""
        return {"num_labels": 2}

    def check_labels(self, data: SquadData) -> None:
        """Answers are needed; an empty list is one too."""
        if not data.train:
            raise DataError(f"'{self.task.name}' has no training questions")
        if all(question.answers is None for question in data.train):
            raise DataError(f"fine-tuning on '{self.task.name}' needs training questions with 'answers'")

    def fit(self, data: SquadData, model: PreTrainedModel) -> SquadData:
        """Ask as the model was trained, with the threshold that was found for it."""
        return replace(data, task=data.task.asked_of(model.config.to_dict()))

    def check_evals(self, data: SquadData, has_teacher: bool) -> None:
        """Answers or a teacher are needed."""
        check_questions(data, has_teacher)

    def features(
        self, data: SquadData, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, *, labelled: bool = False
    ) -> Features:
        """A row for each window."""
        types = getattr(model.config, "type_vocab_size", 0) > 1
        return tokenize_questions(data, tokenizer, longest_input(self.task, model), labelled=labelled, types=types)

    def logits(self, outputs: Any) -> Tensor:
        """Start and end."""
        return torch.stack([outputs.start_logits, outputs.end_logits], dim=1)

    def loss_pred(self, student: Tensor, teacher: Tensor, mask: Tensor | None, reduction: str) -> Tensor:
        """SCE(start) + SCE(end)."""
        return loss_pred_spans(student, teacher, mask, reduction)

    def loss_labels(self, logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """The mean of two cross-entropies."""
        return loss_labels_spans(logits, labels, mask)

    def scores(self, features: Features, name: str, logits: Logits, teacher: Any = None) -> dict[str, float]:
        """EM and F1, and agreement."""
        return answer_scores(self.task, _asked(features, name), self.answers(features, name, logits), teacher)

    def answers(self, features: Features, name: str, logits: Logits) -> list[Prediction]:
        """Pieces of the text."""
        return self.task.predict(features.windows[name], logits[:, 0], logits[:, 1])

    def tuned(self, features: Features, name: str, logits: Logits) -> Head:
        """With the threshold that is best on this set: it is the one that goes with the model."""
        if self.task.null_threshold is None:
            return self
        best = self.scores(features, name, logits).get("best_f1_thresh")
        return self if best is None else SpanHead(replace(self.task, null_threshold=best))

    def note(self, config: Any, features: Features, sets: Sets) -> None:
        """How to ask the model, with the threshold that is best on the first evaluation set."""
        task = replace(self.task, max_length=features.max_length)
        best = next(iter(sets.values())).get("best_f1_thresh")
        if best is not None:
            task = replace(task, null_threshold=best)
        setattr(config, ANSWERING, task.answering())


def _asked(features: Features, name: str) -> list[Question]:
    """The questions of an evaluation set."""
    windows = features.windows[name]
    return [window.question for i, window in enumerate(windows) if i == 0 or window.row != windows[i - 1].row]


def head_of(task: AnyTask) -> Head:
    """The head of a task."""
    return SpanHead(task) if isinstance(task, SquadTask) else ClassHead(task)
