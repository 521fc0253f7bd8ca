"""Haystack: embedders of texts and documents, and a classifier of documents, as components of a pipeline.

They are saved with a pipeline by the path of the model, and load it in `warm_up` or with the first call.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ternarybert.errors import name_missing_extras
from ternarybert.integrations.models import document_vectors, load_as, query_vector
from ternarybert.runtime.embedder import Embedder
from ternarybert.runtime.model import Classifier, Model

with name_missing_extras():
    from haystack import Document, component, default_from_dict, default_to_dict


class _HaystackModel:
    """A model that is loaded when it is needed."""

    kind: type[Model]

    def __init__(self, model: str, num_threads: int | None = None) -> None:
        self.model, self.num_threads = model, num_threads
        self._loaded: Any = None

    def warm_up(self) -> None:
        """Load the model."""
        if self._loaded is None:
            self._loaded = load_as(self.kind, self.model, num_threads=self.num_threads)

    def to_dict(self) -> dict[str, Any]:
        """For a pipeline that is saved."""
        saved: dict[str, Any] = default_to_dict(self, model=str(self.model), num_threads=self.num_threads)
        return saved

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Any:
        """From a saved pipeline."""
        return default_from_dict(cls, data)


@component  # type: ignore[untyped-decorator]
class TernaryTextEmbedder(_HaystackModel):
    """The vector of a query."""

    kind = Embedder

    @component.output_types(embedding=list[float])  # type: ignore[untyped-decorator]
    def run(self, text: str) -> dict[str, Any]:
        """Embed a text."""
        self.warm_up()
        return {"embedding": query_vector(self._loaded, text)}


@component  # type: ignore[untyped-decorator]
class TernaryDocumentEmbedder(_HaystackModel):
    """Documents with their vectors."""

    kind = Embedder

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Embed documents."""
        self.warm_up()
        vectors = document_vectors(self._loaded, [document.content or "" for document in documents])
        made = [replace(document, embedding=vector) for document, vector in zip(documents, vectors, strict=True)]
        return {"documents": made}


@component  # type: ignore[untyped-decorator]
class TernaryDocumentClassifier(_HaystackModel):
    """Documents with the label, score and scores of their content in `meta["classification"]`."""

    kind = Classifier

    @component.output_types(documents=list[Document])  # type: ignore[untyped-decorator]
    def run(self, documents: list[Document]) -> dict[str, Any]:
        """Classify documents."""
        self.warm_up()
        answers = self._loaded.predict([document.content or "" for document in documents])
        made = [
            replace(document, meta={**document.meta, "classification": answer.as_dict()})
            for document, answer in zip(documents, answers, strict=True)
        ]
        return {"documents": made}
