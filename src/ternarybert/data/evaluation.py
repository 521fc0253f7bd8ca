"""From predictions to an evaluation report; the same for every engine, so without torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ternarybert.data.metrics import mean_scores
from ternarybert.data.task import Task, TaskData
from ternarybert.errors import DataError

Status = Callable[[str], None]  # receives a line about the progress now and then
Predictions = Mapping[str, Any]  # by evaluation set: what the kind of task predicts


def check_evaluation_sets(data: TaskData[Task], *, has_teacher: bool) -> None:
    """Refuse data that no score can be computed on."""
    task = data.task
    if not data.evals:
        raise DataError(f"'{task.name}' has no {task.unit} to evaluate on")
    for name, examples in data.evals.items():
        if not has_teacher and not task.has_references(examples):
            raise DataError(
                f"the {task.unit} of '{task.name}' in the evaluation set '{name}' have no labels or 'answers'; "
                "add them, or compare with another model: evaluate --teacher"
            )


def evaluate_model(
    model: str | Path,
    data: TaskData[Task],
    predict: Callable[[], Predictions],
    predict_teacher: Callable[[], Predictions] | None,
    versions: Mapping[str, str],
) -> dict[str, Any]:
    """Score what `predict` returns on every evaluation set; `data` are those fitted to the model.

    Only the model's own time counts. `confusion` has a table per set, with a row per true class.
    """
    check_evaluation_sets(data, has_teacher=predict_teacher is not None)
    start = time.perf_counter()
    predictions = predict()
    seconds = time.perf_counter() - start
    teacher = {} if predict_teacher is None else predict_teacher()
    task, rows = data.task, sum(map(len, data.evals.values()))
    sets = {name: task.scores(data.evals[name], made, teacher.get(name)) for name, made in predictions.items()}
    scores = mean_scores(sets)
    return {
        "model": str(model),
        "task": task.name,
        "metric": task.main_metric(scores),
        "scores": scores,
        "sets": sets,
        "confusion": {
            "labels": list(task.class_names),
            "sets": {name: task.confusion(data.evals[name], made) for name, made in predictions.items()},
        },
        "rows": rows,
        "seconds": round(seconds, 2),
        "examples_per_second": round(rows / seconds, 2),
        "versions": dict(versions),
    }


def report_share(status: Status, model: str, name: str, share: float) -> None:
    """Report which share of an evaluation set a model has done."""
    status(f"evaluating {model} on {name}: {share:.0%}")
