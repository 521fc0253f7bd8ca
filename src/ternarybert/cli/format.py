"""Answers of a model as a line of text, as JSON, and as columns of a table."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ternarybert.runtime import Model
    from ternarybert.runtime.text import Text

NO_ANSWER = "(no answer)"
PREDICTION = "prediction"  # the column that every kind of answer has


def as_line(text: Text, answer: Any, *, every: bool = False) -> str:
    """Answer, score and text, separated by tabs; the context of a question is left out."""
    from ternarybert.runtime import Answer

    parts = [text] if isinstance(text, str) else text[:1] if isinstance(answer, Answer) else text
    return "\t".join([*_parts(answer, every), _one_line(" | ".join(parts))])


def as_json(text: Text, answer: Any, *, every: bool = False) -> str:
    """The same as one JSON object; the context of a question is left out."""
    from ternarybert.runtime import Answer

    if isinstance(text, str):
        given = {"text": text}
    else:
        given = {"question": text[0]} if isinstance(answer, Answer) else {"text": text[0], "text_pair": text[1]}
    values = answer.as_dict()
    if not every:
        values.pop("scores", None)
        values.pop("words", None)
    return json.dumps({**given, **values}, ensure_ascii=False)


def columns_of(model: Model, *, every: bool = False) -> dict[str, str | None]:
    """The columns of a model's answers, with the Arrow name of their type; None for a list."""
    from ternarybert.runtime import Classifier
    from ternarybert.runtime.model import Answerer

    if isinstance(model, Answerer):
        return {PREDICTION: "string", "score": "double", "start": "int64", "end": "int64"}
    if not isinstance(model, Classifier):
        return {PREDICTION: None}
    if model.problem == "regression":
        return {PREDICTION: "double"}
    scores = {f"score {name}": "double" for name in model.labels} if every else {}
    if model.problem.startswith("multi"):
        return {PREDICTION: None, **scores}
    return {PREDICTION: "string", "score": "double", **scores}


def as_columns(answer: Any, names: Iterable[str]) -> dict[str, Any]:
    """The answer as the fields of a row that `columns_of` announced."""
    from ternarybert.runtime import Answer, Label, Labels, Number

    if isinstance(answer, Number):
        said: list[Any] = [answer.value]
    elif isinstance(answer, Answer):
        said = [answer.text, answer.score, answer.start, answer.end]
    elif isinstance(answer, Label):
        said = [answer.label, answer.score, *answer.scores.values()]
    elif isinstance(answer, Labels):
        said = [list(answer.labels), *answer.scores.values()]
    else:
        said = [[entity.as_dict() for entity in answer.entities]]
    return dict(zip(names, said, strict=False))


def _parts(answer: Any, every: bool) -> list[str]:
    from ternarybert.runtime import Answer, Label, Labels, Number

    if isinstance(answer, Number):
        return [", ".join(f"{value:.4f}" for value in answer.values)]
    if isinstance(answer, Answer):
        return [NO_ANSWER if answer.text is None else _one_line(answer.text), f"{answer.score:.4f}"]
    if isinstance(answer, Label) and not every:
        return [answer.label, f"{answer.score:.4f}"]
    if isinstance(answer, Label):
        return [_ranked(answer.scores)]
    if isinstance(answer, Labels):
        return [_ranked(answer.scores if every else {name: answer.scores[name] for name in answer.labels}) or "-"]
    entities = [f"{_one_line(entity.text)} ({entity.label} {entity.score:.4f})" for entity in answer.entities]
    return [", ".join(entities) or "-"]


def _ranked(scores: dict[str, float]) -> str:
    return ", ".join(f"{name} {score:.4f}" for name, score in sorted(scores.items(), key=lambda item: -item[1]))


def _one_line(text: str) -> str:
    return " ".join(text.split())
