"""How good a packed model is, computed by the engine that users will run. The report is that of the torch engine."""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import ternarybert
from ternarybert.data import SquadData, TaskData, align_labels
from ternarybert.data.metrics import (
    Logits,
    answer_scores,
    check_questions,
    check_rows,
    confusion,
    main_metric,
    mean_scores,
    task_scores,
    tell_share,
)
from ternarybert.data.squad.spans import Prediction
from ternarybert.data.squad.task import SquadTask
from ternarybert.data.task import Task
from ternarybert.errors import LabelError, TruncationWarning, UnsupportedModelError
from ternarybert.runtime.load import load
from ternarybert.runtime.model import Answerer, Classifier, Model

_AT_ONCE = 1024  # texts between two reports


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
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Score a packed model on the evaluation sets of `data`; with a teacher, also packed, against its answers.

    `tell` hears now and then how far it is.
    """
    student: Model
    if isinstance(data, SquadData):
        answerers = [_answerer(folder, num_threads, engine) for folder in (model, teacher) if folder is not None]
        student, judged = answerers[0], _judge_answers(data, tell, *answerers)
    else:
        classifiers = [_classifier(folder, num_threads, engine) for folder in (model, teacher) if folder is not None]
        student, judged = classifiers[0], _judge_labels(data, tell, *classifiers)
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


def _judge_labels(
    data: TaskData, tell: Callable[[str], None], model: Classifier, teacher: Classifier | None = None
) -> _Judged:
    data = replace(align_labels(data, dict(enumerate(model.labels))), train=None)
    check_rows(data, teacher is not None)
    if teacher is not None and teacher.labels != model.labels:
        raise LabelError("the teacher's labels are not the model's, so their answers cannot be compared")
    start = time.perf_counter()
    logits = _logits(model, data, partial(tell_share, tell, "the model"))
    seconds = time.perf_counter() - start
    answers = {} if teacher is None else _logits(teacher, data, partial(tell_share, tell, "the teacher"))
    labels = {name: np.asarray(r["label"]) if "label" in r.column_names else None for name, r in data.evals.items()}
    sets = {name: task_scores(data.task, logits[name], labels[name], answers.get(name)) for name in data.evals}
    tables = {name: confusion(data.task, logits[name], labels[name]) for name in data.evals}
    return _Judged(data.task, sets, tables, seconds)


def _judge_answers(
    data: SquadData, tell: Callable[[str], None], model: Answerer, teacher: Answerer | None = None
) -> _Judged:
    check_questions(data, teacher is not None)
    task = data.task.asked_of(model.config)
    start = time.perf_counter()
    answers = _answers(model, data, task, partial(tell_share, tell, "the model"))
    seconds = time.perf_counter() - start
    theirs: dict[str, list[Prediction]] = {}
    if teacher is not None:  # asked in its own way
        theirs = _answers(teacher, data, data.task.asked_of(teacher.config), partial(tell_share, tell, "the teacher"))
    sets = {name: answer_scores(task, q, answers[name], theirs.get(name)) for name, q in data.evals.items()}
    return _Judged(task, sets, dict.fromkeys(sets), seconds)


def _answers(
    model: Answerer, data: SquadData, task: SquadTask, tell: Callable[[str, float], None]
) -> dict[str, list[Prediction]]:
    found: dict[str, list[Prediction]] = {}
    for name, questions in data.evals.items():
        found[name] = []
        for prediction in model.predictions(questions, task):
            found[name].append(prediction)
            tell(name, len(found[name]) / len(questions))
    return found


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


def _logits(model: Classifier, data: TaskData, tell: Callable[[str, float], None]) -> dict[str, Logits]:
    """The logits of every set, with texts cut as in training, which is no news to anyone."""
    model.text.limit(min(data.task.max_length, model.max_length))
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        for name, rows in data.evals.items():
            texts, parts = _texts(rows), []
            for first in range(0, len(texts), _AT_ONCE):
                parts.append(model.logits(texts[first : first + _AT_ONCE]))
                tell(name, min(1.0, (first + _AT_ONCE) / len(texts)))
            found[name] = np.concatenate(parts)
    return found


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
