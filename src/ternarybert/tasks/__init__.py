"""Data sets: the eight GLUE tasks and the user's own table, in one shape, and the scores they are judged by.

`load_glue` and `load_table` give a `TaskData`; `align_labels` puts its labels into a teacher's order. Nothing here
imports torch, and `datasets` is imported only when rows are read.
"""

from ternarybert.tasks.glue import GLUE, glue_task, load_glue
from ternarybert.tasks.labels import align_labels
from ternarybert.tasks.table import load_table
from ternarybert.tasks.task import Task, TaskData

__all__ = ["GLUE", "Task", "TaskData", "align_labels", "glue_task", "load_glue", "load_table"]
