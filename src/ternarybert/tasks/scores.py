"""How good answers are on a task, and how much they agree with a teacher's; the same for every engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ternarybert.errors import DataError
from ternarybert.tasks import metrics
from ternarybert.tasks.squad import SquadData, SquadTask
from ternarybert.tasks.squad_answers import Prediction
from ternarybert.tasks.squad_metrics import normalize
from ternarybert.tasks.squad_questions import Question
from ternarybert.tasks.task import Task, TaskData

Logits = NDArray[np.float32]
Labels = NDArray[Any]

_WITHOUT = "add them, or compare with another model: evaluate --teacher"


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


def answer_scores(
    task: SquadTask,
    questions: Sequence[Question],
    predictions: Sequence[Prediction],
    teacher: Sequence[Prediction] | None = None,
) -> dict[str, float]:
    """EM and F1 against people's answers, and how often the answer is the teacher's."""
    scores: dict[str, float] = {}
    if all(question.answers is not None for question in questions):
        found = task.score(questions, predictions)
        names = dict.fromkeys((*task.metrics, *found))  # what models are selected by comes first
        scores.update({name: found[name] for name in names if name in found and not name.endswith("total")})
    if teacher is not None:
        same = [normalize(a.text) == normalize(b.text) for a, b in zip(predictions, teacher, strict=True)]
        scores["agreement"] = 100 * sum(same) / len(same)
    return scores


def check_rows(data: TaskData, has_teacher: bool) -> None:
    """Refuse data that nothing can be scored on."""
    if not data.evals:
        raise DataError(f"'{data.task.name}' has no rows to evaluate on")
    unlabelled = [name for name, rows in data.evals.items() if "label" not in rows.column_names]
    if unlabelled and not has_teacher:
        raise DataError(f"rows of '{data.task.name}' to judge by have no labels; {_WITHOUT}")


def check_questions(data: SquadData, has_teacher: bool) -> None:
    """The same for questions."""
    if not data.evals:
        raise DataError(f"'{data.task.name}' has no questions to evaluate on")
    unlabelled = any(question.answers is None for questions in data.evals.values() for question in questions)
    if unlabelled and not has_teacher:
        raise DataError(f"questions of '{data.task.name}' to judge by have no 'answers'; {_WITHOUT}")


def main_metric(task: Task | SquadTask, scores: dict[str, float]) -> str:
    """The name of the score that students are selected by."""
    return next((name for name in task.metrics if name in scores), "agreement")


def mean_scores(sets: dict[str, dict[str, float]]) -> dict[str, float]:
    """The mean over the evaluation sets, which selection looks at, of the scores that all of them have."""
    first, *others = sets.values()
    names = [name for name in first if all(name in other for other in others)]
    return {name: float(np.mean([each[name] for each in sets.values()])) for name in names}


def tell_share(tell: Callable[[str], None], model: str, name: str, share: float) -> None:
    """Say how far a model is with an evaluation set."""
    tell(f"evaluating {model} on {name}: {share:.0%}")


def confusion(task: Task, logits: Logits, labels: Labels | None) -> list[list[int]] | None:
    """Rows are true classes, columns predicted ones; None for regression and for data without labels."""
    if task.regression or labels is None:
        return None
    predictions = metrics.predict_from_logits(logits, regression=False)
    table: list[list[Any]] = metrics.confusion_matrix(predictions, labels, logits.shape[1]).tolist()
    return table


def mistakes(counts: Sequence[Sequence[int]]) -> list[tuple[int, int, int]]:
    """Number of rows, true class and answer of every kind of mistake in a confusion table, the most frequent first."""
    pairs = [(n, i, j) for i, row in enumerate(counts) for j, n in enumerate(row) if i != j and n]
    return sorted(pairs, key=lambda pair: -pair[0])
