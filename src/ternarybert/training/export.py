"""From student to packed model, through the quantizer that the forward pass uses; and the model card of its folder.

Nothing is quantized a second time: each layer returns its own codes and scales (LAT with the optimizer's current second
moments), so the packed model is the one that was evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ternarybert.data.kinds import model_kind
from ternarybert.data.multi_label import SECTION
from ternarybert.data.reranking import RERANKING
from ternarybert.data.squad.task import ANSWERING
from ternarybert.data.token_classification import TOKEN_CLASSIFICATION
from ternarybert.packed import PackedModel, PackedTensor
from ternarybert.packed.inspect import inspect_model
from ternarybert.packed.tensor import as_float32
from ternarybert.recipe import Recipe
from ternarybert.student import quantized_layers
from ternarybert.student.layers import ALPHA, QuantizedWeight
from ternarybert.training.card import is_embedder, metadata
from ternarybert.training.report import RunReport


def model_card(name: str, model: PackedModel, report: RunReport, origin: Mapping[str, Any]) -> str:
    """A README.md for the packed folder: what it is, how good and how small, and how to use it.

    `origin` is what the card of the teacher says (`card.metadata_of_origin`).
    """
    sizes, family = inspect_model(model), model.config.get("model_type", "bert")
    auto, teacher_scores = f"AutoModel{head_name(model)}", {} if report.teacher is None else report.teacher.scores
    rows = []
    for part, scores in report.best.sets.items():
        for metric, value in scores.items():
            teacher = teacher_scores.get(part, {}).get(metric)
            rows.append(f"| {part} | {metric} | {'' if teacher is None else f'{teacher:.2f}'} | {value:.2f} |")
    table = "\n".join(rows)
    choice = (
        "The student is that of the last evaluation, whatever its score: none was chosen on these sets."
        if report.kept == "last"
        else f"The student was selected by `{report.metric}` on the first of these sets, so its score there is a "
        f"best of\n{len(report.evaluations)} evaluations; the last one had {report.final.scores[report.metric]:.2f}."
    )
    return f"""---
{metadata(name, model.config, report, origin, quantized=True)}
---
# {name}

A `{family}` model at {report.bits} bits for weights, word embedding and activations (2 bits: the values -1, 0
and +1 times a scale), made from its full-precision teacher by distillation-aware ternarization (TernaryBERT, EMNLP
2020) with ternarybert, recipe `{report.recipe}`, task `{report.task}`.

| set | metric | teacher | this model |
|---|---|---|---|
{table}

{choice}

Tensors take {sizes.bytes:,} bytes ({sizes.mb:.2f} MB, {sizes.mib:.2f} MiB), {sizes.ratio:.1f} times less than float32.

## Use

```python
import ternarybert.hf  # registers the format with transformers
from transformers import {auto}
model = {auto}.from_pretrained("{name}")
```

**Without that import transformers only warns and loads random weights.** `ternarybert.load_torch("{name}")` registers
the format for you.
{_answering(model)}{_embedding(name, report)}{_words(name, model)}{_thresholds(model)}{_ranking(name, model)}"""


def head_name(model: PackedModel) -> str:
    """The kind of model, as transformers names it: ForQuestionAnswering."""
    _, separator, kind = str(model.config["architectures"][0]).partition("For")
    return separator + kind


def _answering(model: PackedModel) -> str:
    """For question answering: the sizes of inputs, and when the model abstains."""
    settings = model.config.get(ANSWERING)
    if settings is None:
        return ""
    abstains = ""
    if settings["null_threshold"] is not None:
        abstains = (
            f" The model abstains where the first token's two logits exceed those of the best span by more than "
            f"{settings['null_threshold']:.4f}, a threshold found on the evaluation set."
        )
    return f"""
An input is a question of up to {settings["max_question"]} tokens and a window of the context, {settings["max_length"]}
tokens in all; in long contexts a window starts every {settings["stride"]} tokens.{abstains} These numbers are in
`config.json` under `{ANSWERING}`.
"""


def _words(name: str, model: PackedModel) -> str:
    """For taggers: entities with their characters."""
    if model_kind(model.config) != TOKEN_CLASSIFICATION:
        return ""
    return f"""
Entities of a text of any length, with their characters, without torch:

```python
for entity in ternarybert.load("{name}").predict(text).entities:
    print(entity.label, entity.text, entity.start, entity.end)
```

A word has the tag of its first piece. `f1` in the table is that of entities, as `seqeval` counts them; `agreement` is
the F1 with the teacher's entities.
"""


def _thresholds(model: PackedModel) -> str:
    """For several labels: from which probability on each applies."""
    section = model.config.get(SECTION)
    if section is None:
        return ""
    rows = "\n".join(f"| {label} | {value:.3f} |" for label, value in section["thresholds"].items())
    return f"""
A label applies from this probability on, found on the first evaluation set (`config.json`, `{SECTION}`):

| label | threshold |
|---|---|
{rows}
"""


def _ranking(name: str, model: PackedModel) -> str:
    """For rerankers: texts in the order of their relevance."""
    if model_kind(model.config) != RERANKING:
        return ""
    return f"""
Texts by how well they answer a query, without torch and, after the import above, with sentence-transformers:

```python
ranked = ternarybert.load("{name}").rank(query, texts)
ranked = CrossEncoder("{name}").rank(query, texts)
```
"""


def _embedding(name: str, report: RunReport) -> str:
    """For embedders: vectors with and without torch."""
    if not is_embedder(report):
        return ""
    return f"""
Vectors of texts, without torch and, after the import above, with sentence-transformers:

```python
vectors = ternarybert.load("{name}").encode(texts)
vectors = SentenceTransformer("{name}").encode(texts)
```

They stay in the teacher's space: `cosine` in the table is the mean cosine of both models' vectors of a text.
"""


def packed_model(student: PreTrainedModel, recipe: Recipe, metrics: dict[str, Any] | None = None) -> PackedModel:
    """The student as it is now."""
    layers = {f"{name}.weight": layer for name, layer in quantized_layers(student)}
    learned = {f"{name}.{ALPHA}" for name, layer in quantized_layers(student) if layer.alpha is not None}
    tensors: dict[str, Any] = {}
    for name, value in student.state_dict().items():
        if name in learned:  # a scale, which is stored with its codes
            continue
        tensors[name] = packed_tensor(name, layers[name]) if name in layers else _float32(name, value)
    config = student.config.to_dict()
    config.pop("quantization_config", None)
    config["architectures"] = [type(student).__name__]  # a model that was never saved has none in its config
    return PackedModel(config, tensors, str(recipe.bits), recipe.to_dict(), metrics or {})


def packed_tensor(name: str, layer: QuantizedWeight) -> PackedTensor:
    """A layer's codes and scales; groups of rows are written as one scale a row."""
    quantized = layer.quantized()
    scale = _float32(name, quantized.scale).reshape(-1)
    codes = np.ascontiguousarray(quantized.codes.cpu().numpy())
    return PackedTensor.pack(codes, scale, bits=layer.bits, levels=layer.scheme.levels)


def _float32(name: str, value: Tensor) -> npt.NDArray[np.float32]:
    """As an array: half precision is widened, double precision refused unless nothing is lost."""
    wide = value if value.dtype is torch.float64 else value.float()
    return as_float32(name, wide.detach().cpu().numpy())
