"""LangChain: a packed embedder wherever an `Embeddings` is expected.

store = InMemoryVectorStore(TernaryEmbeddings("embedder"))
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ternarybert.errors import name_missing_extras
from ternarybert.integrations.models import document_vectors, load_as, query_vector
from ternarybert.runtime.embedder import Embedder

with name_missing_extras():
    from langchain_core.embeddings import Embeddings


class TernaryEmbeddings(Embeddings):  # type: ignore[misc]
    """Vectors of documents and queries; `options` are those of `ternarybert.load`."""

    def __init__(self, model: str | Path | Embedder, **options: Any) -> None:
        self.embedder = load_as(Embedder, model, **options)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of what is searched, with the model's prompt for documents."""
        return document_vectors(self.embedder, texts)

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question, with the model's prompt for queries."""
        return query_vector(self.embedder, text)
