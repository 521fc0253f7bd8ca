"""Run a comparison: one student of each method and bit width, all from the same teacher, each in the same time.

All students share one `Teacher`, whose outputs are computed once. A cell is one student; its time counts from its start
to its last evaluation, the same for every method, without the teacher's outputs that are computed beforehand. Only what
was measured is kept; models are made by `ternarize`.

A comparison has a folder, and nothing else in that folder is touched:

    comparison.json      teacher, data, recipe and time of a cell; a folder holds one comparison
    cells/KEY.json       what was measured of a student, or why it could not be made
    cells/KEY.work/      a student in training; the next start resumes from its last checkpoint
    table.md table.json  all results so far, written again after every cell
    figure.svg .png      size against score, when all cells are done
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ternarybert.compare.cells import Cell
from ternarybert.compare.methods import METHODS, MethodInput, MethodStudent
from ternarybert.compare.models import float_size, size_of
from ternarybert.data.metrics import mean_scores
from ternarybert.data.task import TaskData
from ternarybert.errors import OptionError, OutputError, TernaryBertError, UnsupportedModelError
from ternarybert.recipe import Recipe
from ternarybert.storage import claim_folder, read_json, write_json
from ternarybert.training.batches import predict_sets
from ternarybert.training.callbacks import TrainingCallback
from ternarybert.training.checkpoints import prepare_work, work_folder
from ternarybert.training.options import TrainingOptions, run_plan
from ternarybert.training.report import RunReport, StepEvaluation, TeacherReport, versions
from ternarybert.training.teacher import Teacher
from ternarybert.training.ternarize import student_trainer
from ternarybert.training.time_budget import TimeBudget

_PLAN, _TIME = "comparison.json", ".time"


class ComparisonFolder:
    """The files of a comparison."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.cells = folder, folder / "cells"

    def claim(self, plan: dict[str, Any], *, force: bool = False) -> None:
        """Use the folder for this comparison, or continue the same one; other files in it are never touched."""
        claim_folder(self.folder, _PLAN, plan, force=force, owned=(self.cells.name,))
        self.cells.mkdir(exist_ok=True)

    @property
    def seconds(self) -> float | None:
        """The time of a cell; the first start fixes it, since cells with different times could not be compared."""
        path = self.cells / _TIME
        return float(read_json(path)["seconds"]) if path.is_file() else None

    @seconds.setter
    def seconds(self, value: float) -> None:
        write_json(self.cells / _TIME, {"seconds": value})

    def output(self, cell: Cell) -> Path:
        """The path of a cell; its work folder has `.work` appended."""
        return self.cells / cell.key

    def result(self, cell: Cell) -> dict[str, Any] | None:
        """What was measured of a cell; None while it is not done."""
        path = self.cells / f"{cell.key}.json"
        return read_json(path) if path.is_file() else None

    def is_done(self, cell: Cell, source: str | None = None) -> bool:
        """Whether a cell has a result, from that pre-trained model; a failed one is tried again."""
        result = self.result(cell)
        return result is not None and "failed" not in result and (source is None or result.get("source") == source)

    def save(self, cell: Cell, result: dict[str, Any]) -> None:
        """Write what was measured."""
        write_json(self.cells / f"{cell.key}.json", result | {"cell": asdict(cell)})

    def remove_work(self, cell: Cell) -> None:
        """Remove the work folder of a cell that is done."""
        shutil.rmtree(work_folder(self.output(cell)), ignore_errors=True)

    def with_others(self, cells: Sequence[Cell]) -> list[Cell]:
        """These cells, and after them the others that the folder has results of."""
        by_key = {cell.key: cell for cell in cells}
        for path in sorted(self.cells.glob("*.json")):
            fields = read_json(path).get("cell")
            if fields is not None:
                cell = Cell(**fields | {"changes": tuple(map(tuple, fields["changes"]))})
                by_key.setdefault(cell.key, cell)
        return list(by_key.values())


