"""Chroma: a packed embedder as the embedding function of a collection.

client.create_collection("notes", embedding_function=TernaryEmbeddingFunction("embedder"))

The collection stores the path of the model, so that opening it again needs only the import of this module.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ternarybert.errors import name_missing_extras
from ternarybert.integrations.models import load_as
from ternarybert.runtime.embedder import Embedder

with name_missing_extras():
    from chromadb import Documents, EmbeddingFunction, Embeddings
    from chromadb.utils.embedding_functions import register_embedding_function


@register_embedding_function  # type: ignore[untyped-decorator]
class TernaryEmbeddingFunction(EmbeddingFunction[Documents]):  # type: ignore[misc]
    """Vectors of documents, and of queries where the model has a prompt for them."""

    def __init__(self, model: str) -> None:
        self.model = str(model)
        self.embedder = load_as(Embedder, model)

    def __call__(self, input: Documents) -> Embeddings:
        """Vectors of documents."""
        return list(np.asarray(self.embedder.encode_document(list(input))))

    def embed_query(self, input: Documents) -> Embeddings:
        """Vectors of queries."""
        return list(np.asarray(self.embedder.encode_query(list(input))))

    @staticmethod
    def name() -> str:
        """The name under which Chroma stores it."""
        return "ternarybert"

    def default_space(self) -> Any:
        """The measure that the model was trained for, mostly the cosine."""
        return {"cosine": "cosine", "dot": "ip"}.get(self.embedder.modules.similarity, "l2")

    @staticmethod
    def build_from_config(config: dict[str, Any]) -> TernaryEmbeddingFunction:
        """From what a collection stored."""
        return TernaryEmbeddingFunction(config["model"])

    def get_config(self) -> dict[str, Any]:
        """What a collection stores."""
        return {"model": self.model}
