"""The command `compare`: other methods on the user's own model and data, beside ours.

MERGED-DOCS:
What `compare` and `reproduce` share: options of a grid of students, and how it looks while it runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternarybert.cli.console import job, make_console, note_hub, quiet
from ternarybert.cli.options import DataOptions, TrainFile, check_device, describe, load_data, option, with_options
from ternarybert.compare.cells import make_cells, with_seeds
from ternarybert.compare.paper import GRIDS
from ternarybert.errors import OptionError, suggest
from ternarybert.recipe import PRESETS, Recipe

if TYPE_CHECKING:
    from rich.console import Console

    from ternarybert.compare.cells import Cell
    from ternarybert.compare.run import Comparison, ComparisonFolder
    from ternarybert.compare.tables import Row
    from ternarybert.data import TaskData
    from ternarybert.training.options import TrainingOptions

_TIME, _TRAINING, _OUTPUT = "Time", "Training", "Output"


@dataclass(frozen=True)
class GridOptions:
    """How each student of a grid is trained."""

    minutes_per_cell: Annotated[
        float | None,
        option("--minutes-per-cell", help="Of every student that trains, all in all.", panel=_TIME, metavar="MINUTES"),
    ] = None
    budget: Annotated[
        float | None,
        option("--budget", help="Of all of them together, shared out equally.", panel=_TIME, metavar="MINUTES"),
    ] = None
    max_steps: Annotated[
        int | None,
        option(
            "--max-steps", help="So many steps for each, however long it takes.", panel=_TIME, metavar="STEPS", min=1
        ),
    ] = None
    processor_time: Annotated[
        bool,
        option("--processor-time", help="Minutes of the processor: fair on a busy machine.", panel=_TIME),
    ] = False
    rows: Annotated[
        int | None,
        option("--rows", help="Train on so many rows, drawn at random once.", panel=_TRAINING, metavar="ROWS", min=1),
    ] = None
    seed: Annotated[
        list[int] | None, option("--seed", help="Repeatable: a student for each; else 42.", panel=_TRAINING, min=0)
    ] = None
    batch_size: Annotated[
        int | None, option("--batch-size", help="Rows per step, of all methods.", panel=_TRAINING, metavar="ROWS")
    ] = None
    learning_rate: Annotated[
        float | None,
        option("--learning-rate", help="Of all methods, instead of their own.", panel=_TRAINING, metavar="RATE"),
    ] = None
    source: Annotated[
        list[str] | None,
        option(
            "--source",
            help="Pre-trained models: distilbert=, albert=, pretrained=. Repeatable.",
            panel=_TRAINING,
            metavar="NAME=MODEL",
        ),
    ] = None
    device: Annotated[
        str | None, option("--device", help="cpu or cuda; by default cuda where there is one.", panel=_TRAINING)
    ] = None
    bf16: Annotated[bool, option("--bf16", help="Compute in bfloat16 where it is safe.", panel=_TRAINING)] = False
    threads: Annotated[int | None, option("--threads", help="Processor threads.", panel=_TRAINING, min=1)] = None
    force: Annotated[bool, option("--force", help="Drop what an earlier run left in the folder.", panel=_OUTPUT)] = (
        False
    )
    as_json: Annotated[bool, option("--json", help="Print the result as one JSON object, last.", panel=_OUTPUT)] = False

    @property
    def seeds(self) -> list[int]:
        """Each seed once."""
        return list(dict.fromkeys(self.seed or [42]))

    @property
    def is_timed(self) -> bool:
        """Whether anything was said about time."""
        return any(said is not None for said in (self.minutes_per_cell, self.budget, self.max_steps))

    def check(self) -> None:
        """Refuse what contradicts itself."""
        said = {"--minutes-per-cell": self.minutes_per_cell, "--budget": self.budget, "--max-steps": self.max_steps}
        given = [name for name, value in said.items() if value is not None]
        if len(given) > 1:
            raise OptionError(f"{' and '.join(given)} cannot go together; give one of them")
        for name in given:
            if (said[name] or 0) <= 0:
                raise OptionError(f"{name} must be more than 0")

    def effort(self) -> str | None:
        """What every student was given, in words; None for the recipe's epochs."""
        if self.minutes_per_cell is not None:
            return f"Every student had {self.minutes_per_cell:g} minutes"
        if self.budget is not None:
            return f"All students that train shared {self.budget:g} minutes"
        return None if self.max_steps is None else f"Every student took {self.max_steps} steps"

    def schedule(self) -> dict[str, object]:
        """What was said about the schedule, as fields of a recipe."""
        said = {"batch_size": self.batch_size, "learning_rate": self.learning_rate}
        return {f"schedule.{name}": value for name, value in said.items() if value is not None}

    def sources(self, usual: Mapping[str, str] | None = None) -> dict[str, str]:
        """Pre-trained models by name."""
        found = dict(usual or {})
        for said in self.source or []:
            name, equals, model = said.partition("=")
            if not equals or name not in ("distilbert", "albert", "pretrained"):
                raise OptionError(f"--source takes distilbert=MODEL, albert=MODEL or pretrained=MODEL; got '{said}'")
            found[name] = model
        return found

    def settings(self) -> TrainingOptions:
        """The options in the words of the jobs."""
        import torch

        from ternarybert.training.options import TrainingOptions

        check_device(self.device)
        if self.threads is not None:
            torch.set_num_threads(self.threads)
        return TrainingOptions(device=self.device, bf16=self.bf16, max_steps=self.max_steps or -1)


