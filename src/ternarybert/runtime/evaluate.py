"""How good a packed model is, computed by the engine that users will run. The report is that of the torch engine."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import ternarybert
from ternarybert.data.classification import CLASSIFICATION
from ternarybert.data.embedding import EMBEDDING, EmbeddingTask, texts_of
from ternarybert.data.evaluation import Status, evaluate_model, report_share
from ternarybert.data.multi_label import MULTI_LABEL, LabelChoices, MultiLabelTask
from ternarybert.data.reranking import RERANKING
from ternarybert.data.squad.spans import Prediction
from ternarybert.data.squad.task import QUESTION_ANSWERING, QuestionAnsweringTask
from ternarybert.data.tagged_sentences import Sentence
from ternarybert.data.task import TaskData
from ternarybert.data.token_classification import TOKEN_CLASSIFICATION, TokenClassificationTask
from ternarybert.errors import LabelError, TruncationWarning, UnsupportedModelError
from ternarybert.runtime.embedder import Embedder
from ternarybert.runtime.load import load
from ternarybert.runtime.model import Answerer, Classifier, Model, Tagger

_CHUNK = 1024  # texts between two progress reports

Progress = Callable[[str, float], None]  # name of an evaluation set, share done


def evaluate(
    model: str | Path,
    data: TaskData[Any],
    *,
    teacher: str | Path | None = None,
    num_threads: int | None = None,
    engine: str = "native",
    status: Status = lambda _: None,
) -> dict[str, Any]:
    """Score a packed model on the evaluation sets of `data`; with a teacher, also packed, against its predictions.

    `status` receives a line about the progress now and then.
    """
    student = _load(model, data, num_threads, engine)
    own = _fitted(data, student)
    predict_teacher = None
    if teacher is not None:
        other = _load(teacher, data, num_threads, engine)
        if other.labels != student.labels:
            raise LabelError(f"the labels of '{teacher}' are not the model's, so their predictions cannot be compared")
        predict_teacher = partial(
            _predictions, other, _fitted(data, other), partial(report_share, status, "the teacher")
        )
    predict = partial(_predictions, student, own, partial(report_share, status, "the model"))
    return evaluate_model(model, own, predict, predict_teacher, _versions(student))


def predict_all(
    model: str | Path,
    data: TaskData[Any],
    *,
    num_threads: int | None = None,
    engine: str = "native",
    status: Status = lambda _: None,
) -> tuple[TaskData[Any], dict[str, Any]]:
    """The data as fitted to a packed model, and its predictions for every evaluation set; no labels needed."""
    student = _load(model, data, num_threads, engine)
    own = _fitted(data, student)
    return own, _predictions(student, own, partial(report_share, status, "the model"))


def label_names(folder: str | Path) -> list[str]:
    """The labels of a packed classifier or tagger, in the order of its outputs."""
    with load(folder, num_threads=1, engine="oracle") as model:  # which has nothing to prepare
        if not isinstance(model, Tagger):
            _require(Classifier, model, folder, CLASSIFICATION)
        return list(model.labels)


def _load(folder: str | Path, data: TaskData[Any], num_threads: int | None, engine: str) -> Model:
    wanted, _ = _KINDS[data.task.kind]
    model = load(folder, num_threads=num_threads, engine=engine)
    _require(wanted, model, folder, data.task.kind)
    return model


def _require(wanted: type[Model], model: Model, folder: str | Path, kind: str) -> None:
    if not isinstance(model, wanted):
        raise UnsupportedModelError(
            f"'{folder}' has no {kind} head (it is a {type(model).__name__}), which these data need"
        )


def _fitted(data: TaskData[Any], model: Model) -> TaskData[Any]:
    config = {**model.config, "id2label": dict(enumerate(model.labels))}
    fitted: TaskData[Any] = data.task.fit(data, config)
    return replace(fitted, train=None)


def _predictions(model: Any, data: TaskData[Any], progress: Progress) -> dict[str, Any]:
    _, predict = _KINDS[data.task.kind]
    return {name: predict(model, data.task, rows, partial(progress, name)) for name, rows in data.evals.items()}


def _logits(model: Classifier, task: Any, rows: Any, progress: Callable[[float], None]) -> Any:
    """Texts are truncated to the training length, without a warning."""
    model.text.limit(min(task.max_length, model.max_length))
    texts = list(rows["text"])
    if "text_pair" in rows.column_names:
        texts = list(zip(texts, rows["text_pair"], strict=True))
    parts = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        for first in range(0, len(texts), _CHUNK):
            parts.append(model.logits(texts[first : first + _CHUNK]))
            progress(min(1.0, (first + _CHUNK) / len(texts)))
    return np.concatenate(parts)


def _label_choices(
    model: Classifier, task: MultiLabelTask, rows: Any, progress: Callable[[float], None]
) -> LabelChoices:
    return task.choices(_logits(model, task, rows, progress))


def _answers(
    model: Answerer, task: QuestionAnsweringTask, questions: Any, progress: Callable[[float], None]
) -> list[Prediction]:
    answers: list[Prediction] = []
    for prediction in model.predictions(questions, task):
        answers.append(prediction)
        progress(len(answers) / len(questions))
    return answers


def _tags(
    model: Tagger, task: TokenClassificationTask, sentences: Sequence[Sentence], progress: Callable[[float], None]
) -> list[list[str]]:
    tags: list[list[str]] = []
    for each in model.word_tags(sentences, task):
        tags.append(each)
        progress(len(tags) / len(sentences))
    return tags


def _vectors(model: Embedder, task: EmbeddingTask, rows: Any, progress: Callable[[float], None]) -> Any:
    """Texts are truncated to the training length, without a warning."""
    model.text.limit(min(task.max_length, model.max_length))
    texts, parts = texts_of(rows), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        for first in range(0, len(texts), _CHUNK):
            parts.append(model.encode(texts[first : first + _CHUNK]))
            progress(min(1.0, (first + _CHUNK) / len(texts)))
    return np.concatenate(parts)


# By kind of task: the model that it needs, and how that predicts an evaluation set.
_KINDS: dict[str, tuple[type[Model], Callable[..., Any]]] = {
    CLASSIFICATION: (Classifier, _logits),
    QUESTION_ANSWERING: (Answerer, _answers),
    EMBEDDING: (Embedder, _vectors),
    TOKEN_CLASSIFICATION: (Tagger, _tags),
    MULTI_LABEL: (Classifier, _label_choices),
    RERANKING: (Classifier, _logits),
}


def _versions(model: Model) -> dict[str, str]:
    return {
        "ternarybert": ternarybert.__version__,
        "kernel": model.kernel,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {model.num_threads} threads",
    }
