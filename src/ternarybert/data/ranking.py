"""How good a ranking is: nDCG, reciprocal rank, recall and average precision, as in trec_eval.

A document of a `Relevance` table counts by its grade; one that is not in it is not relevant. Ties of scores are broken
by the order of the documents, so that a ranking is always the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ternarybert.errors import DataError

Relevance: TypeAlias = Mapping[int, float]  # the relevant documents of a query, by number, with their grades

_QUERIES_AT_ONCE = 256


def ndcg(ranking: Sequence[int], relevant: Relevance, k: int = 10) -> float:
    """Discounted cumulative gain of the first k, as a share of the best possible one; gains are the grades."""
    found = sum(relevant.get(doc, 0.0) / np.log2(rank + 2) for rank, doc in enumerate(ranking[:k]))
    grades = sorted(relevant.values(), reverse=True)[:k]
    best = sum(grade / np.log2(rank + 2) for rank, grade in enumerate(grades))
    return float(found / best) if best > 0 else 0.0


def reciprocal_rank(ranking: Sequence[int], relevant: Relevance, k: int = 10) -> float:
    """One divided by the rank of the first relevant document, 0 if it is not among the first k."""
    return next((1.0 / rank for rank, doc in enumerate(ranking[:k], 1) if relevant.get(doc, 0) > 0), 0.0)


def recall(ranking: Sequence[int], relevant: Relevance, k: int = 100) -> float:
    """The share of the relevant documents that are among the first k."""
    wanted = {doc for doc, grade in relevant.items() if grade > 0}
    return len(wanted.intersection(ranking[:k])) / len(wanted) if wanted else 0.0


def average_precision(scores: ArrayLike, labels: ArrayLike) -> float:
    """The area under the curve of precision against recall of pairs, labels 0 or 1; equal scores count together."""
    values, wanted = np.asarray(scores, np.float64), np.asarray(labels)
    if values.shape != wanted.shape or values.ndim != 1 or not values.size:
        raise DataError(f"scores of shape {values.shape} cannot be compared with labels of shape {wanted.shape}")
    if not np.isin(wanted, (0, 1)).all():
        other = wanted[~np.isin(wanted, (0, 1))][0]
        raise DataError(f"the label of a pair is 0 or 1; found {other}")
    if not wanted.any():
        raise DataError("no pair has the label 1")
    order = np.argsort(-values, kind="stable")
    hits = np.cumsum(wanted[order])
    last = np.append(np.flatnonzero(np.diff(values[order])), len(values) - 1)  # of every run of equal scores
    precision, found = hits[last] / (last + 1), hits[last] / hits[-1]
    return float(np.sum(np.diff(found, prepend=0.0) * precision))


def rank_documents(queries: NDArray[Any], documents: NDArray[Any], k: int) -> Iterator[list[int]]:
    """The k documents nearest to each query by dot product, best first; exact."""
    k = min(k, len(documents))
    for first in range(0, len(queries), _QUERIES_AT_ONCE):
        scores = queries[first : first + _QUERIES_AT_ONCE] @ documents.T
        for row in scores:
            near = np.flatnonzero(row >= np.partition(row, -k)[-k])  # in order, and all that tie with the last
            yield near[np.argsort(-row[near], kind="stable")[:k]].tolist()
