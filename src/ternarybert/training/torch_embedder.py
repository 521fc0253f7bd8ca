"""Vectors of any embedder in torch: a full-precision teacher, or a packed student beside the native engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ternarybert.data.embedding import EmbeddingTask
from ternarybert.packed.embedder_modules import EmbedderModules
from ternarybert.training.batches import LENGTH, longest_input, predict_logits
from ternarybert.training.heads import EmbeddingHead
from ternarybert.training.models import load_any, load_tokenizer


class TorchEmbedder:
    """Embeds texts as its folder says, with the same methods as the runtime's embedder."""

    def __init__(self, network: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, batch_size: int = 32) -> None:
        self.network, self.tokenizer, self.batch_size = network, tokenizer, batch_size
        self.head = EmbeddingHead(EmbeddingTask("texts"))
        modules: EmbedderModules = network.embedder_modules
        limit = min(longest_input(self.head.task, network), tokenizer.model_max_length)
        self.modules, self.max_length = modules, min(limit, modules.max_length or limit)

    @classmethod
    def load(cls, model: str | Path, pooling: str | None = None, device: str = "cpu") -> TorchEmbedder:
        """The embedder in a folder or on the hub, packed or not; `pooling` is for plain encoders."""
        head = EmbeddingHead(EmbeddingTask("texts", pooling=pooling))
        return cls(load_any(model, head).to(device), load_tokenizer(model))

    def encode(self, texts: Sequence[str], *, prompt_name: str | None = None) -> NDArray[np.float32]:
        """Vectors, a row per text."""
        return self._encode(texts, self.modules.prompt(prompt_name))

    def encode_query(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of queries, with the prompt named `query` if the model has one."""
        return self._encode(texts, self.modules.first_prompt("query"))

    def encode_document(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors of documents, with the prompt named `document`, `passage` or `corpus` if the model has one."""
        return self._encode(texts, self.modules.first_prompt("document", "passage", "corpus"))

    def _encode(self, texts: Sequence[str], prompt: str) -> NDArray[np.float32]:
        if not len(texts):
            return np.empty((0, self.modules.width(self.network.config.hidden_size)), np.float32)
        encoded = dict(self.tokenizer([prompt + text for text in texts], truncation=True, max_length=self.max_length))
        encoded[LENGTH] = [len(ids) for ids in encoded["input_ids"]]
        rows = Dataset.from_dict(encoded)
        return predict_logits(self.network, rows, self.tokenizer, self.batch_size, self.head.logits)
