"""The two heads: classes (or a number) for a text, and a piece of the text as the answer to a question.

MERGED-DOCS:
How good a model's logits are on tokenized rows.
---
What differs between classifying rows and answering questions; the rest of this folder does both alike.

A `Head` belongs to a task. It knows the class of model the task needs, makes features of the data, reads the logits off
a model's outputs, and has the losses and scores on them. Logits are (B, C) of a classifier, one for every class, and
(B, 2, n) of a model that answers questions: how well each token begins and ends the answer.

"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeAlias

import torch
from datasets import Dataset
from torch import Tensor
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ternarybert.data import SquadData, SquadTask, Task, TaskData, align_labels
from ternarybert.data import metrics as scores
from ternarybert.data.metrics import answer_scores, check_questions, check_rows, main_metric
from ternarybert.data.squad.questions import Question
from ternarybert.data.squad.spans import Prediction
from ternarybert.data.squad.task import ANSWERING
from ternarybert.errors import DataError
from ternarybert.training.batches import Features, Logits, longest_input, references, tokenize, tokenize_questions
from ternarybert.training.losses import loss_labels, loss_labels_spans, loss_pred, loss_pred_spans

__all__ = ["answer_scores", "confusion", "main_metric", "task_scores"]


def task_scores(task: Task, logits: Logits, features: Dataset, teacher: Logits | None = None) -> dict[str, float]:
    """The task's metrics against the rows' labels, and agreement with the teacher's answers where those are given."""
    return scores.task_scores(task, logits, references(features), teacher)


def confusion(task: Task, logits: Logits, features: Dataset) -> list[list[int]] | None:
    """Rows are true classes, columns predicted ones; None for regression and for data without labels."""
    return scores.confusion(task, logits, references(features))


AnyTask: TypeAlias = Task | SquadTask
AnyData: TypeAlias = TaskData | SquadData
Sets: TypeAlias = dict[str, dict[str, float]]  # by evaluation set, then by metric


class Head(ABC):
    """What a task asks of a model."""

    suffix: ClassVar[str]  # of the model classes that have this head
    what: ClassVar[str]  # such a head, in messages
    auto: ClassVar[Any]  # the class that loads such models
    two_stages: ClassVar[bool]  # whether the paper distils L_trm alone before L
    per_token: ClassVar[bool]  # whether there are logits for every token
    task: Any

    @abstractmethod
    def new_head(self) -> dict[str, Any]:
        """Options of `from_pretrained` for a model that gets its head here."""

    @abstractmethod
    def check_labels(self, data: Any) -> None:
        """Refuse data that a model cannot be fine-tuned on."""

    @abstractmethod
    def fit(self, data: Any, model: PreTrainedModel) -> Any:
        """The data as a trained model understands them: with its order of labels, its threshold."""

    @abstractmethod
    def check_evals(self, data: Any, has_teacher: bool) -> None:
        """Refuse data that nothing can be scored on."""

    @abstractmethod
    def features(
        self, data: Any, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, *, labelled: bool = False
    ) -> Features:
        """Inputs of the model; `labelled` leaves out training rows of which nothing is known."""

    @abstractmethod
    def logits(self, outputs: Any) -> Tensor:
        """The logits among a model's outputs."""

    @abstractmethod
    def loss_pred(self, student: Tensor, teacher: Tensor, mask: Tensor | None, reduction: str) -> Tensor:
        """L_pred; `mask` marks the real tokens, None counts padding too."""

    @abstractmethod
    def loss_labels(self, logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """The loss on true labels."""

    @abstractmethod
    def scores(self, features: Features, name: str, logits: Logits, teacher: Any = None) -> dict[str, float]:
        """Scores on an evaluation set against the truth, where it is known, and against a teacher's `answers`."""

    def answers(self, features: Features, name: str, logits: Logits) -> Any:
        """What a model's answers are compared with when it is the teacher."""
        return logits

    def tuned(self, features: Features, name: str, logits: Logits) -> Head:
        """The head of a model that is still in training, with what is best for these logits."""
        return self

    def score_sets(self, features: Features, logits: Mapping[str, Logits], teacher: Mapping[str, Any]) -> Sets:
        """Scores of a new model on every evaluation set; what is tuned on the first holds for all."""
        first = next(iter(logits))
        tuned = self.tuned(features, first, logits[first])
        return {name: tuned.scores(features, name, said, teacher.get(name)) for name, said in logits.items()}

    def confusion(self, features: Features, name: str, logits: Logits) -> list[list[int]] | None:
        """True classes against answers, where there are classes."""
        return None

    def note(self, config: Any, features: Features, sets: Sets) -> None:  # noqa: B027 - most tasks have nothing to note
        """Write into a model's configuration what was found out about using it."""


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