def fewer_rows(data: TaskData[Any], count: int | None) -> TaskData[Any]:
    """The data with so many training rows, the same ones every time."""
    if count is None or data.train is None or count >= len(data.train):
        return data
    return replace(data, train=data.task.sample(data.train, count))


def run_grid(
    comparison: Comparison,
    data: TaskData[Any],
    cells: Sequence[Cell],
    place: ComparisonFolder,
    console: Console,
    *,
    force: bool = False,
) -> tuple[dict[str, Any], list[Row]]:
    """Run the cells with a bar for each, and keep table and figure up to date; the teacher's row and all rows."""
    from ternarybert.compare.figure import require_matplotlib
    from ternarybert.compare.run import compare
    from ternarybert.compare.tables import rows_of, write

    require_matplotlib()
    done = sum(place.is_done(cell, comparison.source(cell)) for cell in cells) if not force else 0
    if done:
        console.print(f"{done} of {len(cells)} are done already")

    def after(teacher: dict[str, Any]) -> None:
        write(place, rows_of(place, place.with_others(cells), teacher), teacher)

    with _asking(console) as asking:
        teacher = compare(comparison, data, cells, place, _watch(console), after, force=force, teacher_progress=asking)
    return teacher, finish(place, cells, teacher)


def finish(place: ComparisonFolder, cells: Sequence[Cell], teacher: dict[str, Any]) -> list[Row]:
    """Table and figure of all that is there; returns the rows that were asked for."""
    from ternarybert.compare.figure import draw
    from ternarybert.compare.tables import rows_of, write

    rows = rows_of(place, place.with_others(cells), teacher)
    write(place, rows, teacher)
    title = f"{teacher['task']}: size and {teacher['metric']} of the last student"
    draw(rows, teacher["metric"], title, place.folder / "figure.svg", place.folder / "figure.png")
    return rows_of(place, cells, teacher)


def show_rows(console: Console, rows: Sequence[Row], metrics: Sequence[str]) -> None:
    """The table for people."""
    from rich import box
    from rich.table import Table

    from ternarybert.compare.tables import figures

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i, name in enumerate(("method", "W-E-A", "MiB", "smaller", *metrics, "agreement", "steps", "minutes")):
        table.add_column(name, justify="right" if i > 1 else "left")
    for row in rows:
        if row.failed is None:
            table.add_row(row.label, row.bits, *figures(row, metrics))
    console.print(table)
    for row in rows:
        if row.failed is not None:
            console.print(f"not run: {row.label} {row.bits}: {row.failed}", soft_wrap=True)


@contextmanager
def _asking(console: Console) -> Iterator[Any]:
    """Says how far the teacher is with all rows, which can take minutes; silent unless it is asked."""
    status = console.status("")

    def tell(share: float) -> None:
        status.start()
        status.update(f"asking the teacher about all rows: {share:.0%}")
        if share == 1.0:
            status.stop()  # a bar may follow

    try:
        yield tell
    finally:
        status.stop()


def _watch(console: Console) -> Any:
    @contextmanager
    def watch(cell: Cell, number: int, count: int) -> Iterator[Any]:
        from ternarybert.cli.console import ShowProgress

        seed = f", seed {cell.seed}" if cell.seed != 42 else ""
        console.print(f"{number} of {count}: {cell.label} {cell.bits}{seed}")
        with ShowProgress(console, cell.method) as progress:
            yield progress

    return watch


def default_output(model: str, name: str) -> Path:
    """Where the result goes: beside a folder, here for a model of the hub."""
    path = Path(model)
    return Path(f"{path if path.is_dir() else path.name}-{name}")


