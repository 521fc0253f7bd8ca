"""How good a model is, full-precision or packed, and how often it answers as its teacher does (torch engine)."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from ternarybert.distill.features import Features, Logits, predict_logits
from ternarybert.distill.models import features_of, load_any, load_tokenizer
from ternarybert.distill.run import versions
from ternarybert.distill.scores import confusion, main_metric, task_scores
from ternarybert.errors import LabelError
from ternarybert.tasks import TaskData, align_labels
from ternarybert.tasks.scores import check_rows, mean_scores


def evaluate(
    model: str | Path,
    data: TaskData,
    *,
    teacher: str | Path | None = None,
    device: str | None = None,
    batch_size: int = 32,
) -> dict[str, Any]:
    """Score the model in a folder on the evaluation sets of `data`; with a teacher, also against its answers.

    Selection looks at the mean over the sets; `confusion` has a table per set, a row per true class.
    """
    network = load_any(str(model)).to(device or "cpu")
    data = replace(align_labels(data, network.config.id2label), train=None)
    check_rows(data, teacher is not None)
    start = time.perf_counter()
    features, logits = _answers(str(model), network, data, batch_size)
    seconds = time.perf_counter() - start
    answers = {} if teacher is None else _teacher_answers(str(teacher), network, data, device, batch_size)
    sets = {
        name: task_scores(data.task, logits[name], rows, answers.get(name)) for name, rows in features.evals.items()
    }
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
            "sets": {name: confusion(data.task, logits[name], part) for name, part in features.evals.items()},
        },
        "rows": rows,
        "seconds": round(seconds, 2),
        "examples_per_second": round(rows / seconds, 2),
        "versions": versions(),
    }


def _answers(
    folder: str, network: PreTrainedModel, data: TaskData, batch_size: int
) -> tuple[Features, dict[str, Logits]]:
    tokenizer = load_tokenizer(folder)
    features = features_of(data, tokenizer, network)
    logits = {name: predict_logits(network, rows, tokenizer, batch_size) for name, rows in features.evals.items()}
    return features, logits


def _teacher_answers(
    teacher: str, student: PreTrainedModel, data: TaskData, device: str | None, batch_size: int
) -> dict[str, Logits]:
    network = load_any(teacher).to(device or "cpu")
    if dict(network.config.id2label) != dict(student.config.id2label):
        raise LabelError(f"the labels of '{teacher}' are not the model's, so their answers cannot be compared")
    return _answers(teacher, network, data, batch_size)[1]