def train_method(
    method: str, given: MethodInput, output: Path, options: TrainingOptions, schedule: dict[str, object] | None = None
) -> dict[str, Any]:
    """Make the student, train it if the method trains, and measure it.

    The work folder is `output`.work and is not removed: until the result is saved, a kill must not cost a training.
    `schedule` are fields of the recipe's schedule that are the same for all methods.
    """
    start = time.perf_counter()
    student = METHODS[method](given)
    recipe = student.training_recipe().override(schedule or {})
    teacher = _teacher_for(given.teacher, student)
    if student.trains:
        report = _train(method, given, student, recipe, teacher, output, options)
    else:
        report = replace(_measure(student, teacher, given), seconds=round(time.perf_counter() - start, 1))
    if options.time_budget is not None:
        report = replace(report, seconds=round(options.time_budget.spent, 1))
    size = size_of(student.model, recipe)
    ratio = float_size(teacher.model).bytes / size.bytes
    return report.to_dict() | {
        "method": method,
        "bits": given.bits,
        "source": given.source,
        "size": size.as_dict() | {"ratio": ratio},
        "teacher_size": float_size(teacher.model).as_dict(),
    }


def _teacher_for(teacher: Teacher, student: MethodStudent) -> Teacher:
    """The teacher, or the same with data tokenized for a student that has another tokenizer."""
    if student.tokenizer is None:
        return teacher
    if teacher.head.per_token:
        raise UnsupportedModelError("a model with another tokenizer cannot be compared on question answering")
    other = Teacher.of(teacher.model, teacher.data, student.tokenizer, student.model)
    return replace(other, logits=teacher.evaluate(), seconds=teacher.seconds)


def _train(
    method: str,
    given: MethodInput,
    student: MethodStudent,
    recipe: Recipe,
    teacher: Teacher,
    output: Path,
    options: TrainingOptions,
) -> RunReport:
    recipe = recipe.for_task(two_stages=teacher.head.two_stages)
    what = {"method": method, "bits": given.bits, "source": given.source}
    work = prepare_work(output, options, run_plan(given.folder, teacher.data, recipe, options) | what)
    options = replace(options, callbacks=(*options.callbacks, *student.callbacks))
    optimizer = "adamw" if student.recipe is None else "bertadam"  # BertAdam's first steps are too large for labels
    trainer = student_trainer(teacher, student.model, recipe, options, work, save=False, optimizer=optimizer)
    trainer.train()
    return trainer.report(bits=str(recipe.bits), recipe=recipe.name)


def _measure(student: MethodStudent, teacher: Teacher, given: MethodInput) -> RunReport:
    """The report of a model that is finished when it is made."""
    task, model = teacher.data.task, student.model.to(teacher.model.device)
    logits = predict_sets(model, teacher.tokenized, teacher.head.logits)
    sets = teacher.head.score_sets(teacher.tokenized, logits, teacher.predictions())
    final = StepEvaluation(0, mean_scores(sets), sets)
    return RunReport(
        task=task.name,
        recipe="post-training",
        metric=task.main_metric(final.scores),
        teacher=TeacherReport(teacher.scores()),
        kept="last",
        best=final,
        final=final,
        evaluations=(final,),
        steps=0,
        seconds=0.0,
        train_rows=len(teacher.tokenized.train or ()),
        seed=given.seed,
        versions=versions(),
    )


EVALUATIONS = 3  # of a cell with a time budget

# Called with a cell, its number and the number of cells; gives a callback that follows the cell's training.
CellProgress = Callable[[Cell, int, int], AbstractContextManager[TrainingCallback | None]]


@dataclass(frozen=True)
class Comparison:
    """What all cells have in common."""

    teacher: str
    recipe: Recipe  # of our own method
    schedule: Mapping[str, object] = field(default_factory=dict)  # fields of every method's recipe
    minutes_per_cell: float | None = None
    budget: float | None = None  # minutes of all cells together
    processor_time: bool = False  # count CPU time instead of wall-clock time
    sources: Mapping[str, str] = field(default_factory=dict)  # pre-trained models by name
    options: TrainingOptions = field(default_factory=TrainingOptions)

    def source(self, cell: Cell) -> str | None:
        """The pre-trained model that a cell starts from; None where it starts from the teacher, or none is given."""
        return None if cell.source is None else self.sources.get(cell.source)

    @property
    def now(self) -> Callable[[], float]:
        """The clock that budgets are counted by."""
        return time.process_time if self.processor_time else time.monotonic


