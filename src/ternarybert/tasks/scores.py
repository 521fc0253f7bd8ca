"""How good answers are on a task, and how much they agree with a teacher's; the same for every engine."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ternarybert.errors import DataError
from ternarybert.tasks import metrics
from ternarybert.tasks.task import Task, TaskData

Logits = NDArray[np.float32]
Labels = NDArray[Any]


def task_scores(task: Task, logits: Logits, labels: Labels | None, teacher: Logits | None = None) -> dict[str, float]:
    """The task's metrics against the labels, and agreement with the teacher's answers where those are given.

    Without labels the teacher's answers are the reference, and agreement is the score.
    """
    predictions = metrics.predict_from_logits(logits, task.regression)
    scores: dict[str, float] = {}
    if labels is not None:
        scores.update(task.score(predictions, labels))
    if teacher is not None:
        answers = metrics.predict_from_logits(teacher, task.regression)
        names = metrics.REGRESSION[:1] if task.regression else ("agreement",)
        found = metrics.score(names, predictions, answers)
        scores["agreement"] = next(iter(found.values()))
    return scores


def check_rows(data: TaskData, has_teacher: bool) -> None:
    """Refuse data that nothing can be scored on."""
    if not data.evals:
        raise DataError(f"'{data.task.name}' has no rows to evaluate on")
    unlabelled = [name for name, rows in data.evals.items() if "label" not in rows.column_names]
    if unlabelled and not has_teacher:
        raise DataError(f"the rows of '{data.task.name}' have no labels; name the label column, or a teacher")


def main_metric(task: Task, scores: dict[str, float]) -> str:
    """The name of the score that students are selected by."""
    return next((name for name in task.metrics if name in scores), "agreement")


def mean_scores(sets: dict[str, dict[str, float]]) -> dict[str, float]:
    """The mean over the evaluation sets, which selection looks at."""
    return {name: float(np.mean([each[name] for each in sets.values()])) for name in next(iter(sets.values()))}


def confusion(task: Task, logits: Logits, labels: Labels | None) -> list[list[int]] | None:
    """Rows are true classes, columns predicted ones; None for regression and for data without labels."""
    if task.regression or labels is None:
        return None
    predictions = metrics.predict_from_logits(logits, regression=False)
    table: list[list[Any]] = metrics.confusion_matrix(predictions, labels, logits.shape[1]).tolist()
    return table
