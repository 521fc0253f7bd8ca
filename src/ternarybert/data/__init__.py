"""Data sets: the eight GLUE tasks, SQuAD and the user's own files, and their metrics.

Every loader returns a `TaskData`: a `Task` (`ClassificationTask` or `QuestionAnsweringTask`) and its examples. Nothing
here imports torch, and `datasets` is imported only when rows are read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ternarybert.data.classification import ClassificationTask
from ternarybert.data.embedding import EmbeddingTask, load_texts
from ternarybert.data.glue import GLUE, glue_task, load_glue
from ternarybert.data.labels import align_labels
from ternarybert.data.multi_label import MultiLabelTask, load_multi_label
from ternarybert.data.reranking import RerankingTask, load_rankings
from ternarybert.data.squad.task import (
    SQUAD,
    QuestionAnsweringTask,
    answering_task,
    hold_out,
    load_questions,
    load_squad,
    squad_task,
)
from ternarybert.data.table import load_table
from ternarybert.data.task import Task, TaskData
from ternarybert.data.token_classification import TokenClassificationTask, load_tags

__all__ = [
    "GLUE",
    "SQUAD",
    "ClassificationTask",
    "EmbeddingTask",
    "MultiLabelTask",
    "QuestionAnsweringTask",
    "RerankingTask",
    "Task",
    "TaskData",
    "TokenClassificationTask",
    "align_labels",
    "answering_task",
    "glue_task",
    "hold_out",
    "load_glue",
    "load_multi_label",
    "load_questions",
    "load_rankings",
    "load_squad",
    "load_table",
    "load_tags",
    "load_task",
    "load_texts",
    "squad_task",
]


def load_task(name: str, folder: str | Path | None = None) -> TaskData[Any]:
    """A known data set by name: a GLUE task, `squad` or `squad_v2`; without a folder, from the hub."""
    if name.casefold().startswith("squad"):
        return load_squad(name, folder)
    return load_glue(name, folder)
