"""Compare methods on one teacher, or reproduce a table of the paper: a grid of students, trained one after another.

    from ternarybert import compare_methods, load_table, reproduce

    compare_methods("my-teacher", load_table("reviews.csv"), "compared")
    reproduce("distillation", "reproduced", tasks=["rte"], data="glue")

A grid is a list of cells; a cell is a method at some bits with a seed (`compare.cells`). Every cell's result is a file
in the output folder, so a run that was stopped resumes, and a finished cell is never run twice. The folder also gets a
table (`table.md`, `table.json`) after every cell and a figure of size against score at the end.

torch is imported when a grid runs, not when this module is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternarybert.compare.cells import METHOD_INFO, Cell, make_cells, with_seeds
from ternarybert.compare.paper import EXPERIMENTS, GRIDS, METRICS, Experiment
from ternarybert.errors import DataError, HubError, OptionError, name_missing_extras, suggest
from ternarybert.recipe import PRESETS, Recipe
from ternarybert.storage import claim_file, lock_output, named_folder, replace_file, write_json

if TYPE_CHECKING:
    from ternarybert.augment.training_data import Augmentation
    from ternarybert.compare.run import Comparison, ComparisonFolder
    from ternarybert.compare.tables import ComparisonRow, PaperComparison
    from ternarybert.data import TaskData
    from ternarybert.training.options import TrainingOptions

    AnyData = TaskData[Any]

BERT_BASE = "google-bert/bert-base-uncased"
SOURCES = ("distilbert", "albert", "pretrained")  # pre-trained models that some methods start from
_DEFAULT_MINUTES = 10.0  # per student of a comparison, if no limit is given


@dataclass(frozen=True)
class GridTraining:
    """How every student of a grid is trained. At most one of `minutes_per_cell`, `budget` and `max_steps` is given."""

    minutes_per_cell: float | None = None  # training time of each student
    budget: float | None = None  # minutes that all students share equally
    max_steps: int | None = None  # steps of each student, however long they take
    processor_time: bool = False  # count CPU time instead of wall-clock time
    rows: int | None = None  # train on this many rows, a random sample that is the same in every run
    seeds: tuple[int, ...] = (42,)  # a student is trained for each
    batch_size: int | None = None  # of all methods; None: as their recipes say
    learning_rate: float | None = None  # likewise
    sources: Mapping[str, str] = field(default_factory=dict)  # models by the names in `SOURCES`
    options: TrainingOptions | None = None  # device, precision and so on

    def __post_init__(self) -> None:
        limits = {
            "--minutes-per-cell": self.minutes_per_cell,
            "--budget": self.budget,
            "--max-steps": self.max_steps,
        }
        given = {name: value for name, value in limits.items() if value is not None}
        if len(given) > 1:
            raise OptionError(f"{' and '.join(given)} exclude each other; give one of them")
        for name, value in given.items():
            if value <= 0:
                raise OptionError(f"{name} must be greater than 0; got {value:g}")
        for name in self.sources:
            if name not in SOURCES:
                raise OptionError(f"unknown source '{name}'{suggest(name, SOURCES)}")

    @property
    def is_limited(self) -> bool:
        """Whether time or steps are limited, rather than epochs."""
        return any(limit is not None for limit in (self.minutes_per_cell, self.budget, self.max_steps))

    @property
    def limit(self) -> str | None:
        """The limit as a sentence; None for the recipe's epochs."""
        if self.minutes_per_cell is not None:
            return f"Every student was trained for {self.minutes_per_cell:g} minutes"
        if self.budget is not None:
            return f"All students shared {self.budget:g} minutes of training"
        return None if self.max_steps is None else f"Every student was trained for {self.max_steps} steps"

    @property
    def schedule(self) -> dict[str, object]:
        """Fields of every method's recipe that are replaced."""
        fields = {"schedule.batch_size": self.batch_size, "schedule.learning_rate": self.learning_rate}
        return {name: value for name, value in fields.items() if value is not None}

    def training_options(self) -> TrainingOptions:
        """The options of a single run."""
        from ternarybert.training.options import TrainingOptions

        return replace(self.options or TrainingOptions(), max_steps=self.max_steps or -1)


