"""Classification and regression of texts and pairs of texts: GLUE and the user's own tables.

Whatever the source, rows have the same columns: `text`, for pairs also `text_pair`, and, where there are labels,
`label`: a class id in the order of `task.labels`, or a float for regression. Nothing depends on a task's name, so a
user's own table is as good a task as MNLI.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ternarybert.data import metrics
from ternarybert.data.labels import align_labels
from ternarybert.data.task import Scores, Task, TaskData
from ternarybert.errors import DataError

CLASSIFICATION = "classification"


@dataclass(frozen=True)
class ClassificationTask(Task):
    """A class or a number for every text; the defaults are the paper's (section 4.1)."""

    name: str
    text_columns: tuple[str, ...]  # one or two, as the source names them
    label_column: str | None
    labels: tuple[str, ...] | None  # class names in the order of their ids; None for regression and when unknown
    metrics: tuple[str, ...]
    regression: bool = False
    positive: int = 1  # the class that F1 is about
    max_length: int = 128
    batch_size: int = 32
    epochs: int = 3
    epochs_augmented: int = 1  # augmented data are many times more, one pass is enough
    augment: bool | None = None  # whether the paper augments this task; None where it does not say
    augment_variants: int = 20  # variants per example when it is augmented (TinyBERT's N)

    kind = CLASSIFICATION
    unit = "rows"

    @property
    def pair(self) -> bool:
        """Whether an input is two texts."""
        return len(self.text_columns) == 2

    @property
    def num_labels(self) -> int | None:
        """How many outputs a model for this task has; None when the labels are not known."""
        if self.regression:
            return 1
        return len(self.labels) if self.labels else None

    @property
    def class_names(self) -> tuple[str, ...]:
        """The labels; empty for regression."""
        return self.labels or ()

    def identity(self) -> object:
        """The labels in their order."""
        return self.labels

    def fit(self, data: TaskData[ClassificationTask], config: Mapping[str, Any]) -> TaskData[ClassificationTask]:
        """Renumber the labels in the order of the model's."""
        names: Mapping[int, str] = config["id2label"]
        if data.task.num_labels is not None and data.task.num_labels != len(names):
            raise DataError(f"the model has {len(names)} outputs, but the data have {data.task.num_labels} labels")
        return align_labels(data, names)

    def has_references(self, examples: Any) -> bool:
        """Whether there is a column of labels."""
        return "label" in examples.column_names

    def scores(self, examples: Any, predictions: NDArray[Any], teacher: NDArray[Any] | None = None) -> Scores:
        """The task's metrics of logits (N, classes); agreement of regression is its first metric against the teacher.

        Without labels the teacher's predictions are the only reference.
        """
        predicted = metrics.predict_from_logits(predictions, self.regression)
        scores: Scores = {}
        if self.has_references(examples):
            scores.update(self.score(predicted, np.asarray(examples["label"])))
        if teacher is not None:
            names = metrics.REGRESSION[:1] if self.regression else metrics.UNLABELLED
            against = metrics.score(names, predicted, metrics.predict_from_logits(teacher, self.regression))
            scores["agreement"] = next(iter(against.values()))
        return scores

    def score(self, predictions: ArrayLike, references: ArrayLike) -> Scores:
        """The task's metrics of class ids or numbers, in percent where that makes sense."""
        return metrics.score(self.metrics, predictions, references, positive=self.positive)

    def confusion(self, examples: Any, predictions: NDArray[Any]) -> list[list[int]] | None:
        """Rows are true classes, columns predicted ones; None for regression and for data without labels."""
        if self.regression or not self.has_references(examples):
            return None
        predicted = metrics.predict_from_logits(predictions, regression=False)
        counts = metrics.confusion_matrix(predicted, np.asarray(examples["label"]), predictions.shape[1])
        table: list[list[int]] = counts.tolist()
        return table

    def sample(self, examples: Any, count: int) -> Any:
        """A random choice, the same for a number of rows."""
        return examples.shuffle(seed=0).select(range(count))

    def describe(self, data: TaskData[Any]) -> str:
        """The columns of texts and label, and the classes."""
        texts = " and ".join(f"'{name}'" for name in self.text_columns)
        if self.label_column is None:
            return f"texts {texts}, no labels"
        counts = self._class_counts(data)
        shown = [name if counts is None else f"{name} {counts[i]:,}" for i, name in enumerate(self.class_names[:8])]
        names = ", ".join(shown) + (f", and {len(self.class_names) - 8} more" if len(self.class_names) > 8 else "")
        return f"texts {texts}, label '{self.label_column}' ({'a number: regression' if self.regression else names})"

    def _class_counts(self, data: TaskData[Any]) -> dict[int, int] | None:
        """How many rows each class has, in training if there are any labels; None where there are none."""
        parts = [part for part in (data.train, *data.evals.values()) if part is not None and self.has_references(part)]
        return Counter(parts[0]["label"]) if parts and not self.regression else None
