"""What models predict: small frozen values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ternarybert.data.squad.spans import Prediction


@dataclass(frozen=True, slots=True)
class Label:
    """The class of a text."""

    label: str
    score: float  # its probability
    scores: dict[str, float]  # of every label

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"label": self.label, "score": self.score, "scores": self.scores}


@dataclass(frozen=True, slots=True)
class Labels:
    """The classes of a text where several may apply, or none."""

    labels: tuple[str, ...]  # those whose probability reaches their threshold, one half or the model's own
    scores: dict[str, float]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"labels": list(self.labels), "scores": self.scores}


@dataclass(frozen=True, slots=True)
class Number:
    """The output of a regression."""

    value: float
    values: tuple[float, ...]  # all outputs; nearly always just this one

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"value": self.value} if len(self.values) == 1 else {"value": self.value, "values": list(self.values)}


@dataclass(frozen=True, slots=True)
class RankedText:
    """A text of a list that was ranked for a query."""

    index: int  # in the list
    score: float
    text: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"index": self.index, "score": self.score, "text": self.text}


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a text, or several that form an entity, and its label."""

    text: str
    label: str
    score: float
    start: int  # in characters; `end` is exclusive
    end: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {name: getattr(self, name) for name in ("text", "label", "score", "start", "end")}


@dataclass(frozen=True, slots=True)
class Tags:
    """The labels of a text's words."""

    text: str
    words: tuple[Word, ...]

    @property
    def entities(self) -> tuple[Word, ...]:
        """Entities: words joined by the B-, I-, E- and S- of their labels. Words labeled O (outside) are left out."""
        groups: list[list[Word]] = []
        for word in self.words:
            prefix, kind = _parts(word.label)
            if kind == "O":
                groups.append([])
            elif groups and groups[-1] and prefix not in ("B", "S") and _continues(groups[-1][-1].label, kind):
                groups[-1].append(word)
            else:
                groups.append([word])
        return tuple(_join(self.text, group) for group in groups if group)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "entities": [entity.as_dict() for entity in self.entities],
            "words": [word.as_dict() for word in self.words],
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question; the text is None if the context does not answer it."""

    text: str | None
    score: float
    start: int | None  # in characters of the context; `end` is exclusive
    end: int | None

    @classmethod
    def of(cls, prediction: Prediction) -> Answer:
        """The answer of a prediction."""
        span = prediction.answer
        if span is None:
            return cls(None, prediction.score, None, None)
        return cls(span.text, span.score, span.start, span.end)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"answer": self.text, "score": self.score, "start": self.start, "end": self.end}


def softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """Probabilities over the last axis."""
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    powers = np.exp(shifted)
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def softmax_list(logits: Sequence[float]) -> list[float]:
    """The same for a few numbers, where NumPy takes ten times as long."""
    largest = max(logits)
    powers = [math.exp(x - largest) for x in logits]
    total = sum(powers)
    return [power / total for power in powers]


def sigmoid(x: float) -> float:
    """The probability of one label by itself."""
    power = math.exp(-abs(x))  # never overflows
    return 1 / (1 + power) if x >= 0 else power / (1 + power)


def _parts(label: str) -> tuple[str, str]:
    """B-PER as B and PER; a label without a prefix stands for itself."""
    if label[:2] in ("B-", "I-", "E-", "S-"):
        return label[0], label[2:]
    return "", label


def _continues(before: str, kind: str) -> bool:
    """Whether an entity goes on after a word with the label `before`."""
    prefix, same = _parts(before)
    return same == kind and prefix not in ("E", "S")


def _join(text: str, group: list[Word]) -> Word:
    start, end = group[0].start, group[-1].end
    score = sum(word.score for word in group) / len(group)
    return Word(text[start:end], _parts(group[0].label)[1], score, start, end)
