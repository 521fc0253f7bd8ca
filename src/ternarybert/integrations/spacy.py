"""spaCy: a packed model as a pipe of any pipeline. The model decides what it adds to a `Doc`.

    nlp = spacy.blank("en")
    nlp.add_pipe("ternarybert", config={"model": "my-model-ternary"})

A tagger sets `doc.ents`, a classifier `doc.cats`, and an embedder the vector of the Doc and its similarity to others.
spaCy finds the pipe by an entry point of this package; nothing has to be imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np

from ternarybert.errors import UnsupportedModelError, name_missing_extras
from ternarybert.runtime.embedder import Embedder
from ternarybert.runtime.load import load
from ternarybert.runtime.model import Classifier, Tagger
from ternarybert.runtime.results import Label, Labels, Number, Tags

with name_missing_extras():
    from spacy.language import Language
    from spacy.util import filter_spans


@Language.factory("ternarybert", default_config={"num_threads": None})  # type: ignore[untyped-decorator]
def make_pipe(nlp: Any, name: str, model: str, num_threads: int | None) -> TernaryPipe:
    """The pipe of a packed folder or an installed model."""
    return TernaryPipe(model, num_threads)


class TernaryPipe:
    """Runs a packed model on Docs, many at a time."""

    def __init__(self, model: str, num_threads: int | None = None) -> None:
        self.model = load(model, num_threads=num_threads)
        if not isinstance(self.model, (Classifier, Embedder, Tagger)):
            raise UnsupportedModelError(
                f"'{model}' is a {type(self.model).__name__}; spaCy has no place for its answers"
            )

    def __call__(self, doc: Any) -> Any:
        """One Doc."""
        return next(self.pipe([doc]))

    def pipe(self, stream: Iterable[Any], *, batch_size: int = 256) -> Iterator[Any]:
        """Docs one after the other."""
        docs = iter(stream)
        while batch := list(islice(docs, batch_size)):
            texts = [doc.text for doc in batch]
            embeds = isinstance(self.model, Embedder)
            answers = self.model.encode(texts) if embeds else self.model.predict(texts)
            for doc, answer in zip(batch, answers, strict=True):
                _add(doc, answer)
                yield doc


def _add(doc: Any, answer: Any) -> None:
    """Put an answer into a Doc."""
    if isinstance(answer, Tags):
        spans = (doc.char_span(one.start, one.end, one.label, alignment_mode="expand") for one in answer.entities)
        doc.ents = filter_spans([span for span in spans if span is not None])
    elif isinstance(answer, (Label, Labels)):
        doc.cats = dict(answer.scores)
    elif isinstance(answer, Number):
        doc.cats = {"score": answer.value}
    else:
        doc.user_hooks["vector"] = lambda _: answer
        doc.user_hooks["vector_norm"] = lambda _: float(np.linalg.norm(answer))
        doc.user_hooks["has_vector"] = lambda _: True
        doc.user_hooks["similarity"] = _similarity


def _similarity(doc: Any, other: Any) -> float:
    return float(np.dot(doc.vector, other.vector) / max(doc.vector_norm * other.vector_norm, 1e-12))
