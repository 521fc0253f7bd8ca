"""The command `reproduce`: experiments of the paper, with its printed figures beside ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from ternarybert.cli.compare import ConsoleGridProgress
from ternarybert.cli.console import RERUN, STOPPED, announce_download, handle_errors, make_console, print_json, quiet
from ternarybert.cli.options import (
    DATA,
    OUTPUT,
    RECIPE,
    GridOptions,
    OptionGroup,
    name_value_pairs,
    option,
    with_options,
)
from ternarybert.compare.grid import BERT_BASE
from ternarybert.compare.grid import reproduce as run_experiment
from ternarybert.compare.paper import EXPERIMENTS, METRICS
from ternarybert.errors import OptionError, suggest
from ternarybert.recipe import PRESETS, Recipe

EXAMPLE = (
    "Example: ternarybert reproduce distillation --task rte --data glue\n\n"
    "A check in minutes: ternarybert reproduce main --model my-minilm --task mrpc --data glue --minutes-per-cell 5"
)
_MODELS = "Models"


class ExperimentOptions(OptionGroup):
    """Models, tasks and output of an experiment."""

    model: str = option(_MODELS, "Pre-trained encoder: a folder or a hub id.", "MODEL", default=BERT_BASE)
    teacher: list[str] | None = option(
        _MODELS, "Fine-tuned model of a task, used instead of fine-tuning --model. Repeatable.", "TASK=FOLDER"
    )
    task: list[str] | None = option(
        DATA, f"Task to run: {', '.join(METRICS)}. Repeatable. By default all tasks of the paper's table.", "NAME"
    )
    data: Path | None = option(
        DATA, "Folder with the files of the tasks. By default they come from the Hugging Face Hub.", "FOLDER"
    )
    recipe: str = option(
        RECIPE, f"Recipe of TernaryBERT: {', '.join(PRESETS)}, or a YAML file.", "NAME|FILE", default="paper"
    )
    output: Path = option(
        OUTPUT, "Folder to write results to.", "FOLDER", flags="--output -o", default=Path("reproduced")
    )

    def teachers(self) -> dict[str, str]:
        """Fine-tuned models by task."""
        teachers = name_value_pairs("--teacher", self.teacher, f"TASK=FOLDER with one of {', '.join(METRICS)}")
        for task in teachers:
            if task not in METRICS:
                raise OptionError(f"--teacher: unknown task '{task}'{suggest(task, METRICS)}")
        return teachers


@with_options
def reproduce(
    experiment: Annotated[str, typer.Argument(help=f"Experiment: {', '.join(EXPERIMENTS)}.", metavar="EXPERIMENT")],
    *,
    options: ExperimentOptions,
    grid: GridOptions,
) -> None:
    """Run an experiment of the paper and print its figures beside ours: main, granularity, distillation and others.

    Fine-tunes a teacher for every task, then trains the students of the table, by default for the paper's epochs. With
    a smaller model or less time it only checks that everything works; the table says so. You can stop at any time: the
    same command resumes.
    """
    if experiment not in EXPERIMENTS:
        raise OptionError(f"unknown experiment '{experiment}'{suggest(experiment, EXPERIMENTS)}")
    console = make_console(errors=grid.as_json)
    with handle_errors(stopped=STOPPED, resume=RERUN):
        training, teachers, recipe = grid.training(), options.teachers(), Recipe.load(options.recipe)
        announce_download(options.model)
        with quiet(), ConsoleGridProgress(console) as progress:
            result = run_experiment(
                experiment,
                options.output,
                model=options.model,
                tasks=options.task or (),
                data=options.data,
                teachers=teachers,
                recipe=recipe,
                training=replace(training, options=grid.run_options()),
                force=grid.force,
                progress=progress,
            )
    console.print(result.markdown, soft_wrap=True)
    console.print(f"The table is in {options.output / f'{experiment}.md'}.", soft_wrap=True)
    if grid.as_json:
        print_json(result.to_dict() | {"output": str(options.output)})
