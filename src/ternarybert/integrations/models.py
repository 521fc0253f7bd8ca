"""What all integrations need: a model of the right kind, from a folder, an installed name or an object."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ternarybert.errors import UnsupportedModelError
from ternarybert.runtime.embedder import Embedder
from ternarybert.runtime.load import load
from ternarybert.runtime.model import Model

Kind = TypeVar("Kind", bound=Model)


def load_as(kind: type[Kind], model: str | Path | Model, **options: Any) -> Kind:
    """A model that must be of a kind, such as `Embedder`; `options` are those of `load`."""
    loaded = model if isinstance(model, Model) else load(model, **options)
    if not isinstance(loaded, kind):
        name = loaded.folder if isinstance(model, Model) else model
        raise UnsupportedModelError(f"'{name}' is a {type(loaded).__name__}; this needs a {kind.__name__}")
    return loaded


def document_vectors(embedder: Embedder, texts: list[str]) -> list[list[float]]:
    """Vectors of what is searched, as plain lists."""
    vectors: list[list[float]] = np.asarray(embedder.encode_document(texts)).tolist()
    return vectors


def query_vector(embedder: Embedder, text: str) -> list[float]:
    """The vector of a question, as a plain list."""
    vector: list[float] = np.asarray(embedder.encode_query(text)).tolist()
    return vector
