"""How much the demo does. Two sizes: one to be convinced, one to have seen it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ternarybert.recipe import PRESETS, Recipe, Schedule


@dataclass(frozen=True)
class Plan:
    """Rows, passes over them, and how long to time; all else is as `finetune` and `ternarize` do it by default."""

    name: str
    minutes: int  # on two idle cores, to be announced
    train_rows: int
    dev_rows: int
    test_rows: int
    teacher_epochs: float
    student_epochs: float
    evaluations: int
    sentences: int = 50  # timed one by one
    rounds: int = 7  # by turns

    def recipe(self) -> Recipe:
        """The default recipe, with the plan's number of epochs."""
        return PRESETS["default"].override({"schedule.epochs": self.student_epochs})

    def teacher_recipe(self, schedule: Schedule) -> Recipe:
        """Of the teacher only the schedule counts."""
        return Recipe(schedule=schedule).override({"schedule.epochs": self.teacher_epochs})

    def as_dict(self) -> dict[str, Any]:
        """For a note of what a folder was made with."""
        return asdict(self)


ALL = 1_000_000
FULL = Plan("full", 12, 5_000, 400, ALL, teacher_epochs=2, student_epochs=3, evaluations=5)
QUICK = Plan("quick", 3, 1_600, 200, 600, teacher_epochs=2, student_epochs=2, evaluations=2, rounds=5)
