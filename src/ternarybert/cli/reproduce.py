"""The command `reproduce`: the paper's own experiments, its printed figures beside ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternarybert.cli.compare import GridOptions, fewer_rows, run_grid
from ternarybert.cli.console import job, make_console, note_hub, quiet
from ternarybert.cli.options import DataOptions, describe, load_data, option, with_options
from ternarybert.compare.cells import KINDS, with_seeds
from ternarybert.compare.paper import EXPERIMENTS, METRICS, Experiment
from ternarybert.errors import DataError, HubError, OptionError, OutputError, suggest
from ternarybert.recipe import PRESETS, Recipe

if TYPE_CHECKING:
    from rich.console import Console

    from ternarybert.compare.tables import Row
    from ternarybert.data import TaskData

    Data = TaskData[Any]

REPRODUCE_EXAMPLE = (
    "Example: ternarybert reproduce distillation --task rte --data glue\n\n"
    "A check in minutes: ternarybert reproduce main --model my-minilm --task mrpc --data glue --minutes-per-cell 5"
)
_WHAT = "What is reproduced"
_STOPPED = "stopped; the same command goes on from here"


@dataclass(frozen=True)
class _Job:
    """What was asked for."""

    model: str
    data: Path | None
    teachers: Mapping[str, str]
    recipe: Recipe
    grid: GridOptions
    folder: Path
    console: Console


@with_options
def reproduce(
    experiment: Annotated[str, typer.Argument(help=f"{', '.join(EXPERIMENTS)}.", metavar="EXPERIMENT")],
    *,
    model: Annotated[
        str, option("--model", help="The pre-trained encoder: folder or hub id.", panel=_WHAT, metavar="MODEL")
    ] = "google-bert/bert-base-uncased",
    task: Annotated[
        list[str] | None,
        option("--task", help="Only this task; else all that the table has. Repeatable.", panel=_WHAT, metavar="NAME"),
    ] = None,
    data: Annotated[
        Path | None,
        option("--data", help="Folder with GLUE or SQuAD; without it, the hub.", panel=_WHAT, metavar="FOLDER"),
    ] = None,
    teacher: Annotated[
        list[str] | None,
        option("--teacher", help="A model already fine-tuned. Repeatable.", panel=_WHAT, metavar="TASK=FOLDER"),
    ] = None,
    recipe: Annotated[str, option("--recipe", help=f"{', '.join(PRESETS)}, or a YAML file.", panel=_WHAT)] = "paper",
    grid: GridOptions,
    output: Annotated[Path, option("--output", "-o", help="Folder.", panel="Output", metavar="FOLDER")] = Path(
        "reproduced"
    ),
) -> None:
    """Run an experiment of the paper and print its figures beside ours: main, granularity, distillation and others.

    Fine-tunes a teacher for every task, then trains the students of the table, by default for the paper's epochs. With
    a smaller model or less time it is a check of the machinery, and says so. Can be stopped and started at any time.
    """
    if experiment not in EXPERIMENTS:
        raise OptionError(f"unknown experiment '{experiment}'{suggest(experiment, EXPERIMENTS)}")
    grid.check()
    chosen, console = EXPERIMENTS[experiment], make_console(errors=grid.as_json)
    asked = _Job(model, data, _teachers(teacher or []), Recipe.load(recipe), grid, output, console)
    with job(stopped=_STOPPED):
        note_hub(model)
        with quiet():
            data_of = _read(asked, chosen, task or [])
            measured, notes = _run(asked, chosen, data_of)
            result = _write(asked, experiment, measured, notes)
    if grid.as_json:
        typer.echo(json.dumps(result | {"output": str(output)}))


def _teachers(said: list[str]) -> dict[str, str]:
    found = {}
    for each in said:
        task, equals, folder = each.partition("=")
        if not equals or task not in METRICS:
            raise OptionError(f"--teacher takes TASK=FOLDER with one of {', '.join(METRICS)}; got '{each}'")
        found[task] = folder
    return found


def _read(asked: _Job, chosen: Experiment, tasks: list[str]) -> dict[str, Data]:
    """The rows of all tasks; one without data is left out unless it was asked for."""
    for task in tasks:
        if task not in METRICS:
            raise OptionError(f"unknown task '{task}'{suggest(task, METRICS)}")
    found: dict[str, Data] = {}
    for task in tasks or chosen.tasks:
        try:
            data = fewer_rows(load_data(DataOptions(task=task, data=asked.data)), asked.grid.rows)
            if not data.train:
                raise DataError(f"'{task}' has no training rows")
        except (DataError, HubError) as error:
            if tasks:
                raise
            asked.console.print(f"{task} is left out: {error}", soft_wrap=True)
            continue
        found[task] = data
    if not found:
        raise DataError(f"none of {', '.join(chosen.tasks)} could be read; name a folder that has them: --data FOLDER")
    return found


def _run(asked: _Job, chosen: Experiment, data_of: Mapping[str, Data]) -> tuple[dict[str, list[Row]], list[str]]:
    """All students of all tasks, and how far their figures can be compared with the paper's."""
    from ternarybert.compare.tables import scale_notes
    from ternarybert.training.models import load_config

    measured: dict[str, list[Row]] = {}
    configs, counts = {}, {}
    for task, data in data_of.items():
        asked.console.print(describe(data))
        counts[task] = len(data.train or ())
        teacher = asked.teachers.get(task) or _teacher(asked, task, data)
        configs[asked.teachers.get(task, asked.model)] = load_config(teacher).to_dict()
        measured[task] = _task(asked, chosen, task, data, teacher, len(data_of))
    return measured, scale_notes(configs, counts, asked.grid.effort())


