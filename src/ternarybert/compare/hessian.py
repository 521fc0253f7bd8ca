"""Which layers of a teacher need more bits, by the curvature of its loss on training rows (Q-BERT).

MERGED-DOCS:
How sharply the loss curves over the weights of a layer: Q-BERT's measure of which layers need more bits.

The top eigenvalue of the Hessian's block for a layer comes from power iteration, v ← Hv / |Hv|, and Hv from
differentiating the gradient's product with v; the Hessian itself is never formed. Over batches of training rows, the
sensitivity of a layer is |mean λ| + standard deviation of λ.

"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ternarybert.compare.models import places
from ternarybert.errors import DataError
from ternarybert.training.batches import Collator
from ternarybert.training.teacher import Teacher
from ternarybert.training.teacher_cache import ROW_NUMBER

ITERATIONS = 20
TOLERANCE = 1e-2  # layers differ by far more


def top_eigenvalue(
    product: Callable[[list[Tensor]], Sequence[Tensor]],
    like: Sequence[Tensor],
    *,
    iterations: int = ITERATIONS,
    tolerance: float = TOLERANCE,
    seed: int = 0,
) -> float:
    """The eigenvalue largest in magnitude of a symmetric operator on lists of tensors `like` these."""
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


def sensitivities(eigenvalues: Sequence[Sequence[float]]) -> list[float]:
    """|mean λ| + deviation of λ for each layer, from a row of eigenvalues for each batch."""
    table = torch.tensor(eigenvalues, dtype=torch.float64)
    measured: list[float] = (table.mean(0).abs() + table.std(0, correction=0)).tolist()
    return measured


def mixed_bits(sensitivities: Sequence[float], low: int, high: int, share: float = 0.5) -> list[int]:
    """`high` bits for that share of the layers that is most sensitive, `low` for the others."""
    count = round(share * len(sensitivities))
    first = sorted(range(len(sensitivities)), key=lambda layer: -sensitivities[layer])[:count]
    return [high if layer in first else low for layer in range(len(sensitivities))]


def _norm(tensors: Sequence[Tensor]) -> float:
    return float(torch.stack([tensor.square().sum() for tensor in tensors]).sum().sqrt())


def _scaled(tensors: Sequence[Tensor], factor: float) -> list[Tensor]:
    return [tensor * factor for tensor in tensors]


BATCHES, ROWS = 2, 16  # the authors take a tenth of the training rows; layers are told apart with far fewer


def some_batches(teacher: Teacher, count: int, rows: int, seed: int = 0) -> list[dict[str, Tensor]]:
    """A few batches of training rows, the same for a seed."""
    train = teacher.tokenized.train_rows.remove_columns(ROW_NUMBER)
    order = np.random.default_rng(seed).permutation(len(train))
    collate, device = Collator(teacher.tokenized.tokenizer), teacher.model.device
    chosen = [order[start : start + rows] for start in range(0, min(len(order), count * rows), rows)]
    batches = [collate([train[int(row)] for row in batch]) for batch in chosen]
    return [{name: value.to(device) for name, value in batch.items()} for batch in batches]


def layer_sensitivities(
    model: PreTrainedModel, teacher: Teacher, batches: int = BATCHES, rows: int = ROWS, **options: float
) -> Sequence[float]:
    """|mean λ| + deviation of λ of every Transformer layer; `model` is a copy of the teacher to work with."""
    model.set_attn_implementation("eager")  # the faster ones cannot be differentiated twice
    model.to(teacher.model.device).eval().requires_grad_(False)
    layers = _layer_weights(model)
    found = [_eigenvalues(model, teacher, batch, layers, **options) for batch in some_batches(teacher, batches, rows)]
    return sensitivities(found)


def _layer_weights(model: PreTrainedModel) -> list[list[Tensor]]:
    layers: dict[int, list[Tensor]] = {}
    for place in places(model):
        if place.layer is not None:
            layers.setdefault(place.layer, []).append(place.module.weight.requires_grad_(True))
    return list(layers.values())


def _eigenvalues(
    model: PreTrainedModel, teacher: Teacher, batch: dict[str, Tensor], layers: list[list[Tensor]], **options: float
) -> list[float]:
    labels = batch.pop("labels", None)
    if labels is None:
        raise DataError("mixed precision looks at the loss on labels, and the training rows have none")
    with torch.enable_grad():
        logits = teacher.head.logits(model(**batch))
        return layer_eigenvalues(teacher.head.loss_labels(logits, labels, batch["attention_mask"]), layers, **options)
