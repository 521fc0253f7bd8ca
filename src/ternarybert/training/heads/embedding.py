"""One vector for a text: the "logits" are (B, d), pooled, projected and normalized as the model's modules say.

L_pred is the distance of the student's vectors from the teacher's. Of a model that normalizes its vectors it is
1 - cosine. Of another it is the mean squared error divided by the variance of the teacher's vectors in the batch, so
that it has the same size whatever the scale of the vectors. With `EmbeddingTask.similarity_weight` the mean squared
error of the cosines between the texts of a batch is added: which texts are alike, beside where each of them is. That
term, as the variance, depends on the batch: there k micro-batches do not equal one batch.

The student has the teacher's pooling, Dense and normalization; of its own it has the encoder, without a pooler, which
no vector needs. They are not layers of the model: a forward hook adds the vectors to its outputs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import cached_file

from ternarybert.data.embedding import EMBEDDING, EmbeddingTask, texts_of
from ternarybert.data.task import TaskData
from ternarybert.errors import DataError, UnsupportedModelError
from ternarybert.families import family_of, max_tokens
from ternarybert.packed.embedder_modules import (
    LENGTH_FILE,
    MODULES,
    SETTINGS_FILE,
    DenseLayer,
    EmbedderModules,
    has_modules,
    plain_modules,
    read_modules,
    with_length,
)
from ternarybert.training.batches import LENGTH, TokenizedData, longest_input
from ternarybert.training.heads.base import Head

VECTORS = "sentence_embedding"  # among a model's outputs
_SUFFIXES = ("Model", "ForMaskedLM", "ForPreTraining")  # encoders without a task


class EmbeddingHead(Head[EmbeddingTask]):
    """A vector for each text."""

    kind = EMBEDDING
    suffix = "Model"
    description = "plain encoder, as an embedder has it"
    auto_class = AutoModel
    two_stages = False
    per_token = False

    @classmethod
    def fits(cls, architectures: Sequence[str]) -> bool:
        """Any encoder without a task; the head of a language model is left out."""
        return not architectures or any(name.endswith(_SUFFIXES) for name in architectures)

    def model_options(self) -> dict[str, Any]:
        """A model that is fine-tuned would need none."""
        return {}

    def ignores(self, tensor: str) -> bool:
        """No vector needs a pooler."""
        return "pooler." in tensor

    def prepare(self, network: PreTrainedModel, model: str | Path) -> None:
        """Drop the pooler, and let the model return vectors."""
        pooler = (family_of(network.config).w_p or "").partition(".")[0]
        if pooler and getattr(network, pooler, None) is not None:
            setattr(network, pooler, None)
        modules = modules_of(model, self.task.pooling, network)
        modules.check_width(network.config.hidden_size)
        network.embedder_modules = modules
        network.register_forward_hook(VectorHook(modules), with_kwargs=True)

    def check_training_labels(self, data: TaskData[EmbeddingTask]) -> None:
        """Embedders are distilled, not fine-tuned."""
        raise DataError("an embedder is not fine-tuned here; distill a trained one: ternarybert ternarize")

    def tokenize(
        self,
        data: TaskData[EmbeddingTask],
        tokenizer: PreTrainedTokenizerBase,
        model: PreTrainedModel,
        *,
        labeled: bool = False,
    ) -> TokenizedData:
        """One input per text. Training texts get the model's prompts in turn, evaluation texts the default one."""
        modules: EmbedderModules = model.embedder_modules
        limit = min(longest_input(self.task, model), tokenizer.model_max_length, modules.max_length or 10**9)

        def rows(texts: Sequence[str], prompts: Sequence[str]) -> datasets.Dataset:
            prompted = [prompts[i % len(prompts)] + text for i, text in enumerate(texts)]
            encoded = dict(tokenizer(prompted, truncation=True, max_length=limit))
            encoded[LENGTH] = [len(ids) for ids in encoded["input_ids"]]
            return datasets.Dataset.from_dict(encoded)

        train = None if data.train is None else rows(data.train["text"], training_prompts(modules))
        evals = {name: rows(texts_of(each), [modules.prompt()]) for name, each in data.evals.items()}
        return TokenizedData(data, train, evals, tokenizer, limit)

    def logits(self, outputs: Any) -> Tensor:
        """The vectors."""
        vectors: Tensor = outputs[VECTORS]
        return vectors

    def loss_pred(self, student: Tensor, teacher: Tensor, mask: Tensor | None, reduction: str) -> Tensor:
        """The distance of the vectors, and of the similarities within the batch."""
        loss = loss_vectors(student, teacher)
        weight = self.task.similarity_weight
        return loss + weight * loss_similarities(student, teacher) if weight else loss

    def loss_labels(self, logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """There are none."""
        raise DataError("an embedder has no labels to learn from; set distill.labels=0")

    def files(self, tokenized: TokenizedData, network: PreTrainedModel) -> dict[str, bytes]:
        """The teacher's modules: the folder stays one of sentence-transformers, at the teacher's length."""
        return with_length(network.embedder_modules, max_tokens(network.config) or tokenized.max_length)


class VectorHook:
    """Forward hook of an encoder: adds the vectors of the texts to its outputs."""

    def __init__(self, modules: EmbedderModules) -> None:
        self.pooling = modules.pooling
        self.steps = [_DenseStep.of(step) if isinstance(step, DenseLayer) else None for step in modules.steps]

    def __call__(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> None:
        """Pool the last hidden states over the real tokens, project, normalize."""
        states: Tensor = outputs["last_hidden_state"]
        mask = kwargs.get("attention_mask", args[1] if len(args) > 1 else None)
        vectors = pool(states, torch.ones_like(states[..., 0]) if mask is None else mask, self.pooling)
        for step in self.steps:
            vectors = functional.normalize(vectors, dim=-1) if step is None else step(vectors)
        outputs[VECTORS] = vectors


@dataclass
class _DenseStep:
    """A Dense module; its weights stay the teacher's."""

    weight: Tensor
    bias: Tensor | None
    activation: str

    @classmethod
    def of(cls, layer: DenseLayer) -> _DenseStep:
        bias = None if layer.bias is None else torch.from_numpy(layer.bias.copy())
        return cls(torch.from_numpy(layer.weight.copy()), bias, layer.activation)

    def __call__(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(x)
        y = functional.linear(x, self.weight.to(x), bias)
        return y if self.activation == "identity" else y.tanh() if self.activation == "tanh" else y.relu()


def pool(states: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """States of tokens, (B, n, d), as one vector each; `mask` (B, n) marks the real tokens."""
    if pooling == "cls":
        first = mask.int().argmax(1)  # padding may come first
        return states[torch.arange(len(states), device=states.device), first]
    real = mask[..., None].to(states.dtype)
    if pooling == "max":
        return states.masked_fill(real == 0, -torch.inf).amax(1)
    return (states * real).sum(1) / real.sum(1).clamp(min=1e-9)


def loss_vectors(student: Tensor, teacher: Tensor) -> Tensor:
    """1 - cosine of vectors of length 1; of others the mean squared error, in units of the teacher's variance."""
    if bool(((teacher.norm(dim=-1) - 1).abs() < 1e-3).all()):
        return (1 - functional.cosine_similarity(student, teacher, dim=-1)).mean()
    variance = teacher.var(0, unbiased=False).mean() if len(teacher) > 1 else teacher.square().mean()
    return functional.mse_loss(student, teacher) / variance.clamp(min=1e-12)


def loss_similarities(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean squared error of the cosines between the texts of a batch."""
    ours, theirs = (functional.normalize(vectors, dim=-1) for vectors in (student, teacher))
    return functional.mse_loss(ours @ ours.T, theirs @ theirs.T)


def training_prompts(modules: EmbedderModules) -> list[str]:
    """What training texts begin with, in turn: every prompt that users of the model put before theirs."""
    return list(dict.fromkeys([modules.prompt(), *modules.prompts.values()]))


def modules_of(model: str | Path, pooling: str | None, network: PreTrainedModel) -> EmbedderModules:
    """The modules of a folder or a hub id; a plain encoder gets this pooling."""
    folder = modules_folder(model)
    if folder is not None and pooling is not None:
        raise UnsupportedModelError(f"'{model}' has its own pooling ({MODULES}); leave out --pooling {pooling}")
    if folder is not None:
        return read_modules(folder)
    if pooling is None:
        raise UnsupportedModelError(f"'{model}' has no {MODULES} and is no embedder yet; choose its --pooling")
    return plain_modules(pooling, network.config.hidden_size, max_tokens(network.config) or 512)


def modules_folder(model: str | Path) -> Path | None:
    """The folder with the modules of a model, fetched from the hub if need be; None if it has none."""
    if Path(model).is_dir():
        return Path(model) if has_modules(model) else None
    listed = _fetch(model, MODULES)
    if listed is None:
        return None
    for name in (LENGTH_FILE, SETTINGS_FILE):
        _fetch(model, name)
    for module in json.loads(Path(listed).read_text(encoding="utf-8")):
        if module.get("path"):
            for name in ("config.json", "model.safetensors"):
                _fetch(model, f"{module['path'].rstrip('/')}/{name}")
    return Path(listed).parent


def _fetch(model: str | Path, name: str) -> str | None:
    found: str | None = cached_file(
        str(model), name, _raise_exceptions_for_missing_entries=False, _raise_exceptions_for_connection_errors=False
    )
    return found
