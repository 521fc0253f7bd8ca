"""How good a model's logits are on tokenized rows."""

from __future__ import annotations

from datasets import Dataset

from ternarybert.distill.features import Logits, references
from ternarybert.tasks import Task, scores
from ternarybert.tasks.scores import answer_scores, main_metric

__all__ = ["answer_scores", "confusion", "main_metric", "task_scores"]


def task_scores(task: Task, logits: Logits, features: Dataset, teacher: Logits | None = None) -> dict[str, float]:
    """The task's metrics against the rows' labels, and agreement with the teacher's answers where those are given."""
    return scores.task_scores(task, logits, references(features), teacher)


def confusion(task: Task, logits: Logits, features: Dataset) -> list[list[int]] | None:
    """Rows are true classes, columns predicted ones; None for regression and for data without labels."""
    return scores.confusion(task, logits, references(features))
