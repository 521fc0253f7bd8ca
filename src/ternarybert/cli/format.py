"""Answers of a model as a line of text and as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ternarybert.runtime.results import Tags
    from ternarybert.runtime.text import Text

NO_ANSWER = "(no answer)"


def as_line(text: Text, answer: Any, *, every: bool = False) -> str:
    """Answer, score and text, separated by tabs; the context of a question is left out."""
    from ternarybert.runtime import Answer, Tags

    if isinstance(answer, Tags):
        return "\t".join([*_parts(answer, every), _one_line(highlighted(answer))])
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


def highlighted(tags: Tags) -> str:
    """A text with its entities in color, one color for each type."""
    from typer import style

    colors = ("cyan", "yellow", "green", "magenta", "blue", "red")
    kinds = list(dict.fromkeys(entity.label for entity in tags.entities))
    parts, at = [], 0
    for entity in tags.entities:
        color = colors[kinds.index(entity.label) % len(colors)]
        parts += [tags.text[at : entity.start], style(tags.text[entity.start : entity.end], fg=color, bold=True)]
        at = entity.end
    return "".join([*parts, tags.text[at:]])


def _ranked(scores: dict[str, float]) -> str:
    return ", ".join(f"{name} {score:.4f}" for name, score in sorted(scores.items(), key=lambda item: -item[1]))


def _one_line(text: str) -> str:
    return " ".join(text.split())
