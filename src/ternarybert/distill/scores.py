"""How good a model is on a task, and how much it agrees with its teacher."""

from __future__ import annotations

from typing import Any

from datasets import Dataset

from ternarybert.distill.features import Logits, references
from ternarybert.tasks import Task, metrics


def task_scores(task: Task, logits: Logits, features: Dataset, teacher: Logits | None = None) -> dict[str, float]:
    """The task's metrics against the labels, and agreement with the teacher's answers where those are given.

    Without labels the teacher's answers are the reference, and agreement is the score.
    """
    predictions = metrics.predict_from_logits(logits, task.regression)
    scores: dict[str, float] = {}
    labels = references(features)
    if labels is not None:
        scores.update(task.score(predictions, labels))
    if teacher is not None:
        answers = metrics.predict_from_logits(teacher, task.regression)
        names = metrics.REGRESSION[:1] if task.regression else ("agreement",)
        found = metrics.score(names, predictions, answers)
        scores["agreement"] = next(iter(found.values()))
    return scores


def main_metric(task: Task, scores: dict[str, float]) -> str:
    """The name of the score that students are selected by."""
    return next((name for name in task.metrics if name in scores), "agreement")


def confusion(task: Task, logits: Logits, features: Dataset) -> list[list[int]] | None:
    """Rows are true classes, columns predicted ones; None for regression and for data without labels."""
    labels = references(features)
    if task.regression or labels is None:
        return None
    predictions = metrics.predict_from_logits(logits, regression=False)
    table: list[list[Any]] = metrics.confusion_matrix(predictions, labels, logits.shape[1]).tolist()
    return table
