"""A score for a query and a text: logits are (B, 1). The folder stays a cross-encoder of sentence-transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn import functional
from transformers import AutoModelForSequenceClassification, PreTrainedModel, PreTrainedTokenizerBase

from ternarybert.data.reranking import RERANKING, SECTION, SETTINGS_FILE, RerankingTask, cross_encoder_activation
from ternarybert.data.task import ScoresBySet, TaskData
from ternarybert.errors import DataError, UnsupportedModelError
from ternarybert.training.batches import TokenizedData, longest_input
from ternarybert.training.heads.base import Head
from ternarybert.training.heads.classification import tokenize_texts

_FILES = ("modules.json", SETTINGS_FILE, "sentence_bert_config.json")  # that CrossEncoder writes
_SIGMOID = "torch.nn.modules.activation.Sigmoid"


class RerankingHead(Head[RerankingTask]):
    """One output for each pair."""

    kind = RERANKING
    suffix = "ForSequenceClassification"
    description = "classification head"
    auto_class = AutoModelForSequenceClassification
    two_stages = False
    per_token = False

    def model_options(self) -> dict[str, Any]:
        """One output."""
        return {"num_labels": 1}

    def prepare(self, network: PreTrainedModel, model: str | Path) -> None:
        """Keep the settings and files of sentence-transformers."""
        if network.config.num_labels != 1:
            raise UnsupportedModelError(f"'{model}' has {network.config.num_labels} outputs; a reranker has one")
        name = cross_encoder_activation(network.config.to_dict(), model)
        setattr(network.config, SECTION, {"activation_fn": name or _SIGMOID})
        paths = [path for path in (Path(model) / name for name in _FILES) if path.is_file()]
        network.cross_encoder_files = {path.name: path.read_bytes() for path in paths}

    def files(self, tokenized: TokenizedData, network: PreTrainedModel) -> dict[str, bytes]:
        """The teacher's."""
        files: dict[str, bytes] = network.cross_encoder_files
        return files

    def check_training_labels(self, data: TaskData[RerankingTask]) -> None:
        """Pairs with scores are needed."""
        if data.train is None or not self.task.has_references(data.train):
            raise DataError(f"fine-tuning on '{self.task.name}' needs training pairs with scores")

    def tokenize(
        self,
        data: TaskData[RerankingTask],
        tokenizer: PreTrainedTokenizerBase,
        model: PreTrainedModel,
        *,
        labeled: bool = False,
    ) -> TokenizedData:
        """One input per pair."""
        return tokenize_texts(data, tokenizer, longest_input(self.task, model))

    def logits(self, outputs: Any) -> Tensor:
        """The score before the sigmoid."""
        logits: Tensor = outputs.logits
        return logits

    def loss_pred(self, student: Tensor, teacher: Tensor, mask: Tensor | None, reduction: str) -> Tensor:
        """Mean squared error of the scores."""
        return functional.mse_loss(student, teacher)

    def loss_labels(self, logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Binary cross-entropy with the relevance."""
        return functional.binary_cross_entropy_with_logits(logits.view(-1), labels.view(-1).to(logits.dtype))

    def update_config(self, config: Any, tokenized: TokenizedData, sets: ScoresBySet) -> None:
        """Say what makes a relevance of the output."""
        if getattr(config, SECTION, None) is None:
            setattr(config, SECTION, {"activation_fn": _SIGMOID})
