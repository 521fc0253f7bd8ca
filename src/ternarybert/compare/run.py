"""Runs the cells of a comparison one after the other, each within its time, and never one twice.

All students share a classroom: one teacher in memory, its answers computed once. A cell's time is counted from its
start to its last evaluation, for every method alike; what the teacher is asked beforehand counts for none of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from ternarybert.baselines.methods import Lesson
from ternarybert.baselines.sizes import float_size
from ternarybert.baselines.teach import teach
from ternarybert.compare.cells import Cell
from ternarybert.compare.place import Place
from ternarybert.distill.classroom import Classroom
from ternarybert.distill.clock import Clock
from ternarybert.distill.head import AnyData
from ternarybert.distill.heads import head_of
from ternarybert.distill.models import check_tokenizer, load_tokenizer, load_trained
from ternarybert.distill.run import Settings, plan
from ternarybert.distill.scores import main_metric
from ternarybert.distill.ternarize import check_data
from ternarybert.distill.work import work_folder
from ternarybert.errors import OptionError, OutputError, TernaryBertError
from ternarybert.recipe import Recipe
from ternarybert.student import expose_scores
from ternarybert.tasks.scores import mean_scores

EVALUATIONS = 3  # of a cell that is ended by the clock

Watch = Callable[[Cell, int, int], AbstractContextManager[Any]]  # gives a Trainer callback that shows a cell's progress


@dataclass(frozen=True)
class Comparison:
    """Everything but the cells."""

    teacher: str
    recipe: Recipe  # of our own method
    schedule: Mapping[str, object] = field(default_factory=dict)  # fields of every method's recipe
    minutes_per_cell: float | None = None
    budget: float | None = None  # minutes of all cells that train, together
    processor_time: bool = False  # minutes of the processor, not of the clock on the wall
    sources: Mapping[str, str] = field(default_factory=dict)  # pre-trained models by name
    settings: Settings = field(default_factory=Settings)

    def source(self, cell: Cell) -> str | None:
        """The pre-trained model that a cell starts from; None where it starts from the teacher, or none was named."""
        return None if cell.source is None else self.sources.get(cell.source)

    @property
    def now(self) -> Callable[[], float]:
        """The clock that counts."""
        return time.process_time if self.processor_time else time.monotonic


def open_room(teacher: str, data: AnyData) -> Classroom:
    """The classroom of a teacher."""
    network, tokenizer = load_trained(teacher, head_of(data.task)), load_tokenizer(teacher)
    check_tokenizer(tokenizer, network)
    expose_scores(network)
    return Classroom.open(network, check_data(data, network), tokenizer)


def compare(
    comparison: Comparison,
    data: AnyData,
    cells: Sequence[Cell],
    place: Place,
    watch: Watch,
    after: Callable[[dict[str, Any]], None] = lambda _: None,
    *,
    force: bool = False,
    asking: Callable[[float], None] = lambda _: None,
) -> dict[str, Any]:
    """Run what is not done yet, and return the teacher's own row of the table; `after` each cell it is told too."""
    start = comparison.now()
    room = open_room(comparison.teacher, data)
    place.begin(_plan(comparison, room.data), force=force)
    done = [cell for cell in cells if place.is_done(cell, comparison.source(cell))]
    for cell in done:
        place.sweep(cell)  # a kill may have come between its figures and this
    left = [cell for cell in cells if cell not in done]
    timed = bool(comparison.minutes_per_cell or comparison.budget)
    room.ask(comparison.now)
    asks = sum(cell.asks_teacher for cell in left) if comparison.recipe.distill.masked else 0
    if asks > (0 if timed else 1):  # where time is short, none pays for the others
        room.remember_all(asking)
    if place.seconds is None and timed:
        place.seconds = _seconds(comparison, cells, comparison.now() - start, room.seconds)
    teacher = teacher_row(room)
    for number, cell in enumerate(left, 1):
        with watch(cell, number, len(left)) as callback:
            place.keep(cell, _result(comparison, cell, room, place, callback))
            place.sweep(cell)
        after(teacher)
    return teacher


def teacher_row(room: Classroom) -> dict[str, Any]:
    """The teacher among its students."""
    sets = room.teacher_scores()
    scores = mean_scores(sets)
    return {
        "task": room.data.task.name,
        "metric": main_metric(room.data.task, scores) if scores else "agreement",
        "scores": scores,
        "sets": sets,
        "size": float_size(room.teacher).as_dict(),
        "train_rows": len(room.features.train or ()),
    }


def _result(comparison: Comparison, cell: Cell, room: Classroom, place: Place, callback: Any) -> dict[str, Any]:
    """A cell's figures; where it cannot be made, why. A full disk or a damaged folder is nobody's result."""
    seconds, output = place.seconds, place.output(cell)
    settings = replace(
        comparison.settings,
        seed=cell.seed,
        resume=work_folder(output).exists(),
        clock=None if seconds is None else Clock(seconds, EVALUATIONS, comparison.now),
        callbacks=(*comparison.settings.callbacks, *([] if callback is None else [callback])),
    )
    try:
        lesson = _lesson(comparison, cell, room)
        return teach(cell.method, lesson, output, settings, dict(comparison.schedule)) | {"label": cell.label}
    except OutputError:
        raise
    except TernaryBertError as error:
        return {"failed": str(error), "label": cell.label, "method": cell.method, "bits": cell.bits}


def _lesson(comparison: Comparison, cell: Cell, room: Classroom) -> Lesson:
    recipe = comparison.recipe
    if cell.asks_teacher:
        recipe = recipe.with_bits(cell.bits).override(dict(cell.changes))
    source = comparison.source(cell)
    if cell.source is not None and source is None:
        raise OptionError(f"needs a pre-trained model: --source {cell.source}=MODEL")
    return Lesson(room, comparison.teacher, cell.bits, recipe, cell.seed, source)


def _seconds(comparison: Comparison, cells: Sequence[Cell], spent: float, evaluation: float) -> float:
    """The time of one cell that trains: as it was said, or an equal share of what is left of the budget.

    The others take about as long as the teacher's evaluation, and as long again to be made.
    """
    if comparison.minutes_per_cell:
        return 60 * comparison.minutes_per_cell
    assert comparison.budget is not None
    trained = sum(cell.trains for cell in cells)
    left = 60 * comparison.budget - spent - 2 * evaluation * (len(cells) - trained)
    if left <= 0:
        raise OptionError(f"a budget of {comparison.budget:g} minutes was over before the first cell could begin")
    return left / max(1, trained)


def _plan(comparison: Comparison, data: AnyData) -> dict[str, Any]:
    """What all cells of a folder have in common."""
    common = plan(comparison.teacher, data, comparison.recipe, comparison.settings)
    for name in ("seed", "number of seconds"):  # a cell's own
        del common[name]
    return common | {
        "schedule": dict(comparison.schedule),
        "minutes per cell": comparison.minutes_per_cell,
        "budget": comparison.budget,
        "clock": "processor" if comparison.processor_time else "wall",
    }