COMPARE_EXAMPLE = (
    "Example: ternarybert compare my-teacher --task mrpc --data glue --minutes-per-cell 10\n\n"
    "Some methods: ternarybert compare my-teacher --train reviews.csv --method ternarybert --method qbert --budget 60"
)
_GRID, _MINUTES = "What is compared", 10.0
_STOPPED = "stopped; the same command goes on from here"


@with_options
def compare(
    teacher: Annotated[str, typer.Argument(help="A fine-tuned model: a folder or a hub id.", metavar="TEACHER")],
    *,
    train: TrainFile = None,
    data: DataOptions,
    preset: Annotated[
        str | None, option("--preset", help=f"A grid: {', '.join(GRIDS)}.", panel=_GRID, metavar="NAME")
    ] = None,
    method: Annotated[
        list[str] | None, option("--method", help="Or some methods. Repeatable.", panel=_GRID, metavar="NAME")
    ] = None,
    bits: Annotated[
        list[str] | None,
        option("--bits", help="Their bits, else the usual: 2-8-8, 2/3-8-8, PQ. Repeatable.", panel=_GRID),
    ] = None,
    recipe: Annotated[
        str, option("--recipe", help=f"Of our own: {', '.join(PRESETS)}, or a YAML file.", panel=_GRID)
    ] = "default",
    grid: GridOptions,
    output: Annotated[
        Path | None,
        option("--output", "-o", help="Folder; else TEACHER-compared.", panel="Output", metavar="FOLDER"),
    ] = None,
) -> None:
    """Compare ways to make a model smaller: Q-BERT, Q8BERT, GOBO, Quant-Noise and others beside ours.

    Every student has the same time, ten minutes unless you say otherwise, and is then scored and measured. The result
    is a table and a figure of size against score. Can be stopped and started at any time; what is done is not done
    again.
    """
    place = output or default_output(teacher, "compared")
    console = make_console(errors=grid.as_json)
    with job(stopped=_STOPPED):
        grid.check()
        cells = with_seeds(choose(preset, method or [], bits or []), grid.seeds)
        chosen, sources = Recipe.load(recipe), grid.sources()
        note_hub(teacher)
        with quiet():
            result = _compare(teacher, train, data, cells, chosen, sources, grid, place, console)
    show_rows(console, result["rows"], result["metrics"])
    console.print(f"The table is in {place / 'table.md'}, the figure in {place / 'figure.svg'}.")
    if grid.as_json:
        rows = [asdict(row) for row in result["rows"]]
        typer.echo(json.dumps(result | {"rows": rows, "output": str(place)}))


def choose(preset: str | None, methods: list[str], bits: list[str]) -> list[Cell]:
    """The cells that were asked for; all methods where nothing was said."""
    if preset is not None and (methods or bits):
        raise OptionError("--preset is a whole grid; give it, or --method and --bits")
    if preset is not None and preset not in GRIDS:
        raise OptionError(f"unknown preset '{preset}'{suggest(preset, GRIDS)}")
    if bits and not methods:
        raise OptionError("--bits goes with --method")
    return make_cells(methods, bits) if methods else GRIDS[preset or "all"]


def _compare(
    teacher: str,
    train: Path | None,
    data: DataOptions,
    cells: list[Cell],
    recipe: Recipe,
    sources: dict[str, str],
    grid: GridOptions,
    folder: Path,
    console: Console,
) -> dict[str, Any]:
    from ternarybert.compare.run import Comparison, ComparisonFolder
    from ternarybert.training.models import label_names

    rows = fewer_rows(load_data(data, train, lambda: label_names(teacher)), grid.rows)
    minutes = grid.minutes_per_cell if grid.is_timed else _MINUTES
    comparison = Comparison(
        teacher,
        recipe,
        grid.schedule(),
        minutes,
        grid.budget,
        processor_time=grid.processor_time,
        sources=sources,
        options=grid.settings(),
    )
    console.print(describe(rows))
    _say_time(console, cells, minutes, grid.budget)
    found, table = run_grid(comparison, rows, cells, ComparisonFolder(folder), console, force=grid.force)
    return {
        "task": found["task"],
        "metric": found["metric"],
        "metrics": list(found["scores"]),
        "rows": table,
    }


def _say_time(console: Console, cells: list[Cell], minutes: float | None, budget: float | None) -> None:
    from ternarybert.cli.console import duration

    count = sum(cell.trains for cell in cells)
    total = budget or (minutes or 0) * count
    if total:
        each = f"{count} students train, {duration(60 * total / max(1, count))} each"
        console.print(f"{each}: {duration(60 * total)} in all. Stop at any time: {_STOPPED.partition('; ')[2]}.")
