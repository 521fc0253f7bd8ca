"""Runs the cells of a comparison one after the other, each within its time, and never one twice.

All students share a classroom: one teacher in memory, its answers computed once. A cell's time is counted from its
start to its last evaluation, for every method alike; what the teacher is asked beforehand counts for none of them.

MERGED-DOCS:
The folder of a comparison: what it was begun with, and a file for every cell that is done.

    comparison.json      teacher, data, recipe and time of a cell; a folder holds one comparison
    cells/KEY.json       what was measured of a student, or why it could not be made
    cells/KEY.work/      a student in the making, from whose last checkpoint the next start goes on
    table.md table.json  all that is there, written anew after every cell
    figure.svg .png      size against score, when all are done

Nothing else in the folder is touched.

---
One student of one method, from the teacher to its figures: the same trainer, schedule and evaluation for all.

Nothing is kept but what was measured: a comparison is about figures, and `ternarize` makes models.

"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from ternarybert.compare.cells import Cell
from ternarybert.compare.methods import METHODS, Lesson, Student
from ternarybert.compare.sizes import float_size, size_of
from ternarybert.data.metrics import mean_scores
from ternarybert.errors import OptionError, OutputError, TernaryBertError, UnsupportedModelError
from ternarybert.recipe import Recipe
from ternarybert.storage import claim_folder, read_json, write_json
from ternarybert.student import expose_scores
from ternarybert.training.batches import predict_sets
from ternarybert.training.checkpoints import prepare_work, work_folder
from ternarybert.training.heads import AnyData, head_of, main_metric
from ternarybert.training.models import check_tokenizer, load_tokenizer, load_trained
from ternarybert.training.options import Settings, plan, train, versions
from ternarybert.training.teacher import Classroom, StudentTrainer
from ternarybert.training.ternarize import check_data
from ternarybert.training.time_budget import Clock
from ternarybert.training.trainer import BertTrainer

_PLAN, _TIME = "comparison.json", ".time"


class Place:
    """A comparison's folder by the names of its parts."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cells = folder, folder / "cells"

    def begin(self, plan: dict[str, Any], *, force: bool = False) -> None:
        """Take the folder for this comparison, or find it begun by the same; other things in it are never touched."""
        claim_folder(self.folder, _PLAN, plan, force=force, owned=(self.cells.name,))
        self.cells.mkdir(exist_ok=True)

    @property
    def seconds(self) -> float | None:
        """The time of a cell, fixed by the first start: with another time later cells would not compare."""
        path = self.cells / _TIME
        return float(read_json(path)["seconds"]) if path.is_file() else None

    @seconds.setter
    def seconds(self, value: float) -> None:
        write_json(self.cells / _TIME, {"seconds": value})

    def output(self, cell: Cell) -> Path:
        """Where a cell's work goes, with `.work` behind."""
        return self.cells / cell.key

    def result(self, cell: Cell) -> dict[str, Any] | None:
        """What was found out about a cell; None while it is not done."""
        path = self.cells / f"{cell.key}.json"
        return read_json(path) if path.is_file() else None

    def is_done(self, cell: Cell, source: str | None = None) -> bool:
        """Whether a cell has figures, from that pre-trained model; one that could not be made is tried again."""
        found = self.result(cell)
        return found is not None and "failed" not in found and (source is None or found.get("source") == source)

    def keep(self, cell: Cell, result: dict[str, Any]) -> None:
        """Write down what was found out."""
        write_json(self.cells / f"{cell.key}.json", result | {"cell": asdict(cell)})

    def sweep(self, cell: Cell) -> None:
        """Drop the work of a cell that is done."""
        shutil.rmtree(work_folder(self.output(cell)), ignore_errors=True)

    def with_others(self, cells: Sequence[Cell]) -> list[Cell]:
        """These cells, and after them the others that the folder has figures of."""
        found = {cell.key: cell for cell in cells}
        for path in sorted(self.cells.glob("*.json")):
            said = read_json(path).get("cell")
            if said is not None:
                cell = Cell(**said | {"changes": tuple(map(tuple, said["changes"]))})
                found.setdefault(cell.key, cell)
        return list(found.values())


