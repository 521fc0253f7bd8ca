"""How good a packed model is, computed by the engine that users will run. The report is that of the torch engine."""

from __future__ import annotations

import platform
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import ternarybert
from ternarybert.errors import LabelError, TruncationWarning, UnsupportedModelError
from ternarybert.runtime.heads import Classifier
from ternarybert.runtime.load import load
from ternarybert.tasks import TaskData, align_labels
from ternarybert.tasks.scores import Logits, check_rows, confusion, main_metric, mean_scores, task_scores


def evaluate(
    model: str | Path,
    data: TaskData,
    *,
    teacher: str | Path | None = None,
    num_threads: int | None = None,
    engine: str = "native",
) -> dict[str, Any]:
    """Score a packed model on the evaluation sets of `data`; with a teacher, also packed, against its answers."""
    student = _load(model, num_threads, engine)
    data = replace(align_labels(data, dict(enumerate(student.labels))), train=None)
    check_rows(data, teacher is not None)
    start = time.perf_counter()
    logits = _logits(student, data)
    seconds = time.perf_counter() - start
    answers = {} if teacher is None else _teacher_logits(teacher, student, data, num_threads, engine)
    labels = {name: np.asarray(r["label"]) if "label" in r.column_names else None for name, r in data.evals.items()}
    sets = {name: task_scores(data.task, logits[name], labels[name], answers.get(name)) for name in data.evals}
    scores = mean_scores(sets)
    rows = sum(map(len, logits.values()))
    return {
        "model": str(model),
        "task": data.task.name,
        "metric": main_metric(data.task, scores),
        "scores": scores,
        "sets": sets,
        "confusion": {
            "labels": list(data.task.labels or ()),
            "sets": {name: confusion(data.task, logits[name], labels[name]) for name in data.evals},
        },
        "rows": rows,
        "seconds": round(seconds, 2),
        "examples_per_second": round(rows / seconds, 2),
        "versions": _versions(student),
    }


def label_names(folder: str | Path) -> list[str]:
    """The labels of a packed classifier, in the order of its outputs."""
    with _load(folder, 1, "oracle") as model:  # which computes nothing until it is asked
        return list(model.labels)


def _load(folder: str | Path, num_threads: int | None, engine: str) -> Classifier:
    model = load(folder, num_threads=num_threads, engine=engine)
    if not isinstance(model, Classifier):
        raise UnsupportedModelError(f"'{folder}' has no classification head, and only those can be scored")
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


def _teacher_logits(
    teacher: str | Path, student: Classifier, data: TaskData, num_threads: int | None, engine: str
) -> dict[str, Logits]:
    model = _load(teacher, num_threads, engine)
    if model.labels != student.labels:
        raise LabelError(f"the labels of '{teacher}' are not the model's, so their answers cannot be compared")
    return _logits(model, data)


def _versions(model: Classifier) -> dict[str, str]:
    return {
        "ternarybert": ternarybert.__version__,
        "kernel": model.kernel,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {model.num_threads} threads",
    }
