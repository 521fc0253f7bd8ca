"""The command `compare`: other methods on the user's own model and data, beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternarybert.cli.console import (
    RERUN,
    STOPPED,
    ProgressDisplay,
    announce_download,
    duration,
    handle_errors,
    make_console,
    make_table,
    print_json,
    quiet,
)
from ternarybert.cli.data import describe, load_data
from ternarybert.cli.options import OUTPUT, GridOptions, OptionGroup, TrainingDataOptions, option, with_options
from ternarybert.compare.cells import METHOD_INFO, Cell, with_seeds
from ternarybert.compare.grid import GridProgress, GridTraining, choose_cells, compare_methods, with_time
from ternarybert.compare.paper import GRIDS
from ternarybert.recipe import PRESETS, Recipe

if TYPE_CHECKING:
    from rich.console import Console

    from ternarybert.cli.training_display import TrainingDisplay
    from ternarybert.compare.tables import ComparisonRow
    from ternarybert.data import TaskData

EXAMPLE = (
    "Example: ternarybert compare my-teacher --task mrpc --data glue --minutes-per-cell 10\n\n"
    "Some methods: ternarybert compare my-teacher --train reviews.csv --method ternarybert --method qbert --budget 60"
)
_METHODS = "Methods"


class MethodOptions(OptionGroup):
    """What is compared."""

    preset: str | None = option(_METHODS, f"Preset list of methods: {', '.join(GRIDS)}. By default all.", "NAME")
    method: list[str] | None = option(
        _METHODS, f"Method to run, instead of a preset: {', '.join(METHOD_INFO)}. Repeatable.", "NAME"
    )
    bits: list[str] | None = option(
        _METHODS,
        "Bits of weights, word embeddings and activations of --method, such as 2-8-8, 2/3-8-8 or PQ. Repeatable. "
        "By default the method's usual ones.",
        "W-E-A",
    )
    recipe: str = option(
        _METHODS,
        f"Recipe of TernaryBERT itself: {', '.join(PRESETS)}, or a YAML file.",
        "NAME|FILE",
        default="default",
    )
    output: Path | None = option(
        OUTPUT, "Folder to write results to. By default TEACHER-compared.", "FOLDER", flags="--output -o"
    )


@with_options
def compare(
    teacher: Annotated[str, typer.Argument(help="Fine-tuned model: a folder or a hub id.", metavar="TEACHER")],
    *,
    data: TrainingDataOptions,
    methods: MethodOptions,
    grid: GridOptions,
) -> None:
    """Compare ways to compress a model: Q-BERT, Q8BERT, GOBO, Quant-Noise and others beside TernaryBERT.

    Every student trains for the same time, ten minutes by default, and is then scored and measured. The result is a
    table and a figure of size against score. You can stop at any time: the same command resumes.
    """
    folder = methods.output or _default_output(teacher)
    console = make_console(errors=grid.as_json)
    with handle_errors(stopped=STOPPED, resume=RERUN):
        cells = choose_cells(methods.preset, methods.method or [], methods.bits or [])
        training, recipe = with_time(grid.training()), Recipe.load(methods.recipe)
        announce_download(teacher)
        with quiet():
            from ternarybert.training.models import label_names, trained_kind

            rows = load_data(data, data.train, lambda: label_names(teacher), kind=trained_kind(teacher))
            console.print(describe(rows))
            _show_time(console, cells, training)
            training = replace(training, options=grid.run_options())
            with ConsoleGridProgress(console) as progress:
                result = compare_methods(
                    teacher,
                    rows,
                    folder,
                    cells,
                    recipe=recipe,
                    training=training,
                    force=grid.force,
                    progress=progress,
                )
    _show_rows(console, result.rows, result.metrics)
    console.print(f"The table is in {folder / 'table.md'}, the figure in {folder / 'figure.svg'}.", soft_wrap=True)
    if grid.as_json:
        print_json(result.to_dict())


class ConsoleGridProgress(GridProgress):
    """Shows a grid on a console: a line and a progress display for each student."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._outputs = ProgressDisplay(console, "computing the teacher's outputs")

    def __enter__(self) -> ConsoleGridProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self._outputs.stop()

    def message(self, text: str) -> None:
        """Print a line."""
        self.console.print(text, soft_wrap=True)

    def task(self, data: TaskData[Any]) -> None:
        """Print what the data of a task is."""
        self.console.print(describe(data))

    def finetuning(self, task: str) -> TrainingDisplay:
        """Show the fine-tuning of a teacher."""
        from ternarybert.cli.training_display import TrainingDisplay

        return TrainingDisplay(self.console, "fine-tuning")

    def teacher_outputs(self, share: float) -> None:
        """Show how far the teacher is."""
        self._outputs.update(share, 1.0)

    @contextmanager
    def student(self, cell: Cell, number: int, count: int) -> Iterator[Any]:
        """Show the training of a student."""
        from ternarybert.cli.training_display import TrainingDisplay

        seed = f", seed {cell.seed}" if cell.seed != 42 else ""
        self.console.print(f"{number} of {count}: {cell.label} {cell.bits}{seed}")
        with TrainingDisplay(self.console, cell.method) as progress:
            yield progress


def _default_output(teacher: str) -> Path:
    """Beside the teacher's folder, or here for a model from the hub."""
    path = Path(teacher)
    return Path(f"{path if path.is_dir() else path.name}-compared")


def _show_time(console: Console, cells: Sequence[Cell], training: GridTraining) -> None:
    count = sum(cell.trains for cell in with_seeds(cells, training.seeds))
    minutes = training.budget or (training.minutes_per_cell or 0) * count
    if minutes:
        each = f"{count} students train for {duration(60 * minutes / max(1, count))} each"
        console.print(f"{each}: {duration(60 * minutes)} in total. You can stop at any time: {RERUN}.")


def _show_rows(console: Console, rows: Sequence[ComparisonRow], metrics: Sequence[str]) -> None:
    from ternarybert.compare.tables import figures

    table = make_table("method", "W-E-A", "MiB", "smaller", *metrics, "agreement", "steps", "minutes", left=2)
    for row in rows:
        if row.failed is None:
            table.add_row(row.label, row.bits, *figures(row, metrics))
    console.print(table)
    for row in rows:
        if row.failed is not None:
            console.print(f"not run: {row.label} {row.bits}: {row.failed}", soft_wrap=True)
