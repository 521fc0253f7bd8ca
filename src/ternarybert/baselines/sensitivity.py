"""Which layers of a teacher need more bits, by the curvature of its loss on training rows (Q-BERT)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ternarybert.baselines.hessian import layer_eigenvalues, sensitivities
from ternarybert.baselines.models import places
from ternarybert.distill.classroom import Classroom
from ternarybert.distill.features import Collator
from ternarybert.distill.memory import ROW_NUMBER
from ternarybert.errors import DataError

BATCHES, ROWS = 2, 16  # the authors take a tenth of the training rows; layers are told apart with far fewer


def some_batches(room: Classroom, count: int, rows: int, seed: int = 0) -> list[dict[str, Tensor]]:
    """A few batches of training rows, the same for a seed."""
    train = room.features.train
    assert train is not None  # check_data says so
    train = train.remove_columns(ROW_NUMBER)
    order = np.random.default_rng(seed).permutation(len(train))
    collate, device = Collator(room.features.tokenizer), room.teacher.device
    chosen = [order[start : start + rows] for start in range(0, min(len(order), count * rows), rows)]
    batches = [collate([train[int(row)] for row in batch]) for batch in chosen]
    return [{name: value.to(device) for name, value in batch.items()} for batch in batches]


def layer_sensitivities(
    model: PreTrainedModel, room: Classroom, batches: int = BATCHES, rows: int = ROWS, **options: float
) -> Sequence[float]:
    """|mean λ| + deviation of λ of every Transformer layer; `model` is a copy of the teacher to work with."""
    model.set_attn_implementation("eager")  # the faster ones cannot be differentiated twice
    model.to(room.teacher.device).eval().requires_grad_(False)
    layers = _layer_weights(model)
    found = [_eigenvalues(model, room, batch, layers, **options) for batch in some_batches(room, batches, rows)]
    return sensitivities(found)


def _layer_weights(model: PreTrainedModel) -> list[list[Tensor]]:
    layers: dict[int, list[Tensor]] = {}
    for place in places(model):
        if place.layer is not None:
            layers.setdefault(place.layer, []).append(place.module.weight.requires_grad_(True))
    return list(layers.values())


def _eigenvalues(
    model: PreTrainedModel, room: Classroom, batch: dict[str, Tensor], layers: list[list[Tensor]], **options: float
) -> list[float]:
    labels = batch.pop("labels", None)
    if labels is None:
        raise DataError("mixed precision looks at the loss on labels, and the training rows have none")
    with torch.enable_grad():
        logits = room.head.logits(model(**batch))
        return layer_eigenvalues(room.head.loss_labels(logits, labels, batch["attention_mask"]), layers, **options)
