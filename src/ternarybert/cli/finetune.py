"""The command `finetune`: makes a teacher from a pre-trained encoder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternarybert.cli.console import (
    TRAINING_ADVICE,
    announce_download,
    handle_errors,
    is_first_process,
    make_console,
    print_json,
    quiet,
    show_next,
    show_scores,
    show_training,
)
from ternarybert.cli.data import describe, load_data
from ternarybert.cli.options import (
    DATA,
    OptionGroup,
    OutputOptions,
    TrainingDataOptions,
    TrainOptions,
    option,
    training_options,
    with_options,
)
from ternarybert.recipe import Recipe
from ternarybert.storage import named_folder

if TYPE_CHECKING:
    from rich.console import Console

    from ternarybert.data import TaskData

EXAMPLE = (
    "Example: ternarybert finetune bert-base-uncased --train reviews.csv --text review --label mood\n\n"
    "The result is bert-base-uncased-reviews, the teacher for: ternarybert ternarize bert-base-uncased-reviews ..."
)


class LabelOptions(OptionGroup):
    """How labels are read."""

    regression: bool | None = option(
        DATA,
        "Whether labels that are numbers are amounts to learn (regression) or names of classes. By default they are "
        "amounts if not all of them are whole.",
        flags="--regression/--no-regression",
    )


@with_options
def finetune(
    model: Annotated[str, typer.Argument(help="Pre-trained encoder: a folder or a hub id.", metavar="MODEL")],
    *,
    data: TrainingDataOptions,
    labels: LabelOptions,
    training: TrainOptions,
    output: OutputOptions,
) -> None:
    """Fine-tune a pre-trained encoder on labeled texts or on questions, as a teacher for ternarize.

    The best model by the first metric is kept, as a plain Hugging Face folder: MODEL-DATA by default.
    """
    folder = named_folder(output.output or Path(f"{default_folder(model)}-{data.name}"))
    with handle_errors(folder, **TRAINING_ADVICE):
        announce_download(model)
        with quiet():
            training.check_machine()
            rows = load_data(data, data.train, regression=labels.regression, labeled=True)
            report = _run(model, rows, folder, training, output)
        if is_first_process():
            _show(report, folder, make_console(errors=output.as_json), data.arguments(data.train))
            if output.as_json:
                print_json(report | {"output": str(folder)})


def default_folder(model: str) -> str:
    """Where the result of a model goes by default: beside its folder, or here for a model from the hub."""
    path = Path(model)
    return str(named_folder(path)) if path.is_dir() else path.name


def _run(
    model: str, rows: TaskData[Any], folder: Path, training: TrainOptions, output: OutputOptions
) -> dict[str, Any]:
    from ternarybert.cli.training_display import TrainingDisplay
    from ternarybert.training.finetune import finetune as run
    from ternarybert.training.finetune import usual_schedule
    from ternarybert.training.models import load_config

    recipe = Recipe(schedule=usual_schedule(load_config(model))).override(training.schedule())
    console = make_console(errors=True)
    console.print(describe(rows))
    with TrainingDisplay(console, "fine-tuning") as progress:
        return run(model, rows, folder, recipe, training_options(training, output, progress)).to_dict()


def _show(report: dict[str, Any], folder: Path, console: Console, data: list[str]) -> None:
    best, final = report["best"], report["final"]
    columns = {f"{report['kept']} (step {best['step']})": best["sets"], f"last (step {final['step']})": final["sets"]}
    show_scores(console, columns)
    show_training(console, report, "model", best)
    console.print(f"The model is in {folder}.")
    show_next(console, "ternarize", folder, *data)
