"""Which layers of a teacher need more bits, by the curvature of its loss on training rows (Q-BERT).

The top eigenvalue of the Hessian block of a layer is found by power iteration, v <- Hv / |Hv|. Hv is the derivative of
the product of gradient and v; the Hessian itself is never formed. Over batches of training rows, the sensitivity of a
layer is |mean eigenvalue| + standard deviation of the eigenvalue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ternarybert.compare.models import quantizable_weights
from ternarybert.errors import DataError
from ternarybert.training.batches import Collator
from ternarybert.training.teacher import Teacher
from ternarybert.training.teacher_cache import ROW_NUMBER

ITERATIONS = 20
TOLERANCE = 1e-2  # layers differ by far more
BATCHES, ROWS = 2, 16  # the authors use a tenth of the training rows; far fewer are enough to rank layers


def layer_sensitivities(
    model: PreTrainedModel, teacher: Teacher, batches: int = BATCHES, rows: int = ROWS, **options: float
) -> Sequence[float]:
    """Sensitivity of every Transformer layer; `model` is a copy of the teacher, which is changed."""
    model.set_attn_implementation("eager")  # faster implementations cannot be differentiated twice
    model.to(teacher.model.device).eval().requires_grad_(False)
    layers = _layer_weights(model)
    eigenvalues = [
        _eigenvalues(model, teacher, batch, layers, **options) for batch in some_batches(teacher, batches, rows)
    ]
    return sensitivities(eigenvalues)


def mixed_bits(sensitivities: Sequence[float], low: int, high: int, share: float = 0.5) -> list[int]:
    """Assign `high` bits to the given share of most sensitive layers, `low` to the others."""
    count = round(share * len(sensitivities))
    first = sorted(range(len(sensitivities)), key=lambda layer: -sensitivities[layer])[:count]
    return [high if layer in first else low for layer in range(len(sensitivities))]


def some_batches(teacher: Teacher, count: int, rows: int, seed: int = 0) -> list[dict[str, Tensor]]:
    """Return a few batches of training rows, the same for each seed."""
    train = teacher.tokenized.train_rows.remove_columns(ROW_NUMBER)
    order = np.random.default_rng(seed).permutation(len(train))
    collate, device = Collator(teacher.tokenized.tokenizer), teacher.model.device
    chosen = [order[start : start + rows] for start in range(0, min(len(order), count * rows), rows)]
    batches = [collate([train[int(row)] for row in batch]) for batch in chosen]
    return [{name: value.to(device) for name, value in batch.items()} for batch in batches]


def sensitivities(eigenvalues: Sequence[Sequence[float]]) -> list[float]:
    """|mean| + standard deviation of the eigenvalue of each layer, from one row of eigenvalues per batch."""
    table = torch.tensor(eigenvalues, dtype=torch.float64)
    measured: list[float] = (table.mean(0).abs() + table.std(0, correction=0)).tolist()
    return measured


def layer_eigenvalues(loss: Tensor, layers: Sequence[Sequence[Tensor]], **options: float) -> list[float]:
    """The top eigenvalue of the loss's Hessian for each layer's weights."""
    weights = [weight for layer in layers for weight in layer]
    gradients = iter(torch.autograd.grad(loss, weights, create_graph=True))
    values = []
    for layer in layers:
        own = [next(gradients) for _ in layer]

        def product(v: list[Tensor], own: list[Tensor] = own, layer: Sequence[Tensor] = layer) -> Sequence[Tensor]:
            return torch.autograd.grad(own, layer, grad_outputs=v, retain_graph=True)

        values.append(top_eigenvalue(product, layer, **options))  # type: ignore[arg-type]
    return values


def top_eigenvalue(
    product: Callable[[list[Tensor]], Sequence[Tensor]],
    like: Sequence[Tensor],
    *,
    iterations: int = ITERATIONS,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> float:
    """The eigenvalue of largest magnitude of a symmetric operator on lists of tensors shaped `like` these."""
    generator = torch.Generator().manual_seed(seed)
    v = [torch.randn(one.shape, generator=generator).to(one) for one in like]
    v = _scaled(v, 1 / _norm(v))
    value = 0.0
    for _ in range(iterations):
        image = [tensor.detach() for tensor in product(v)]
        before, value = value, sum(float((a * b).sum()) for a, b in zip(v, image, strict=True))
        norm = _norm(image)
        if norm == 0.0 or abs(value - before) <= tolerance * abs(value):
            break
        v = _scaled(image, 1 / norm)
    return value


def _layer_weights(model: PreTrainedModel) -> list[list[Tensor]]:
    layers: dict[int, list[Tensor]] = {}
    for weight in quantizable_weights(model):
        if weight.layer is not None:
            layers.setdefault(weight.layer, []).append(weight.module.weight.requires_grad_(True))
    return list(layers.values())


def _eigenvalues(
    model: PreTrainedModel, teacher: Teacher, batch: dict[str, Tensor], layers: list[list[Tensor]], **options: float
) -> list[float]:
    labels = batch.pop("labels", None)
    if labels is None:
        raise DataError("mixed precision needs the loss on labels, but the training rows have no labels")
    with torch.enable_grad():
        logits = teacher.head.logits(model(**batch))
        return layer_eigenvalues(teacher.head.loss_labels(logits, labels, batch["attention_mask"]), layers, **options)


def _norm(tensors: Sequence[Tensor]) -> float:
    return float(torch.stack([tensor.square().sum() for tensor in tensors]).sum().sqrt())


def _scaled(tensors: Sequence[Tensor], factor: float) -> list[Tensor]:
    return [tensor * factor for tensor in tensors]
