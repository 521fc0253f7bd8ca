"""How good a model is, full-precision or packed, and how often it answers as its teacher does (torch engine)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from ternarybert.data.metrics import mean_scores, tell_share
from ternarybert.errors import LabelError
from ternarybert.training.batches import Features, Logits, predict_logits
from ternarybert.training.heads import AnyData, Head, head_of, main_metric
from ternarybert.training.models import load_any, load_tokenizer
from ternarybert.training.options import versions


def evaluate(
    model: str | Path,
    data: AnyData,
    *,
    teacher: str | Path | None = None,
    device: str | None = None,
    batch_size: int = 32,
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Score the model in a folder on the evaluation sets of `data`; with a teacher, also against its answers.

    Selection looks at the mean over the sets; `confusion` has a table per set, a row per true class. `tell` hears now
    and then how far it is.
    """
    head = head_of(data.task)
    network = load_any(str(model), head).to(device or "cpu")
    asked, data = data, replace(head.fit(data, network), train=None)
    head = head_of(data.task)
    head.check_evals(data, teacher is not None)
    start = time.perf_counter()
    features, logits = _answers(str(model), network, data, head, batch_size, tell)
    seconds = time.perf_counter() - start
    answers = {} if teacher is None else _teacher_answers(str(teacher), network, asked, device, batch_size, tell)
    sets = {name: head.scores(features, name, found, answers.get(name)) for name, found in logits.items()}
    scores = mean_scores(sets)
    rows = sum(map(len, data.evals.values()))
    return {
        "model": str(model),
        "task": data.task.name,
        "metric": main_metric(data.task, scores),
        "scores": scores,
        "sets": sets,
        "confusion": {
            "labels": list(getattr(data.task, "labels", None) or ()),
            "sets": {name: head.confusion(features, name, found) for name, found in logits.items()},
        },
        "rows": rows,
        "seconds": round(seconds, 2),
        "examples_per_second": round(rows / seconds, 2),
        "versions": versions(),
    }


def _answers(
    folder: str, network: PreTrainedModel, data: AnyData, head: Head, batch_size: int, tell: Callable[[str], None]
) -> tuple[Features, dict[str, Logits]]:
    tokenizer = load_tokenizer(folder)
    features = head.features(data, tokenizer, network)
    logits = {}
    for name, rows in features.evals.items():
        told = partial(tell_share, tell, Path(folder).name, name)
        logits[name] = predict_logits(network, rows, tokenizer, batch_size, head.logits, told)
    return features, logits


def _teacher_answers(
    teacher: str,
    student: PreTrainedModel,
    data: AnyData,
    device: str | None,
    batch_size: int,
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """What the teacher says, asked in its own way: with its own windows and its own threshold."""
    network = load_any(teacher, head_of(data.task)).to(device or "cpu")
    if dict(network.config.id2label) != dict(student.config.id2label):
        raise LabelError(f"the labels of '{teacher}' are not the model's, so their answers cannot be compared")
    head = head_of(data.task)
    data = replace(head.fit(data, network), train=None)
    head = head_of(data.task)
    features, logits = _answers(teacher, network, data, head, batch_size, tell)
    return {name: head.answers(features, name, found) for name, found in logits.items()}
