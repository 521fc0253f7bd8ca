"""How good a model is, full-precision or packed, and how often it agrees with its teacher (torch engine)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from ternarybert.data.evaluation import Status, evaluate_model, report_share
from ternarybert.data.task import TaskData
from ternarybert.errors import LabelError
from ternarybert.training.batches import predict_logits
from ternarybert.training.heads import head_of
from ternarybert.training.models import load_any, load_tokenizer
from ternarybert.training.report import versions


def evaluate(
    model: str | Path,
    data: TaskData[Any],
    *,
    teacher: str | Path | None = None,
    device: str | None = None,
    batch_size: int = 32,
    status: Status = lambda _: None,
) -> dict[str, Any]:
    """Score the model in a folder on the evaluation sets of `data`; with a teacher, also against its predictions.

    `scores` are means over the sets; `confusion` has a table per set, with a row per true class. `status` receives a
    line about the progress now and then.
    """
    network = load_any(model, head_of(data.task)).to(device or "cpu")
    own = _fitted(data, network)
    predict_teacher = None
    if teacher is not None:
        predict_teacher = partial(_teacher_predictions, teacher, network, data, device, batch_size, status)
    predict = partial(_predictions, model, network, own, batch_size, status)
    return evaluate_model(model, own, predict, predict_teacher, versions())


def predict_all(
    model: str | Path,
    data: TaskData[Any],
    *,
    device: str | None = None,
    batch_size: int = 32,
    status: Status = lambda _: None,
) -> tuple[TaskData[Any], dict[str, Any]]:
    """The data as fitted to the model in a folder, and its predictions for every evaluation set; no labels needed."""
    network = load_any(model, head_of(data.task)).to(device or "cpu")
    own = _fitted(data, network)
    return own, _predictions(model, network, own, batch_size, status)


def _fitted(data: TaskData[Any], network: PreTrainedModel) -> TaskData[Any]:
    fitted: TaskData[Any] = data.task.fit(data, network.config.to_dict())
    return replace(fitted, train=None)


def _predictions(
    folder: str | Path, network: PreTrainedModel, data: TaskData[Any], batch_size: int, status: Status
) -> dict[str, Any]:
    head, tokenizer = head_of(data.task), load_tokenizer(folder)
    tokenized = head.tokenize(data, tokenizer, network)
    predictions = {}
    for name, rows in tokenized.evals.items():
        progress = partial(report_share, status, Path(folder).name, name)
        logits = predict_logits(network, rows, tokenizer, batch_size, head.logits, progress)
        predictions[name] = head.predictions(tokenized, name, logits)
    return predictions


def _teacher_predictions(
    teacher: str | Path,
    student: PreTrainedModel,
    data: TaskData[Any],
    device: str | None,
    batch_size: int,
    status: Status,
) -> dict[str, Any]:
    """The teacher's predictions, with its own windows and its own threshold."""
    network = load_any(teacher, head_of(data.task)).to(device or "cpu")
    if dict(network.config.id2label) != dict(student.config.id2label):
        raise LabelError(f"the labels of '{teacher}' are not the model's, so their predictions cannot be compared")
    return _predictions(teacher, network, _fitted(data, network), batch_size, status)