def _task(asked: _Job, chosen: Experiment, task: str, data: Data, teacher: str, tasks: int) -> list[Row]:
    from ternarybert.compare.run import Comparison, ComparisonFolder

    usual = {name: kind.source for name, kind in KINDS.items() if kind.source is not None}
    grid = asked.grid
    comparison = Comparison(
        teacher,
        asked.recipe,
        grid.schedule(),
        grid.minutes_per_cell,
        None if grid.budget is None else grid.budget / tasks,
        processor_time=grid.processor_time,
        sources=grid.sources(usual | {"pretrained": asked.model}),
        options=grid.settings(),
    )
    cells = with_seeds(chosen.cells, grid.seeds)
    place = ComparisonFolder(asked.folder / task / "students")
    _, rows = run_grid(comparison, data, cells, place, asked.console, force=grid.force)
    return rows


def _teacher(asked: _Job, task: str, data: Data) -> str:
    """The teacher of a task, fine-tuned unless that is done."""
    from ternarybert.cli.console import ShowProgress
    from ternarybert.training.checkpoints import work_folder
    from ternarybert.training.finetune import finetune

    folder = asked.folder / task / "teacher"
    _same_origin(asked, folder, data)
    if folder.exists():
        return str(folder)
    asked.console.print(f"{task}: fine-tuning the teacher")
    settings = replace(asked.grid.settings(), resume=work_folder(folder).exists(), max_steps=-1)
    with ShowProgress(asked.console, "fine-tuning") as progress:
        finetune(asked.model, data, folder, None, replace(settings, callbacks=(progress,)))
    return str(folder)


def _same_origin(asked: _Job, folder: Path, data: Data) -> None:
    """Refuse a teacher that was made of another model or other rows: its figures would pass for this one's."""
    from ternarybert.training.checkpoints import read_json, write_json
    from ternarybert.training.options import TrainingOptions, run_plan

    note = folder.with_name("teacher.json")
    whole = run_plan(asked.model, data, asked.recipe, TrainingOptions())
    origin = json.loads(json.dumps({name: whole[name] for name in ("model", "data")}))
    if note.is_file():
        others = [name for name, value in origin.items() if read_json(note).get(name) != value]
        if others:
            raise OutputError(f"{folder} was made with another {' and '.join(others)}; choose another --output")
    else:
        note.parent.mkdir(parents=True, exist_ok=True)
        write_json(note, origin)


def _write(asked: _Job, name: str, measured: dict[str, list[Row]], notes: list[str]) -> dict[str, Any]:
    from ternarybert.compare.tables import as_dict, beside
    from ternarybert.compare.tables import reproduce_markdown as markdown
    from ternarybert.training.checkpoints import write_json

    experiment = EXPERIMENTS[name]
    lines = beside(experiment, measured)
    text = markdown(experiment, lines, list(measured), notes)
    (asked.folder / f"{name}.md").write_text(text, encoding="utf-8")
    result = as_dict(experiment, lines, notes)
    write_json(asked.folder / f"{name}.json", result)
    asked.console.print(text, soft_wrap=True)
    asked.console.print(f"The table is in {asked.folder / f'{name}.md'}.")
    return result
