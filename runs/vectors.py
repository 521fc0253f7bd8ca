"""Embedding distillation for the testbed: a task of plain texts, and a head whose "logits" are mean-pooled vectors.

L_pred is 1 - cosine of student and teacher. An evaluation set is texts, scored by the mean cosine to the teacher's
vectors (in percent); pairs with a similarity also by the Spearman correlation of the cosines with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import datasets
import numpy as np
from torch import Tensor
from torch.nn import functional
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from ternarybert.data import TaskData, metrics
from ternarybert.data.task import Scores, Task
from ternarybert.training.batches import LENGTH, TokenizedData
from ternarybert.training.heads import HEADS, Head

VECTORS = "vectors"  # among a model's outputs


@dataclass(frozen=True)
class VectorTask(Task):
    """A vector for every text."""

    name: str
    metrics: tuple[str, ...] = ("cosine", "spearman")
    max_length: int = 64
    batch_size: int = 64
    epochs: int = 1

    kind = "vectors"
    unit = "texts"

    def identity(self) -> object:
        """Nothing else."""
        return None

    def fit(self, data: TaskData[Any], config: Mapping[str, Any]) -> TaskData[Any]:
        """Texts fit every model."""
        return data

    def has_references(self, examples: Any) -> bool:
        """Whether these are pairs with a similarity."""
        return "label" in examples.column_names

    def scores(self, examples: Any, predictions: Any, teacher: Any = None) -> Scores:
        """The cosine to the teacher and, for pairs, the correlation."""
        scores: Scores = {}
        if teacher is not None:
            scores["cosine"] = 100 * float((predictions * teacher).sum(1).mean())
        if self.has_references(examples):
            first, second = np.split(predictions.astype(np.float64), 2)
            scores |= metrics.score(("spearman",), (first * second).sum(1), examples["label"])
        return scores

    def sample(self, examples: Any, count: int) -> Any:
        """A random choice, always the same."""
        return examples.shuffle(seed=0).select(range(count))

    def describe(self, data: TaskData[Any]) -> str:
        """A few words."""
        return "texts"


class VectorHead(Head[VectorTask]):
    """Mean-pooled vectors of length 1."""

    kind = "vectors"
    suffix = "Model"
    description = "encoder"
    auto_class = AutoModel
    two_stages = False
    per_token = False

    def model_options(self) -> dict[str, Any]:
        """No pooler."""
        return {}

    def check_training_labels(self, data: TaskData[VectorTask]) -> None:
        """There are none."""
        raise NotImplementedError("embedders are distilled, not fine-tuned")

    def tokenize(
        self,
        data: TaskData[VectorTask],
        tokenizer: PreTrainedTokenizerBase,
        model: PreTrainedModel,
        *,
        labeled: bool = False,
    ) -> TokenizedData:
        """One input per text; of pairs all first texts, then all second ones."""

        def encoded(rows: Any) -> datasets.Dataset:
            texts = [text for name in ("text", "text_pair") if name in rows.column_names for text in rows[name]]
            made = dict(tokenizer(texts, truncation=True, max_length=self.task.max_length))
            return datasets.Dataset.from_dict({**made, LENGTH: [len(ids) for ids in made["input_ids"]]})

        evals = {name: encoded(rows) for name, rows in data.evals.items()}
        return TokenizedData(data, encoded(data.train), evals, tokenizer, self.task.max_length)

    def logits(self, outputs: Any) -> Tensor:
        """The vectors."""
        vectors: Tensor = outputs[VECTORS]
        return vectors

    def loss_pred(self, student: Tensor, teacher: Tensor, mask: Tensor | None, reduction: str) -> Tensor:
        """1 - cosine."""
        return 1.0 - (student * teacher).sum(-1).mean()

    def loss_labels(self, logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """There are none."""
        raise NotImplementedError("texts have no labels")


HEADS[VectorHead.kind] = VectorHead


def load_embedder(folder: str) -> PreTrainedModel:
    """An encoder without pooler whose outputs have vectors."""
    return with_vectors(AutoModel.from_pretrained(folder, add_pooling_layer=False))


def with_vectors(model: PreTrainedModel) -> PreTrainedModel:
    """Let an encoder return vectors as well."""
    model.register_forward_hook(_add_vectors, with_kwargs=True)
    return model


def _add_vectors(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: Any) -> None:
    real = kwargs["attention_mask"][:, :, None].to(outputs.last_hidden_state.dtype)
    outputs[VECTORS] = functional.normalize((outputs.last_hidden_state * real).sum(1) / real.sum(1), dim=-1)
