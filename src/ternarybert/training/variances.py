"""The teacher's variance in every layer: what `distill.normalize: variance` divides squared errors by.

Models differ in the size of their hidden states and scores, and so do the layers of one model (MiniLM's scores have a
variance of 12.5 in the first layer and 1.7 in the last). Relative errors do not.

The variances are constants of a run. They are measured before the first step on a fixed sample, rows evenly spaced over
the training set, so they depend on teacher and data alone: not on batches, micro-batches, seed or processes. A
checkpoint holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedModel

from ternarybert.training.batches import LENGTH, Batch, Collator
from ternarybert.training.teacher_cache import ROW_NUMBER

SAMPLE_ROWS = 256
_BATCH = 16


@dataclass(frozen=True)
class TeacherVariances:
    """Of the elements of H_l for real tokens, of A_l for pairs of real tokens, and of the logits."""

    hidden: tuple[float, ...]  # embedding output and all layers
    scores: tuple[float, ...]  # all layers
    logits: float

    def of_layers(self, layers: Sequence[int]) -> TeacherVariances:
        """Those of some layers only, counted from 1, and of the embedding output."""
        hidden = tuple(self.hidden[layer] for layer in [0, *layers])
        return TeacherVariances(hidden, tuple(self.scores[layer - 1] for layer in layers), self.logits)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TeacherVariances:
        """Read what `asdict` wrote, from JSON."""
        return cls(tuple(values["hidden"]), tuple(values["scores"]), values["logits"])


def teacher_variances(
    teacher: PreTrainedModel, rows: Dataset, collate: Collator, logits: Callable[[Any], Tensor]
) -> TeacherVariances:
    """Measure them on a sample of the rows; `logits` takes them from the model's outputs."""
    moments: list[_Moments] = []
    outputs_logits = _Moments()
    for batch in _sample(rows, collate):
        batch = {name: value.to(teacher.device) for name, value in batch.items()}
        with torch.no_grad():
            outputs = teacher(**batch, output_hidden_states=True, output_attentions=True)
        real = batch["attention_mask"].bool()
        pairs = real[:, :, None] & real[:, None, :]
        hidden = [each[real] for each in outputs.hidden_states]
        scores = [each.permute(0, 2, 3, 1)[pairs] for each in outputs.attentions]
        moments = moments or [_Moments() for _ in (*hidden, *scores)]
        for moment, values in zip(moments, (*hidden, *scores), strict=True):
            moment.add(values)
        outputs_logits.add(logits(outputs))
    layers = len(moments) // 2
    values = [moment.variance for moment in moments]
    return TeacherVariances(tuple(values[: layers + 1]), tuple(values[layers + 1 :]), outputs_logits.variance)


def _sample(rows: Dataset, collate: Collator) -> Iterator[Batch]:
    """Batches of rows that are evenly spaced over the training set; similar lengths together."""
    count = min(SAMPLE_ROWS, len(rows))
    chosen = sorted((i * len(rows) // count for i in range(count)), key=lambda row: (rows[row][LENGTH], row))
    for first in range(0, count, _BATCH):
        batch = collate([rows[row] for row in chosen[first : first + _BATCH]])
        yield {name: value for name, value in batch.items() if name not in (ROW_NUMBER, "labels")}


class _Moments:
    """Sums for a variance, in float64."""

    def __init__(self) -> None:
        self.count, self.sum, self.squares = 0, 0.0, 0.0

    def add(self, values: Tensor) -> None:
        wide = values.double()
        self.count += wide.numel()
        self.sum += float(wide.sum())
        self.squares += float(wide.square().sum())

    @property
    def variance(self) -> float:
        """1 where all values are equal: there is nothing to divide by."""
        variance = self.squares / self.count - (self.sum / self.count) ** 2
        return variance if variance > 0 else 1.0
