"""The command `reproduce`: experiments of the paper, with its printed figures beside ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ternarybert.cli.compare import ConsoleGridProgress
from ternarybert.cli.console import RERUN, STOPPED, announce_download, handle_errors, make_console, print_json, quiet
from ternarybert.cli.options import (
    AUGMENTATION,
    DATA,
    OUTPUT,
    RECIPE,
    GridOptions,
    OptionGroup,
    name_value_pairs,
    option,
    refuse,
    with_options,
)
from ternarybert.compare.grid import BERT_BASE, GridTraining, ReproductionRun
from ternarybert.compare.grid import reproduce as run_experiment
from ternarybert.compare.paper import EXPERIMENTS, METRICS
from ternarybert.errors import OptionError, suggest
from ternarybert.recipe import PRESETS, Recipe

if TYPE_CHECKING:
    from ternarybert.augment.training_data import Augmentation

EXAMPLE = (
    "Example: ternarybert reproduce distillation --task rte --data glue\n\n"
    "A check in minutes: ternarybert reproduce main --model my-minilm --task mrpc --data glue --minutes-per-cell 5"
)
_MODELS = "Models"
TEST, AUGMENTED = "test", ("main",)  # the submission, and the tables with augmentation
_NAMES = (*EXPERIMENTS, TEST)


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
    augment: bool | None = option(
        AUGMENTATION,
        "Train on variants of the rows as well (main, test), on the tasks on which the paper does. By default yes, "
        "unless time, steps or rows are limited.",
        flags="--augment/--no-augment",
    )
    masked_model: str | None = option(
        AUGMENTATION,
        f"Masked language model that replaces words of one token. By default {BERT_BASE} where that is --model, else "
        "the teacher's own embeddings.",
        "MODEL",
    )
    glove: str | None = option(AUGMENTATION, "GloVe vectors that replace the other words: a text file.", "FILE")
    output: Path = option(
        OUTPUT, "Folder to write results to.", "FOLDER", flags="--output -o", default=Path("reproduced")
    )

    def augmentation(self, experiment: str, *, limited: bool) -> Augmentation | None:
        """The augmentation that an experiment takes, if any."""
        wanted = not limited if self.augment is None else self.augment
        if experiment not in (*AUGMENTED, TEST):
            refuse(f"with {experiment}", augment=self.augment, masked_model=self.masked_model, glove=self.glove)
            return None
        if not wanted:
            refuse("without --augment", masked_model=self.masked_model, glove=self.glove)
            return None
        from ternarybert.augment.training_data import Augmentation

        usual = BERT_BASE if self.model == BERT_BASE else None
        return Augmentation(masked_model=self.masked_model or usual, glove=self.glove)

    def teachers(self) -> dict[str, str]:
        """Fine-tuned models by task."""
        teachers = name_value_pairs("--teacher", self.teacher, f"TASK=FOLDER with one of {', '.join(METRICS)}")
        for task in teachers:
            if task not in METRICS:
                raise OptionError(f"--teacher: unknown task '{task}'{suggest(task, METRICS)}")
        return teachers


@with_options
def reproduce(
    experiment: Annotated[str, typer.Argument(help=f"Experiment: {', '.join(_NAMES)}.", metavar="EXPERIMENT")],
    *,
    options: ExperimentOptions,
    grid: GridOptions,
) -> None:
    """Run an experiment of the paper and print its figures beside ours: main, granularity, distillation and others.

    Fine-tunes a teacher for every task, then trains the students of the table, by default for the paper's epochs. With
    a smaller model or less time it only checks that everything works; the table says so. You can stop at any time: the
    same command resumes. The experiment "test" is Table 2, whose scores only the GLUE server can compute: it writes an
    archive to submit for the teacher and each student.
    """
    if experiment not in _NAMES:
        raise OptionError(f"unknown experiment '{experiment}'{suggest(experiment, _NAMES)}")
    console = make_console(errors=grid.as_json)
    with handle_errors(stopped=STOPPED, resume=RERUN):
        training, teachers, recipe = grid.training(), options.teachers(), Recipe.load(options.recipe)
        limited = training.is_limited or training.rows is not None
        augment = options.augmentation(experiment, limited=limited)
        announce_download(options.model)
        if experiment == TEST:
            _submit(options, grid, replace(training, options=grid.run_options()), recipe, augment)
            return
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
                augment=augment,
                force=grid.force,
                progress=progress,
            )
    console.print(result.markdown, soft_wrap=True)
    console.print(f"The table is in {options.output / f'{experiment}.md'}.", soft_wrap=True)
    if grid.as_json:
        print_json(result.to_dict() | {"output": str(options.output)})


def _submit(
    options: ExperimentOptions,
    grid: GridOptions,
    training: GridTraining,
    recipe: Recipe,
    augment: Augmentation | None,
) -> None:
    from ternarybert.compare.submit import submit

    refuse("with test", force=grid.force)
    console = make_console(errors=grid.as_json)
    with quiet(), ConsoleGridProgress(console) as progress:
        run = ReproductionRun(
            EXPERIMENTS["main"], options.model, options.output, options.teachers(), recipe, training, progress, augment
        )
        result = submit(run, options.task or (), options.data)
    for path in result.archives.values():
        console.print(f"{path} can be submitted at gluebenchmark.com.", soft_wrap=True)
    if result.missing:
        console.print(f"The server also expects {', '.join(result.missing)}.", soft_wrap=True)
    if grid.as_json:
        print_json(result.to_dict())
