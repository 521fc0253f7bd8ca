"""Data sets: the eight GLUE tasks, SQuAD and the user's own files, and the scores they are judged by.

`load_glue` and `load_table` give a `TaskData`, `load_squad` and `load_questions` a `SquadData`; `align_labels` puts
labels into a teacher's order. Nothing here imports torch, and `datasets` is imported only when rows are read.
"""

from __future__ import annotations

from pathlib import Path

from ternarybert.data.glue import GLUE, glue_task, load_glue
from ternarybert.data.labels import align_labels
from ternarybert.data.squad.task import (
    SQUAD,
    SquadData,
    SquadTask,
    answering_task,
    hold_out,
    load_questions,
    load_squad,
    squad_task,
)
from ternarybert.data.table import load_table
from ternarybert.data.task import Task, TaskData

__all__ = [
    "GLUE",
    "SQUAD",
    "SquadData",
    "SquadTask",
    "Task",
    "TaskData",
    "align_labels",
    "answering_task",
    "glue_task",
    "hold_out",
    "load_glue",
    "load_questions",
    "load_squad",
    "load_table",
    "load_task",
    "squad_task",
]


def load_task(name: str, folder: str | Path | None = None) -> TaskData | SquadData:
    """A known data set by name: a GLUE task, `squad` or `squad_v2`; without a folder, from the hub."""
    load = load_squad if name.casefold().startswith("squad") else load_glue
    return load(name, folder)