def compare(
    comparison: Comparison,
    data: TaskData[Any],
    cells: Sequence[Cell],
    folder: ComparisonFolder,
    cell_progress: CellProgress = lambda *_: nullcontext(),
    after_cell: Callable[[dict[str, Any]], None] = lambda _: None,
    *,
    force: bool = False,
    teacher_progress: Callable[[float], None] = lambda _: None,
) -> dict[str, Any]:
    """Run the cells that are not done yet, and return the teacher's row of the table.

    `after_cell` gets that row after every cell; `teacher_progress` the share of its outputs that are computed.
    """
    start = comparison.now()
    teacher = Teacher.load(comparison.teacher, data)
    folder.claim(_plan(comparison, teacher.data), force=force)
    done = [cell for cell in cells if folder.is_done(cell, comparison.source(cell))]
    for cell in done:
        folder.remove_work(cell)  # a kill may have come between its result and this
    left = [cell for cell in cells if cell not in done]
    timed = bool(comparison.minutes_per_cell or comparison.budget)
    teacher.evaluate(comparison.now)
    distilled = sum(cell.is_distilled for cell in left) if comparison.recipe.distill.masked else 0
    if distilled > (0 if timed else 1):  # with a time budget, no cell pays for the others
        teacher.fill_cache(teacher_progress)
    if folder.seconds is None and timed:
        folder.seconds = _seconds(comparison, cells, comparison.now() - start, teacher.seconds)
    row = teacher_row(teacher)
    for number, cell in enumerate(left, 1):
        with cell_progress(cell, number, len(left)) as callback:
            folder.save(cell, _result(comparison, cell, teacher, folder, callback))
            folder.remove_work(cell)
        after_cell(row)
    return row


def teacher_row(teacher: Teacher) -> dict[str, Any]:
    """The teacher's row of the table."""
    sets, task = teacher.scores(), teacher.data.task
    scores = mean_scores(sets)
    return {
        "task": task.name,
        "metric": task.main_metric(scores),
        "scores": scores,
        "sets": sets,
        "size": float_size(teacher.model).as_dict(),
        "train_rows": len(teacher.tokenized.train or ()),
    }


def _result(
    comparison: Comparison, cell: Cell, teacher: Teacher, folder: ComparisonFolder, callback: TrainingCallback | None
) -> dict[str, Any]:
    """What was measured of a cell, or why it could not be made. A full disk or a damaged folder is not a result."""
    seconds, output = folder.seconds, folder.output(cell)
    options = replace(
        comparison.options,
        seed=cell.seed,
        resume=work_folder(output).exists(),
        time_budget=None if seconds is None else TimeBudget(seconds, EVALUATIONS, comparison.now),
        callbacks=(*comparison.options.callbacks, *([] if callback is None else [callback])),
    )
    try:
        given = _method_input(comparison, cell, teacher)
        return train_method(cell.method, given, output, options, dict(comparison.schedule)) | {"label": cell.label}
    except OutputError:
        raise
    except TernaryBertError as error:
        return {"failed": str(error), "label": cell.label, "method": cell.method, "bits": cell.bits}


def _method_input(comparison: Comparison, cell: Cell, teacher: Teacher) -> MethodInput:
    recipe = comparison.recipe
    if cell.is_distilled:
        recipe = recipe.with_bits(cell.bits).override(dict(cell.changes))
    source = comparison.source(cell)
    if cell.source is not None and source is None:
        raise OptionError(f"needs a pre-trained model: --source {cell.source}=MODEL")
    return MethodInput(teacher, comparison.teacher, cell.bits, recipe, cell.seed, source)


def _seconds(comparison: Comparison, cells: Sequence[Cell], spent: float, evaluation: float) -> float:
    """The time of one cell that trains: as given, or an equal share of what is left of the budget.

    A cell that does not train takes about twice as long as the teacher's evaluation.
    """
    if comparison.minutes_per_cell:
        return 60 * comparison.minutes_per_cell
    assert comparison.budget is not None
    trained = sum(cell.trains for cell in cells)
    left = 60 * comparison.budget - spent - 2 * evaluation * (len(cells) - trained)
    if left <= 0:
        raise OptionError(f"a budget of {comparison.budget:g} minutes was used up before the first cell started")
    return left / max(1, trained)


def _plan(comparison: Comparison, data: TaskData[Any]) -> dict[str, Any]:
    """What all cells of a folder have in common."""
    common = run_plan(comparison.teacher, data, comparison.recipe, comparison.options)
    for name in ("seed", "number of seconds"):  # a cell's own
        del common[name]
    return common | {
        "schedule": dict(comparison.schedule),
        "minutes per cell": comparison.minutes_per_cell,
        "budget": comparison.budget,
        "clock": "processor" if comparison.processor_time else "wall",
    }
