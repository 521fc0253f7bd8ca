"""How good vectors are: similarity of sentences, retrieval, pair classification; of a model, its teacher, and both.

    evaluate_embedder("small", teacher="teacher", sts="stsb-dev.tsv", retrieval="scifact")

| | data | measured |
|---|---|---|
| `sts` | pairs with a score of their similarity | Spearman and Pearson of the cosines |
| `pairs` | pairs with 1 (same) or 0 | average precision of the cosines |
| `retrieval` | a folder in the layout of BEIR | nDCG@10, MRR@10, recall@100 |

With a teacher its own figures are measured too, the mean cosine of both models' vectors, and the asymmetric ones: first
text or query by the model, second text or document by the teacher. A student that stays in its teacher's space can
query an index that the teacher has filled.

Packed models run without torch unless `engine="torch"`; others need it.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ternarybert.data import metrics, ranking
from ternarybert.data.embedding import cosines, read_scored_pairs
from ternarybert.data.retrieval import RetrievalData, load_retrieval
from ternarybert.errors import DataError, NotPackedError, TruncationWarning, UnsupportedModelError
from ternarybert.packed import is_packed
from ternarybert.packed.embedder_modules import unit_length
from ternarybert.runtime.installed import model_folder

NDCG_AT, MRR_AT, RECALL_AT = 10, 10, 100


class VectorEncoder(Protocol):
    """What is evaluated: texts in, an array with a row per text out."""

    def encode(self, texts: Any) -> Any:
        """Vectors of texts."""

    def encode_query(self, texts: Any) -> Any:
        """Vectors of queries, with their prompt."""

    def encode_document(self, texts: Any) -> Any:
        """Vectors of documents, with their prompt."""


Scores = dict[str, float]


def evaluate_embedder(
    model: str | Path | VectorEncoder,
    *,
    sts: str | Path | Sequence[str | Path] = (),
    pairs: str | Path | Sequence[str | Path] = (),
    retrieval: str | Path | Sequence[str | Path] = (),
    teacher: str | Path | VectorEncoder | None = None,
    engine: str = "native",
    num_threads: int | None = None,
    status: Callable[[str], None] = lambda _: None,
    **columns: str | None,
) -> dict[str, Any]:
    """Score vectors on tables of pairs and on retrieval folders; `columns` (text, text_pair, label) are the tables'.

    `sets` has the figures by kind and name of the data and by model: `model` and, with a teacher, `teacher` and
    `asymmetric`, in percent. `seconds` is the model's own time.
    """
    data = [("sts", path, read_scored_pairs(path, **columns)) for path in _paths(sts)]
    data += [("pairs", path, read_scored_pairs(path, **columns)) for path in _paths(pairs)]
    folders = [(path, load_retrieval(path)) for path in _paths(retrieval)]
    if not data and not folders:
        raise DataError("nothing to evaluate on; give sts, pairs or retrieval")
    ours = _Timed(as_encoder(model, engine, num_threads))
    theirs = None if teacher is None else _Timed(as_encoder(teacher, engine, num_threads))
    sets: dict[str, dict[str, dict[str, Scores]]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TruncationWarning)
        for kind, path, (first, second, labels) in data:
            status(f"evaluating on {Path(path).name}")
            sets.setdefault(kind, {})[Path(path).stem] = _pair_scores(kind, ours, theirs, first, second, labels)
        for path, corpus in folders:
            status(f"evaluating on {Path(path).name}")
            sets.setdefault("retrieval", {})[corpus.name] = _retrieval_scores(ours, theirs, corpus)
    return {
        "model": _name(model),
        "teacher": None if teacher is None else _name(teacher),
        "sets": sets,
        "texts": ours.texts,
        "seconds": round(ours.seconds, 2),
        "texts_per_second": round(ours.texts / max(ours.seconds, 1e-9), 1),
    }


def as_encoder(model: str | Path | VectorEncoder, engine: str = "native", num_threads: int | None = None) -> Any:
    """An embedder that is loaded, or the one in a folder, run by the native engine or by torch."""
    if not isinstance(model, str | Path):
        return model
    try:
        folder = model_folder(model)
    except NotPackedError:
        folder = None  # a hub id
    if folder is not None and engine != "torch" and is_packed(folder):
        from ternarybert.runtime.embedder import Embedder
        from ternarybert.runtime.load import load

        loaded = load(folder, engine=engine, num_threads=num_threads)
        if not isinstance(loaded, Embedder):
            raise UnsupportedModelError(f"'{model}' is a {type(loaded).__name__}, not an embedder (no modules.json)")
        return loaded
    from ternarybert.training.torch_embedder import TorchEmbedder

    return TorchEmbedder.load(folder or model)


class _Timed:
    """Counts texts and seconds of an encoder."""

    def __init__(self, encoder: VectorEncoder) -> None:
        self.encoder, self.texts, self.seconds = encoder, 0, 0.0

    def __call__(self, texts: Sequence[str], kind: str = "") -> NDArray[np.float32]:
        start = time.perf_counter()
        vectors = getattr(self.encoder, f"encode{kind}")(list(texts))
        self.seconds += time.perf_counter() - start
        self.texts += len(texts)
        return unit_length(np.asarray(vectors, np.float32))


def _pair_scores(
    kind: str, ours: _Timed, theirs: _Timed | None, first: list[str], second: list[str], labels: list[float]
) -> dict[str, Scores]:
    def score(a: NDArray[Any], b: NDArray[Any]) -> Scores:
        values = cosines(a, b)
        if kind == "pairs":
            return {"average_precision": 100 * ranking.average_precision(values, labels)}
        return metrics.score(("spearman", "pearson"), values, labels)

    a, b = ours(first), ours(second)
    scores = {"model": score(a, b)}
    if theirs is not None:
        a_teacher, b_teacher = theirs(first), theirs(second)
        scores |= {"teacher": score(a_teacher, b_teacher), "asymmetric": score(a, b_teacher)}
        scores["model"]["cosine"] = 100 * float(np.mean(cosines(np.vstack([a, b]), np.vstack([a_teacher, b_teacher]))))
    return scores


def _retrieval_scores(ours: _Timed, theirs: _Timed | None, data: RetrievalData) -> dict[str, Scores]:
    queries, documents = ours(data.queries, "_query"), ours(data.documents, "_document")
    scores = {"model": retrieval_scores(queries, documents, data)}
    if theirs is not None:
        other = theirs(data.documents, "_document")
        scores["teacher"] = retrieval_scores(theirs(data.queries, "_query"), other, data)
        scores["asymmetric"] = retrieval_scores(queries, other, data)
    return scores


def retrieval_scores(queries: NDArray[Any], documents: NDArray[Any], data: RetrievalData) -> Scores:
    """The means over the queries, in percent."""
    rankings = ranking.rank_documents(queries, documents, RECALL_AT)
    measures = {
        f"ndcg@{NDCG_AT}": partial(ranking.ndcg, k=NDCG_AT),
        f"mrr@{MRR_AT}": partial(ranking.reciprocal_rank, k=MRR_AT),
        f"recall@{RECALL_AT}": partial(ranking.recall, k=RECALL_AT),
    }
    pairs = list(zip(rankings, data.relevant, strict=True))
    return {name: 100 * float(np.mean([measure(*pair) for pair in pairs])) for name, measure in measures.items()}


def _paths(given: str | Path | Sequence[str | Path]) -> list[str | Path]:
    return [given] if isinstance(given, str | Path) else list(given)


def _name(model: object) -> str:
    return str(model) if isinstance(model, str | Path) else type(model).__name__
