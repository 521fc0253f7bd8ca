"""One head for each kind of task: what training and evaluation need to know about it.

A new kind is a new file with a subclass of `Head`, and an entry in `HEADS`.
"""

from __future__ import annotations

from typing import Any

from ternarybert.data.task import Task
from ternarybert.training.heads.base import Head
from ternarybert.training.heads.classification import ClassificationHead
from ternarybert.training.heads.embedding import EmbeddingHead
from ternarybert.training.heads.multi_label import MultiLabelHead
from ternarybert.training.heads.question_answering import QuestionAnsweringHead
from ternarybert.training.heads.reranking import RerankingHead
from ternarybert.training.heads.token_classification import TokenClassificationHead

__all__ = [
    "HEADS",
    "ClassificationHead",
    "EmbeddingHead",
    "Head",
    "MultiLabelHead",
    "QuestionAnsweringHead",
    "RerankingHead",
    "TokenClassificationHead",
    "head_of",
]

HEADS: dict[str, type[Head[Any]]] = {
    head.kind: head
    for head in (
        ClassificationHead,
        QuestionAnsweringHead,
        EmbeddingHead,
        TokenClassificationHead,
        MultiLabelHead,
        RerankingHead,
    )
}


def head_of(task: Task) -> Head[Any]:
    """The head for a task."""
    return HEADS[task.kind](task)
