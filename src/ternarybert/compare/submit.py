"""`reproduce test`: the students of the paper's Table 2, and an archive of each for the GLUE server.

The labels of GLUE's test sets are not public, so nothing is scored here: the server does it. For every task a teacher
is fine-tuned and its students are made by `ternarize`; their predictions go into one archive per model, `bert.zip`,
`ternarybert-2-2-8.zip` and so on. WNLI, which the paper leaves out, is filled with its most frequent class.

Everything is kept in the output folder: a run that was stopped resumes. The two rows of TinyBERT are left out: they
need a model with half of the layers, fine-tuned on each task (`ternarize --student`, then `evaluate --submission`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternarybert.compare.grid import ReproductionRun, sample_rows
from ternarybert.data.submission import (
    TEST_SETS,
    WNLI_FILLER,
    add_to_archive,
    as_submitted,
    check_archive,
    load_glue_test,
    missing_sets,
)
from ternarybert.errors import DataError, HubError, OptionError, suggest

if TYPE_CHECKING:
    from ternarybert.data import ClassificationTask, TaskData
    from ternarybert.training.options import TrainingOptions

STUDENTS = {"ternarybert-2-2-32": "2-2-32", "ternarybert-2-2-8": "2-2-8", "bert-8-8-8": "8-8-8"}  # Table 2
TEACHER = "bert"


@dataclass(frozen=True)
class GlueSubmission:
    """The archives of all models, and what each still lacks for the server."""

    archives: Mapping[str, Path]
    missing: Sequence[str]  # files

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"archives": {name: str(path) for name, path in self.archives.items()}, "missing": list(self.missing)}


def submit(run: ReproductionRun, tasks: Sequence[str] = (), data: str | Path | None = None) -> GlueSubmission:
    """Make teachers and students of the tasks, all by default, and their archives; `run` says how they are trained."""
    for task in tasks:
        if task not in TEST_SETS:
            raise OptionError(f"unknown task '{task}'{suggest(task, TEST_SETS)}")
    archives = {name: run.folder / f"{name}.zip" for name in (TEACHER, *STUDENTS)}
    for path in archives.values():
        check_archive(path)
    loaded = _load(run, tasks, data)
    present: list[str] = []
    for task, (rows, test) in loaded.items():
        run.progress.task(rows)
        for name, folder in _models(run, task, rows, len(loaded)).items():
            present = add_to_archive(archives[name], dict([WNLI_FILLER]) | _predictions(folder, test, run))
    return GlueSubmission(archives, missing_sets(present))


def _load(
    run: ReproductionRun, tasks: Sequence[str], folder: str | Path | None
) -> dict[str, tuple[TaskData[Any], TaskData[ClassificationTask]]]:
    """Training rows and test rows of every task; one that cannot be read is left out unless it was named."""
    from ternarybert.data import load_task

    loaded = {}
    for task in tasks or TEST_SETS:
        try:
            rows, test = sample_rows(load_task(task, folder), run.training.rows), load_glue_test(task, folder)
            if not rows.train:
                raise DataError(f"'{task}' has no training rows")
            loaded[task] = rows, test
        except (DataError, HubError) as error:
            if tasks:
                raise
            run.progress.message(f"{task} is left out: {error}")
    if not loaded:
        raise DataError("no task has both training rows and a test set; name the folder that has them: --data FOLDER")
    return loaded


def _models(run: ReproductionRun, task: str, rows: TaskData[Any], tasks: int) -> dict[str, str]:
    """The teacher and the students of a task, as folders; those that exist are not made again."""
    from ternarybert.training.checkpoints import work_folder
    from ternarybert.training.ternarize import ternarize

    teacher = run.teacher(task, rows)
    models = {TEACHER: teacher}
    for name, bits in STUDENTS.items():
        output = run.folder / task / name
        models[name] = str(output)
        if output.exists():
            continue
        run.progress.message(f"{task}: {name}")
        augment = run.augment if getattr(rows.task, "augment", None) else None
        options = replace(_options(run, tasks), resume=work_folder(output).exists())
        with run.progress.finetuning(task) as callback:
            chosen = replace(options, callbacks=() if callback is None else (callback,))
            ternarize(teacher, rows, output, run.recipe.with_bits(bits), chosen, augment=augment)
    return models


def _options(run: ReproductionRun, tasks: int) -> TrainingOptions:
    """The options of one student, with its share of the time."""
    import time

    from ternarybert.training.time_budget import TimeBudget

    training, minutes = run.training, run.training.minutes_per_cell
    if training.budget is not None:
        minutes = training.budget / (tasks * len(STUDENTS))
    now = time.process_time if training.processor_time else time.monotonic
    budget = None if minutes is None else TimeBudget(60 * minutes, now=now)
    return replace(training.training_options(), seed=training.seeds[0], time_budget=budget)


def _predictions(folder: str, test: TaskData[ClassificationTask], run: ReproductionRun) -> dict[str, list[str]]:
    from ternarybert.training.evaluate import predict_all

    fitted, predictions = predict_all(folder, test, device=run.training.training_options().device)
    return as_submitted(test.task, fitted.task, predictions)
