"""How good a model is on a task, and how much it agrees with its teacher."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from datasets import Dataset

from ternarybert.distill.features import Logits, references
from ternarybert.tasks import SquadTask, Task, metrics
from ternarybert.tasks.squad_features import Window
from ternarybert.tasks.squad_metrics import normalize


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


def answer_scores(
    task: SquadTask, windows: Sequence[Window], logits: Logits, teacher: Logits | None = None
) -> dict[str, float]:
    """EM and F1 against people's answers, and how often the answer is the teacher's, of logits (N, 2, n)."""
    questions = [w.question for i, w in enumerate(windows) if i == 0 or w.row != windows[i - 1].row]
    predictions = task.predict(windows, logits[:, 0], logits[:, 1])
    scores: dict[str, float] = {}
    if all(question.answers is not None for question in questions):
        found = task.score(questions, predictions)
        names = dict.fromkeys((*task.metrics, *found))  # what models are selected by comes first
        scores.update({name: found[name] for name in names if not name.endswith("total")})
    if teacher is not None:
        theirs = task.predict(windows, teacher[:, 0], teacher[:, 1])
        same = [normalize(a.text) == normalize(b.text) for a, b in zip(predictions, theirs, strict=True)]
        scores["agreement"] = 100 * sum(same) / len(same)
    return scores


def main_metric(task: Task | SquadTask, scores: dict[str, float]) -> str:
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
