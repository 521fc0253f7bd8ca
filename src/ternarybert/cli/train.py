"""The commands that train: `finetune` makes a teacher, `ternarize` a ternary student of it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternarybert.cli.console import (
    is_first_process,
    job,
    make_console,
    note_hub,
    quiet,
    show_confusion,
    show_scores,
    size_line,
)
from ternarybert.cli.options import (
    AugmentOptions,
    DataOptions,
    OutputOptions,
    TrainFile,
    TrainOptions,
    augmentation,
    data_arguments,
    data_name,
    describe,
    load_data,
    option,
    settings,
    with_options,
)
from ternarybert.errors import RecipeError, UnsupportedModelError
from ternarybert.recipe import PRESETS, Recipe
from ternarybert.training.checkpoints import by_name

if TYPE_CHECKING:
    from rich.console import Console

    from ternarybert.data import TaskData

_RECIPE = "Recipe"

FINETUNE_EXAMPLE = (
    "Example: ternarybert finetune bert-base-uncased --train reviews.csv --text review --label mood\n\n"
    "The result is bert-base-uncased-reviews, the teacher for: ternarybert ternarize bert-base-uncased-reviews ..."
)
TERNARIZE_EXAMPLE = (
    "Example: ternarybert ternarize my-teacher --train reviews.csv --text review --label mood\n\n"
    "Several processes: torchrun --nproc-per-node 2 -m ternarybert ternarize my-teacher --train reviews.csv ..."
)


@with_options
def finetune(
    model: Annotated[str, typer.Argument(help="A pre-trained encoder: a folder or a hub id.", metavar="MODEL")],
    *,
    train: TrainFile = None,
    data: DataOptions,
    regression: Annotated[
        bool, option("--regression", help="Whole numbers are amounts, not classes.", panel="Data")
    ] = False,
    how: TrainOptions,
    out: OutputOptions,
) -> None:
    """Fine-tune a pre-trained encoder on labelled texts or on questions: makes a teacher for ternarize.

    The best model by the first metric is kept, in a plain Hugging Face folder: by default MODEL-DATA beside it.
    """
    output = by_name(out.output or Path(f"{_local(model)}-{data_name(data, train)}"))
    with job(output):
        note_hub(model)
        with quiet():
            rows = load_data(data, train, regression=True if regression else None, labelled=True)
            report = _finetune(model, rows, output, how, out)
        if is_first_process():
            _show_finetuned(report, output, make_console(errors=out.as_json), data_arguments(data, train))
            _print_json(report | {"output": str(output)}, wanted=out.as_json)


@with_options
def ternarize(
    teacher: Annotated[str, typer.Argument(help="A fine-tuned model: a folder or a hub id.", metavar="TEACHER")],
    *,
    train: TrainFile = None,
    data: DataOptions,
    recipe: Annotated[
        str, option("--recipe", help=f"{', '.join(PRESETS)}, or a YAML file.", panel=_RECIPE, metavar="NAME|FILE")
    ] = "default",
    bits: Annotated[
        str | None,
        option("--bits", help="Of weights, word embedding and activations: 2-2-8.", panel=_RECIPE, metavar="W-E-A"),
    ] = None,
    changes: Annotated[
        list[str] | None,
        option("--set", help="Change a field: distill.attention=0. Repeatable.", panel=_RECIPE, metavar="FIELD=VALUE"),
    ] = None,
    student: Annotated[
        str | None,
        option("--student", help="Start from this shallower fine-tuned model.", panel=_RECIPE, metavar="MODEL"),
    ] = None,
    augment: AugmentOptions,
    how: TrainOptions,
    out: OutputOptions,
) -> None:
    """Make a ternary student of a fine-tuned model by distillation (the paper's Algorithm 1).

    Labels are only used to judge: texts without labels are enough, and agreement with the teacher is then the score.
    The best student is kept, in a packed folder: by default TEACHER-ternary.
    """
    output = by_name(out.output or Path(f"{_local(teacher)}-ternary"))
    with job(output):
        chosen = make_recipe(recipe, bits, changes or [], how)
        note_hub(teacher)
        with quiet():
            rows = load_data(data, train, lambda: _label_names(teacher))
            metrics = _ternarize(teacher, rows, output, chosen, how, out, student, augment)
        if is_first_process():
            _show_ternarized(
                metrics, output, make_console(errors=out.as_json), [*data_arguments(data), "--teacher", teacher]
            )
            _print_json(metrics | {"output": str(output)}, wanted=out.as_json)


def make_recipe(name: str, bits: str | None, changes: list[str], how: TrainOptions) -> Recipe:
    """The recipe with everything that was said on the command line."""
    recipe = Recipe.load(name)
    if bits is not None:
        recipe = recipe.with_bits(bits)
    fields: dict[str, object] = {}
    for change in changes:
        field, equals, value = change.partition("=")
        if not equals:
            raise RecipeError(f"--set takes FIELD=VALUE, such as distill.attention=0; got '{change}'")
        fields[field.strip()] = value
    return recipe.override(fields | how.schedule())


def _label_names(model: str) -> list[str]:
    from ternarybert.training.models import label_names

    return label_names(model)


def _finetune(model: str, rows: TaskData[Any], output: Path, how: TrainOptions, out: OutputOptions) -> dict[str, Any]:
    from ternarybert.cli.console import ShowProgress
    from ternarybert.training.finetune import finetune as run
    from ternarybert.training.finetune import usual_schedule
    from ternarybert.training.models import load_config

    recipe = Recipe(schedule=usual_schedule(load_config(model))).override(how.schedule())
    console = make_console(errors=True)
    console.print(describe(rows))
    with ShowProgress(console, "fine-tuning") as progress:
        return run(model, rows, output, recipe, settings(how, out, progress)).to_dict()


def _ternarize(
    teacher: str,
    rows: TaskData[Any],
    output: Path,
    recipe: Recipe,
    how: TrainOptions,
    out: OutputOptions,
    student: str | None,
    augment: AugmentOptions,
) -> dict[str, Any]:
    from ternarybert import packed
    from ternarybert.cli.console import ShowProgress
    from ternarybert.packed.inspect import inspect_model
    from ternarybert.training.ternarize import ternarize as run

    console = make_console(errors=True)
    console.print(describe(rows))
    _note_runtime(student or teacher, console)
    with ShowProgress(console, "ternarizing") as progress, augmentation(augment, rows.task, console) as more:
        chosen = settings(how, out, progress)
        metrics = run(teacher, rows, output, recipe, chosen, student=student, augment=more).to_dict()
    if is_first_process():
        sizes = inspect_model(packed.read(output))
        metrics["size"] = {name: getattr(sizes, name) for name in ("bytes", "mb", "mib", "ratio")}
    return metrics


def _note_runtime(model: str, console: Console) -> None:
    """Say before hours of training, rather than after them, that a student will only run in torch."""
    from ternarybert.runtime.load import check_computation
    from ternarybert.training.models import load_config

    config = load_config(model).to_dict()
    try:
        check_computation(config)
    except UnsupportedModelError as error:
        console.print(f"Note: the student will run in torch only: {error}.", soft_wrap=True, markup=False)


def _local(model: str) -> str:
    """Where the result of a model goes by default: beside a folder, here for a model of the hub."""
    path = Path(model)
    return str(by_name(path)) if path.is_dir() else path.name


def _show_finetuned(report: dict[str, Any], output: Path, console: Console, data: list[str]) -> None:
    best, final = report["best"], report["final"]
    columns = {f"{report['kept']} (step {best['step']})": best["sets"], f"last (step {final['step']})": final["sets"]}
    show_scores(console, columns)
    _show_answers(console, report, "model", best)
    _show_effort(console, report)
    _show_next(console, f"The model is in {output}.", "ternarize", output, data)


def _show_ternarized(metrics: dict[str, Any], output: Path, console: Console, data: list[str]) -> None:
    best, final = metrics["student"]["best"], metrics["student"]["final"]
    columns = {
        "teacher": metrics["teacher"],
        f"{metrics['kept']} student (step {best['step']})": best["sets"],
        f"last student (step {final['step']})": final["sets"],
    }
    show_scores(console, columns)
    _show_answers(console, metrics, "student", best)
    _show_effort(console, metrics)
    where = f"The student is in {output}: {size_line(**metrics['size'])}."
    _show_next(console, where, "evaluate", output, data)


def _show_answers(console: Console, report: dict[str, Any], whose: str, kept: dict[str, Any]) -> None:
    confusion = report["confusion"]
    if confusion.get(whose) is not None:
        title = f"{next(iter(kept['sets']))}, {report['kept']} {whose}"
        show_confusion(console, confusion["labels"], confusion[whose], title)


def _show_effort(console: Console, measured: dict[str, Any]) -> None:
    from ternarybert.cli.console import duration

    speed = f"{measured['examples_per_second']:.1f} examples/s"
    console.print(f"{measured['steps']} steps in {duration(measured['seconds'])}, {speed}.")


def _show_next(console: Console, where: str, command: str, folder: Path, arguments: list[str]) -> None:
    console.print(where)
    console.print(f"Next: {shlex.join(['ternarybert', command, str(folder), *arguments])}", soft_wrap=True)


def _print_json(value: dict[str, Any], *, wanted: bool) -> None:
    if wanted:
        typer.echo(json.dumps(value))