class GridProgress:
    """Called while a grid runs. This one ignores all calls; subclass it to show them."""

    def message(self, text: str) -> None:
        """Something worth a line, such as a task without data."""

    def task(self, data: AnyData) -> None:
        """`reproduce` starts with a task."""

    def finetuning(self, task: str) -> AbstractContextManager[Any]:
        """Around the fine-tuning of a task's teacher; gives a Trainer callback or None."""
        return nullcontext()

    def teacher_outputs(self, share: float) -> None:
        """Computing the teacher's outputs for all rows: 0.5 is half done, 1.0 all."""

    def student(self, cell: Cell, number: int, count: int) -> AbstractContextManager[Any]:
        """Around one student, `number` of `count`; gives a Trainer callback or None."""
        return nullcontext()


@dataclass(frozen=True)
class ComparisonResult:
    """The table of a comparison: the teacher's row, then one for each method and bits."""

    folder: Path
    task: str
    metric: str  # that models are chosen by
    metrics: list[str]
    rows: list[ComparisonRow]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        rows = [asdict(row) for row in self.rows]
        return {
            "task": self.task,
            "metric": self.metric,
            "metrics": self.metrics,
            "rows": rows,
            "output": str(self.folder),
        }


@dataclass(frozen=True)
class Reproduction:
    """A table of the paper beside our own figures."""

    folder: Path
    experiment: Experiment
    tasks: list[str]
    lines: list[PaperComparison]
    notes: list[str]  # how far the figures can be compared

    @property
    def markdown(self) -> str:
        """The table as a document."""
        from ternarybert.compare.tables import reproduce_markdown

        return reproduce_markdown(self.experiment, self.lines, self.tasks, self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        from ternarybert.compare.tables import as_dict

        return as_dict(self.experiment, self.lines, self.notes)


def choose_cells(preset: str | None = None, methods: Sequence[str] = (), bits: Sequence[str] = ()) -> list[Cell]:
    """The cells of a preset grid or of some methods; by default of all methods that need no other model."""
    if preset is not None and (methods or bits):
        raise OptionError(f"--preset {preset} is a whole grid; give either --preset or --method with --bits")
    if preset is not None and preset not in GRIDS:
        raise OptionError(f"unknown preset '{preset}'{suggest(preset, GRIDS)}")
    if bits and not methods:
        raise OptionError(f"--bits {bits[0]} needs --method")
    return make_cells(methods, bits) if methods else list(GRIDS[preset or "all"])


def with_time(training: GridTraining | None) -> GridTraining:
    """The training of a comparison: ten minutes per student if nothing is limited."""
    training = training or GridTraining()
    return training if training.is_limited else replace(training, minutes_per_cell=_DEFAULT_MINUTES)


@name_missing_extras()
def compare_methods(
    teacher: str | Path,
    data: AnyData,
    output: str | Path,
    cells: Sequence[Cell] | None = None,
    *,
    recipe: Recipe | None = None,
    training: GridTraining | None = None,
    force: bool = False,
    progress: GridProgress | None = None,
) -> ComparisonResult:
    """Train and measure students of a fine-tuned teacher by several methods, each with the same time.

    `cells` come from `choose_cells`; by default all methods that need nothing but the teacher. `recipe` is that of our
    own method. Without a limit in `training` every student trains for ten minutes. `force` discards what an earlier
    comparison left in the output folder.
    """
    from ternarybert.compare.run import ComparisonFolder

    training, progress = with_time(training), progress or GridProgress()
    cells = with_seeds(choose_cells() if cells is None else cells, training.seeds)
    comparison = _comparison(str(teacher), recipe or PRESETS["default"], training, training.sources)
    results, data = ComparisonFolder(Path(output)), sample_rows(data, training.rows)
    with lock_output(named_folder(Path(output))):
        row, rows = _run(comparison, data, cells, results, progress, force=force)
    return ComparisonResult(Path(output), row["task"], row["metric"], list(row["scores"]), rows)


@name_missing_extras()
def reproduce(
    experiment: str,
    output: str | Path,
    *,
    model: str | Path = BERT_BASE,
    tasks: Sequence[str] = (),
    data: str | Path | None = None,
    teachers: Mapping[str, str | Path] | None = None,
    recipe: Recipe | None = None,
    training: GridTraining | None = None,
    augment: Augmentation | None = None,
    force: bool = False,
    progress: GridProgress | None = None,
) -> Reproduction:
    """Run an experiment of the paper, by its name in `compare.paper.EXPERIMENTS`, and put its figures beside ours.

    For every task a teacher is fine-tuned from `model`, unless `teachers` names one or an earlier run made it. `tasks`
    are by default all that the paper's table has; those without data are left out. `data` is the folder of the tasks;
    without one they come from the hub. With `augment`, distilled students are trained for one epoch on augmented rows
    of the tasks on which the paper does so, which are all but STS-B, MNLI and QQP.
    """
    if experiment not in EXPERIMENTS:
        raise OptionError(f"unknown experiment '{experiment}'{suggest(experiment, EXPERIMENTS)}")
    for task in tasks:
        if task not in METRICS:
            raise OptionError(f"unknown task '{task}'{suggest(task, METRICS)}")
    work = ReproductionRun(
        EXPERIMENTS[experiment],
        str(model),
        Path(output),
        {task: str(folder) for task, folder in (teachers or {}).items()},
        recipe or PRESETS["paper"],
        training or GridTraining(),
        progress or GridProgress(),
        augment,
    )
    with lock_output(named_folder(Path(output))):
        result = work.run(work.load(tasks, data), force=force)
        _write(result, experiment)
        return result


@dataclass(frozen=True)
class ReproductionRun:
    """An experiment with all that decides its result but the data."""

    experiment: Experiment
    model: str
    folder: Path
    teachers: Mapping[str, str]
    recipe: Recipe
    training: GridTraining
    progress: GridProgress
    augment: Augmentation | None = None

    def load(self, tasks: Sequence[str], folder: str | Path | None) -> dict[str, AnyData]:
        """The data of all tasks; one that cannot be read is left out unless it was named."""
        from ternarybert.data import load_task

        loaded: dict[str, AnyData] = {}
        for task in tasks or self.experiment.tasks:
            try:
                data = sample_rows(load_task(task, folder), self.training.rows)
                if not data.train:
                    raise DataError(f"'{task}' has no training rows")
            except (DataError, HubError) as error:
                if tasks:
                    raise
                self.progress.message(f"{task} is left out: {error}")
                if isinstance(error, HubError):  # the other tasks would not be found there either
                    break
                continue
            loaded[task] = data
        if not loaded:
            names = ", ".join(self.experiment.tasks)
            raise DataError(f"none of {names} could be read; name the folder that has them: --data FOLDER")
        return loaded

    def run(self, data_of: Mapping[str, AnyData], *, force: bool) -> Reproduction:
        """Train all students of all tasks and put their figures beside the paper's."""
        from ternarybert.compare.tables import compare_with_paper, scale_notes
        from ternarybert.training.models import load_config

        measured: dict[str, list[ComparisonRow]] = {}
        configs, counts, more_rows = {}, {}, {}
        for task, data in data_of.items():
            self.progress.task(data)
            counts[task] = len(data.train or ())
            teacher = self.teacher(task, data)
            configs[self.teachers.get(task, self.model)] = load_config(teacher).to_dict()
            more = self.augmented(task, data, teacher)
            if more is not None:
                more_rows[task] = len(more.train or ())
            measured[task] = self._students(task, data, more, teacher, len(data_of), force=force)
        notes = scale_notes(configs, counts, self.training.limit, more_rows)
        return Reproduction(
            self.folder, self.experiment, list(measured), compare_with_paper(self.experiment, measured), notes
        )

    def _students(
        self, task: str, data: AnyData, more: AnyData | None, teacher: str, tasks: int, *, force: bool
    ) -> list[ComparisonRow]:
        """The teacher's row and those of all students; distilled ones are trained on `more`, if there is more."""
        from ternarybert.compare.run import ComparisonFolder

        usual = {name: kind.source for name, kind in METHOD_INFO.items() if kind.source is not None}
        sources = {**usual, "pretrained": self.model, **self.training.sources}
        comparison = _comparison(teacher, self.recipe, self.training, sources, tasks)
        cells, folder = with_seeds(self.experiment.cells, self.training.seeds), self.folder / task
        others = cells
        rows: list[ComparisonRow] = []
        if more is not None:  # in a folder of their own: students of other rows cannot be compared with these
            others = [cell for cell in cells if not cell.is_distilled]
            once = replace(comparison, recipe=self.recipe.override({"schedule.stretch": 1.0}))
            distilled, results = [c for c in cells if c.is_distilled], ComparisonFolder(folder / "students-augmented")
            rows = _run(once, more, distilled, results, self.progress, force=force)[1]
        if others:
            made = _run(comparison, data, others, ComparisonFolder(folder / "students"), self.progress, force=force)[1]
            rows = [*made, *rows[1:]]  # the teacher's row comes first in both
        return rows

    def augmented(self, task: str, data: AnyData, teacher: str) -> AnyData | None:
        """The data with variants of its rows; None if they are not wanted, or the paper does not augment this task."""
        if self.augment is None or not getattr(data.task, "augment", None):
            return None
        from functools import partial

        from ternarybert.augment.training_data import augmented, teacher_embeddings
        from ternarybert.training.heads import head_of
        from ternarybert.training.models import load_tokenizer, load_trained

        self.progress.message(f"{task}: augmenting")
        network = load_trained(teacher, head_of(data.task))
        own = partial(teacher_embeddings, teacher, network, load_tokenizer(teacher))
        options = self.training.training_options()
        return augmented(data, self.augment, own, options.seed, options.device)[0]

    def teacher(self, task: str, data: AnyData) -> str:
        """The teacher of a task: the one that was named, or fine-tuned, unless an earlier run did."""
        return self.teachers.get(task) or self._finetuned(task, data)

    def _finetuned(self, task: str, data: AnyData) -> str:
        from ternarybert.training.checkpoints import work_folder
        from ternarybert.training.finetune import finetune

        folder = self.folder / task / "teacher"
        self._check_origin(folder, data)
        if not folder.exists():
            self.progress.message(f"{task}: fine-tuning the teacher")
            options = replace(self.training.training_options(), resume=work_folder(folder).exists(), max_steps=-1)
            with self.progress.finetuning(task) as callback:
                callbacks = () if callback is None else (callback,)
                finetune(self.model, data, folder, None, replace(options, callbacks=callbacks))
        return str(folder)

    def _check_origin(self, folder: Path, data: AnyData) -> None:
        """Refuse a teacher of another model or other rows: its figures would be taken for this model's."""
        from ternarybert.training.options import TrainingOptions, run_plan

        whole = run_plan(self.model, data, self.recipe, TrainingOptions())
        origin = {name: whole[name] for name in ("model", "data")}
        claim_file(folder.with_name("teacher.json"), origin, what=folder, advice="choose another --output")


def sample_rows(data: AnyData, count: int | None) -> AnyData:
    """The data with this many training rows, the same ones every time."""
    if count is None or data.train is None or count >= len(data.train):
        return data
    return replace(data, train=data.task.sample(data.train, count))


def _comparison(
    teacher: str, recipe: Recipe, training: GridTraining, sources: Mapping[str, str], tasks: int = 1
) -> Comparison:
    from ternarybert.compare.run import Comparison

    return Comparison(
        teacher,
        recipe,
        training.schedule,
        training.minutes_per_cell,
        None if training.budget is None else training.budget / tasks,
        processor_time=training.processor_time,
        sources=sources,
        options=training.training_options(),
    )


def _run(
    comparison: Comparison,
    data: AnyData,
    cells: Sequence[Cell],
    results: ComparisonFolder,
    progress: GridProgress,
    *,
    force: bool,
) -> tuple[dict[str, Any], list[ComparisonRow]]:
    """Run the cells and keep table and figure up to date; the teacher's row, and the rows of these cells."""
    from ternarybert.compare.run import compare as run_cells
    from ternarybert.compare.tables import draw, require_matplotlib, rows_of, write

    require_matplotlib()
    done = sum(results.is_done(cell, comparison.source(cell)) for cell in cells) if not force else 0
    if done:
        progress.message(f"{done} of {len(cells)} are already done")

    def write_table(teacher: dict[str, Any]) -> None:
        write(results, rows_of(results, results.with_others(cells), teacher), teacher)

    teacher = run_cells(
        comparison,
        data,
        cells,
        results,
        progress.student,
        write_table,
        force=force,
        teacher_progress=progress.teacher_outputs,
    )
    write_table(teacher)
    rows = rows_of(results, results.with_others(cells), teacher)
    title = f"{teacher['task']}: size and {teacher['metric']} of the last student"
    draw(rows, teacher["metric"], title, results.folder / "figure.svg", results.folder / "figure.png")
    return teacher, rows_of(results, cells, teacher)


def _write(result: Reproduction, name: str) -> None:
    with replace_file(result.folder / f"{name}.md") as draft:
        draft.write_text(result.markdown, encoding="utf-8")
    write_json(result.folder / f"{name}.json", result.to_dict())
