"""LlamaIndex: a packed embedder as `Settings.embed_model`.

Settings.embed_model = TernaryIndexEmbedding("embedder")
"""

from __future__ import annotations

from typing import Any

from ternarybert.errors import name_missing_extras
from ternarybert.integrations.models import document_vectors, load_as, query_vector
from ternarybert.runtime.embedder import Embedder

with name_missing_extras():
    from llama_index.core.base.embeddings.base import BaseEmbedding
    from llama_index.core.bridge.pydantic import PrivateAttr


class TernaryIndexEmbedding(BaseEmbedding):  # type: ignore[misc]
    """Vectors of nodes and queries; `model_name` is a packed folder or an installed model."""

    _embedder: Any = PrivateAttr()

    def __init__(self, model_name: str, **fields: Any) -> None:
        super().__init__(model_name=str(model_name), **fields)
        self._embedder = load_as(Embedder, model_name)

    @classmethod
    def class_name(cls) -> str:
        """The name under which LlamaIndex stores it."""
        return "TernaryIndexEmbedding"

    def _get_query_embedding(self, query: str) -> list[float]:
        return query_vector(self._embedder, query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return document_vectors(self._embedder, [text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return document_vectors(self._embedder, texts)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_query_embedding(query)