class BaselineTrainer(StudentTrainer):
    """Keeps no model."""

    def save_best(self, model: Any) -> None:
        """Scores are kept by the history."""

    def best_is_whole(self) -> bool:
        """There is no model to lose."""
        return True


class LabelTrainer(BaselineTrainer):
    """Learns from labels, with the optimizer that teachers have: BertAdam's first steps would be too large."""

    def create_optimizer(self, model: Any = None) -> Any:
        """AdamW with bias correction."""
        return BertTrainer.create_optimizer(self, model)


def teach(
    method: str, lesson: Lesson, output: Path, settings: Settings, schedule: dict[str, object] | None = None
) -> dict[str, Any]:
    """Make the student, train it if the method trains, and measure it.

    Work goes to `output`.work and stays: until the result is kept, a kill must not cost a whole training. `schedule`
    are fields of the recipe's schedule that are to be the same for all methods.
    """
    start = time.perf_counter()
    student = METHODS[method](lesson)
    recipe = student.lessons().override(schedule or {})
    room = _room(lesson, student)
    if student.trains:
        report = _train(method, lesson, student, recipe, room, output, settings)
    else:
        report = _evaluate(student, room, lesson.seed) | {"seconds": round(time.perf_counter() - start, 1)}
    if settings.clock is not None:
        report["seconds"] = round(settings.clock.spent, 1)
    size = size_of(student.model, recipe)
    ratio = float_size(room.teacher).bytes / size.bytes
    return report | {
        "method": method,
        "bits": lesson.bits,
        "source": lesson.source,
        "size": size.as_dict() | {"ratio": ratio},
        "teacher_size": float_size(room.teacher).as_dict(),
    }


def _room(lesson: Lesson, student: Student) -> Classroom:
    """The classroom, or the same with other tokens: for a model with a tokenizer of its own."""
    room = lesson.room
    if student.tokenizer is None:
        return room
    if room.head.per_token:
        raise UnsupportedModelError("a model with other tokens cannot be compared on questions")
    other = Classroom.open(room.teacher, room.data, student.tokenizer, student.model)
    return replace(other, answers=room.ask(), seconds=room.seconds)


def _train(
    method: str, lesson: Lesson, student: Student, recipe: Recipe, room: Classroom, output: Path, settings: Settings
) -> dict[str, Any]:
    recipe = recipe.for_task(two_stages=room.head.two_stages)
    what = {"method": method, "bits": lesson.bits, "source": lesson.source}
    work = prepare_work(output, settings, plan(lesson.teacher, room.data, recipe, settings) | what)
    settings = replace(settings, callbacks=(*settings.callbacks, *student.callbacks))
    kind = LabelTrainer if student.recipe is None else BaselineTrainer
    trainer = room.trainer(kind, student.model, recipe, settings, work)
    return room.report(trainer, train(trainer, settings, work), recipe, settings.seed)


def _evaluate(student: Student, room: Classroom, seed: int) -> dict[str, Any]:
    """The figures of a model that is finished when it is made."""
    sets = _scores(student.model.to(room.teacher.device), room)
    scores = mean_scores(sets)
    final = {"step": 0, "scores": scores, "sets": sets}
    return {
        "task": room.data.task.name,
        "recipe": "post-training",
        "metric": main_metric(room.data.task, scores),
        "teacher": room.teacher_scores(),
        "kept": "last",
        "student": {"best": final, "final": final},
        "evaluations": [final],
        "steps": 0,
        "train_rows": len(room.features.train or ()),
        "seed": seed,
        "versions": versions(),
    }


def _scores(model: PreTrainedModel, room: Classroom) -> dict[str, dict[str, float]]:
    features, head = room.features, room.head
    answers = {name: head.answers(features, name, said) for name, said in room.ask().items()}
    return head.score_sets(features, predict_sets(model, features, head.logits), answers)


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
    asks = sum(cell.is_distilled for cell in left) if comparison.recipe.distill.masked else 0
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
    if cell.is_distilled:
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
