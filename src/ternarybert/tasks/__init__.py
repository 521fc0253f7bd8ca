"""Data sets: the user's own table, in one shape, and the scores they are judged by.

`load_table` gives a `TaskData`; `align_labels` puts its labels into a teacher's order. Nothing here
imports torch, and `datasets` is imported only when rows are read.
"""

from ternarybert.tasks.labels import align_labels
from ternarybert.tasks.table import load_table
from ternarybert.tasks.task import Task, TaskData

__all__ = ["Task", "TaskData", "align_labels", "load_table"]
