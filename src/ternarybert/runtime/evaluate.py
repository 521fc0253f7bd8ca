"""How good a packed model is, computed by the engine that users will run. The report is that of the torch engine."""

from __future__ import annotations

import platform
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import ternarybert
from ternarybert.errors import LabelError, TruncationWarning, UnsupportedModelError
from ternarybert.runtime.answerer import Answerer
from ternarybert.runtime.heads import Classifier
from ternarybert.runtime.load import load
from ternarybert.runtime.model import Model
from ternarybert.tasks import SquadData, TaskData, align_labels
from ternarybert.tasks.scores import (
    Logits,
    answer_scores,
    check_questions,
    check_rows,
    confusion,
    main_metric,
    mean_scores,
    task_scores,
)
from ternarybert.tasks.squad import SquadTask
from ternarybert.tasks.squad_answers import Prediction
from ternarybert.tasks.task import Task


@dataclass(frozen=True)
class _Judged:
    """Scores and confusion tables of every evaluation set."""

    task: Task | SquadTask
    sets: dict[str, dict[str, float]]
    confusion: dict[str, list[list[int]] | None]
    seconds: float


def evaluate(
    model: str | Path,
    data: TaskData | SquadData,
    *,
    teacher: str | Path | None = None,
    num_threads: int | None = None,
    engine: str = "native",
) -> dict[str, Any]:
    """Score a packed model on the evaluation sets of `data`; with a teacher, also packed, against its answers."""
    student: Model
    if isinstance(data, SquadData):
        answerers = [_answerer(folder, num_threads, engine) for folder in (model, teacher) if folder is not None]
        student, judged = answerers[0], _judge_answers(data, *answerers)
    else:
        classifiers = [_classifier(folder, num_threads, engine) for folder in (model, teacher) if folder is not None]
        student, judged = classifiers[0], _judge_labels(data, *classifiers)
    scores, rows = mean_scores(judged.sets), sum(map(len, data.evals.values()))
    return {
        "model": str(model),
        "task": judged.task.name,
        "metric": main_metric(judged.task, scores),
        "scores": scores,
        "sets": judged.sets,
        "confusion": {"labels": list(getattr(judged.task, "labels", None) or ()), "sets": judged.confusion},
        "rows": rows,
        "seconds": round(judged.seconds, 2),
        "examples_per_second": round(rows / judged.seconds, 2),
        "versions": _versions(student),
    }


def _judge_labels(data: TaskData, model: Classifier, teacher: Classifier | None = None) -> _Judged:
    data = replace(align_labels(data, dict(enumerate(model.labels))), train=None)
    check_rows(data, teacher is not None)
    if teacher is not None and teacher.labels != model.labels:
        raise LabelError("the teacher's labels are not the model's, so their answers cannot be compared")
    start = time.perf_counter()
    logits = _logits(model, data)
    seconds = time.perf_counter() - start
    answers = {} if teacher is None else _logits(teacher, data)
    labels = {name: np.asarray(r["label"]) if "label" in r.column_names else None for name, r in data.evals.items()}
    sets = {name: task_scores(data.task, logits[name], labels[name], answers.get(name)) for name in data.evals}
    tables = {name: confusion(data.task, logits[name], labels[name]) for name in data.evals}
    return _Judged(data.task, sets, tables, seconds)


def _judge_answers(data: SquadData, model: Answerer, teacher: Answerer | None = None) -> _Judged:
    check_questions(data, teacher is not None)
    task = data.task.asked_of(model.config)
    start = time.perf_counter()
    answers = {name: list(model.predictions(questions, task)) for name, questions in data.evals.items()}
    seconds = time.perf_counter() - start
    theirs: dict[str, list[Prediction]] = {}
    if teacher is not None:  # asked in its own way
        own = data.task.asked_of(teacher.config)
        theirs = {name: list(teacher.predictions(questions, own)) for name, questions in data.evals.items()}
    sets = {name: answer_scores(task, q, answers[name], theirs.get(name)) for name, q in data.evals.items()}
    return _Judged(task, sets, dict.fromkeys(sets), seconds)


def label_names(folder: str | Path) -> list[str]:
    """The labels of a packed classifier, in the order of its outputs."""
    with _classifier(folder, 1, "oracle") as model:  # which computes nothing until it is asked
        return list(model.labels)


def _classifier(folder: str | Path, num_threads: int | None, engine: str) -> Classifier:
    model = load(folder, num_threads=num_threads, engine=engine)
    if not isinstance(model, Classifier):
        raise UnsupportedModelError(f"'{folder}' has no classification head, and these data have labels")
    return model


def _answerer(folder: str | Path, num_threads: int | None, engine: str) -> Answerer:
    model = load(folder, num_threads=num_threads, engine=engine)
    if not isinstance(model, Answerer):
        raise UnsupportedModelError(f"'{folder}' has no question-answering head, and these data are questions")
    return model


def _logits(model: Classifier, data: TaskData) -> dict[str, Logits]:
    """The logits of every set, with texts cut as in training, which is no news to anyone."""
    model.text.limit(min(data.task.max_length, model.max_length))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        return {name: model.logits(_texts(rows)) for name, rows in data.evals.items()}


def _texts(rows: Any) -> list[Any]:
    if "text_pair" in rows.column_names:
        return list(zip(rows["text"], rows["text_pair"], strict=True))
    return list(rows["text"])


def _versions(model: Model) -> dict[str, str]:
    return {
        "ternarybert": ternarybert.__version__,
        "kernel": model.kernel,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {model.num_threads} threads",
    }
