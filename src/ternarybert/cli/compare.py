"""The command `compare`: other methods on the user's own model and data, beside ours."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternarybert.cli.data import DataOptions, TrainFile, describe, load_data
from ternarybert.cli.grid import GridOptions, default_output, fewer_rows, run_grid, show_rows
from ternarybert.cli.job import job, make_console, note_hub, quiet
from ternarybert.cli.options import option, with_options
from ternarybert.compare.cells import make_cells, with_seeds
from ternarybert.compare.grids import GRIDS
from ternarybert.errors import OptionError, suggest
from ternarybert.recipe import PRESETS, Recipe

if TYPE_CHECKING:
    from rich.console import Console

    from ternarybert.compare.cells import Cell

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
    from ternarybert.compare.place import Place
    from ternarybert.compare.run import Comparison
    from ternarybert.distill.models import label_names

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
        settings=grid.settings(),
    )
    console.print(describe(rows))
    _say_time(console, cells, minutes, grid.budget)
    found, table = run_grid(comparison, rows, cells, Place(folder), console, force=grid.force)
    return {
        "task": found["task"],
        "metric": found["metric"],
        "metrics": list(found["scores"]),
        "rows": table,
    }


def _say_time(console: Console, cells: list[Cell], minutes: float | None, budget: float | None) -> None:
    from ternarybert.cli.progress import duration

    count = sum(cell.trains for cell in cells)
    total = budget or (minutes or 0) * count
    if total:
        each = f"{count} students train, {duration(60 * total / max(1, count))} each"
        console.print(f"{each}: {duration(60 * total)} in all. Stop at any time: {_STOPPED.partition('; ')[2]}.")
