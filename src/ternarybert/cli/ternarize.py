"""The command `ternarize`: distills a ternary student from a fine-tuned model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ternarybert.cli.console import (
    TRAINING_ADVICE,
    ProgressDisplay,
    announce_download,
    handle_errors,
    is_first_process,
    make_console,
    print_json,
    quiet,
    show_next,
    show_scores,
    show_training,
    size_line,
)
from ternarybert.cli.data import describe, load_data, load_plain_texts
from ternarybert.cli.finetune import default_folder
from ternarybert.cli.options import (
    RECIPE,
    AugmentOptions,
    OptionGroup,
    OutputOptions,
    TrainingDataOptions,
    TrainOptions,
    WordOptions,
    name_value_pairs,
    option,
    training_options,
    with_options,
)
from ternarybert.errors import UnsupportedModelError
from ternarybert.recipe import PRESETS, Recipe
from ternarybert.storage import named_folder

if TYPE_CHECKING:
    from rich.console import Console

    from ternarybert.augment.training_data import Augmentation
    from ternarybert.data import Task, TaskData

EXAMPLE = (
    "Example: ternarybert ternarize my-teacher --train reviews.csv --text review --label mood\n\n"
    "Several processes: torchrun --nproc-per-node 2 -m ternarybert ternarize my-teacher --train reviews.csv ..."
)
_FROM_TEACHER = "no --masked-model and no --glove: words come from the teacher's own embeddings"


class RecipeOptions(OptionGroup):
    """The student and how it is quantized and distilled."""

    recipe: str = option(RECIPE, f"Recipe: {', '.join(PRESETS)}, or a YAML file.", "NAME|FILE", default="default")
    bits: str | None = option(
        RECIPE,
        "Bits of weights, word embeddings and activations, such as 2-2-8. By default set by the recipe.",
        "W-E-A",
    )
    changes: list[str] | None = option(
        RECIPE, "Change a field of the recipe, such as distill.attention=0. Repeatable.", "FIELD=VALUE", flags="--set"
    )
    pooling: str | None = option(
        RECIPE,
        "Make an embedder of a plain encoder: mean, cls or max of the tokens. Folders of sentence-transformers have "
        "their own.",
        "NAME",
    )
    student: str | None = option(
        RECIPE, "Fine-tuned model with fewer layers that the student starts from. By default the teacher.", "MODEL"
    )

    def load(self, training: TrainOptions) -> Recipe:
        """The recipe with all changes from the command line."""
        recipe = Recipe.load(self.recipe)
        if self.bits is not None:
            recipe = recipe.with_bits(self.bits)
        changes: dict[str, object] = dict(
            name_value_pairs("--set", self.changes, "FIELD=VALUE, such as distill.attention=0")
        )
        return recipe.override(changes | training.schedule())


@with_options
def ternarize(
    teacher: Annotated[str, typer.Argument(help="Fine-tuned model: a folder or a hub id.", metavar="TEACHER")],
    *,
    data: TrainingDataOptions,
    recipe: RecipeOptions,
    augment: AugmentOptions,
    words: WordOptions,
    training: TrainOptions,
    output: OutputOptions,
) -> None:
    """Distil a ternary student from a fine-tuned model (Algorithm 1 of the paper).

    Labels are only used for evaluation: texts without labels are enough, and the score is then the agreement with the
    teacher. An embedder, such as a folder of sentence-transformers, learns its teacher's vectors from any text. The
    best student is kept, as a packed folder: TEACHER-ternary by default.
    """
    folder = named_folder(output.output or Path(f"{default_folder(teacher)}-ternary"))
    with handle_errors(folder, **TRAINING_ADVICE):
        chosen = recipe.load(training)
        augment.check(words)
        announce_download(teacher)
        with quiet():
            training.check_machine()
            rows = _load_rows(teacher, data, recipe.pooling)
            console = make_console(errors=True)
            console.print(describe(rows))
            _warn_torch_only(recipe.student or teacher, console)
            with augmentation(augment, words, rows.task, console) as augmented:
                metrics = _run(teacher, rows, folder, chosen, training, output, recipe.student, augmented)
        if is_first_process():
            _show(metrics, folder, make_console(errors=output.as_json), _next(folder, data, teacher, rows.task))
            if output.as_json:
                print_json(metrics | {"output": str(folder)})


def _load_rows(teacher: str, data: TrainingDataOptions, pooling: str | None) -> TaskData[Any]:
    """Rows for the teacher's head, or plain texts for an embedder."""
    from ternarybert.training.models import is_embedder, label_names, trained_kind

    if is_embedder(teacher, pooling):
        return load_plain_texts(data, data.train, pooling)
    return load_data(data, data.train, lambda: label_names(teacher), kind=trained_kind(teacher))


@contextmanager
def augmentation(
    augment: AugmentOptions, words: WordOptions, task: Task, console: Console
) -> Iterator[Augmentation | None]:
    """The augmentation that the options ask for, with a progress display; what it will do is printed first."""
    if not augment.augment:
        yield None
        return
    from ternarybert.augment import STOP_WORDS, read_stop_words
    from ternarybert.augment.training_data import Augmentation, cache_folder, check_augmented

    usual = check_augmented(task).augment_variants
    cache = augment.augment_cache or cache_folder()
    variants = usual if words.variants is None else words.variants
    console.print(f"augmenting with up to {variants} variants per row, kept in {cache}", soft_wrap=True)
    for line in [] if words.masked_model or words.glove else [_FROM_TEACHER]:
        console.print(line, soft_wrap=True)
    for line in words.missing():
        console.print(line, soft_wrap=True)
    stop_words = STOP_WORDS if words.stop_words is None else read_stop_words(words.stop_words)
    if words.masked_model is not None:
        announce_download(words.masked_model)
    with ProgressDisplay(console, "augmenting", unit="row") as progress:
        yield Augmentation(
            masked_model=words.masked_model,
            glove=words.glove,
            variants=variants,
            masks=words.masks or 1,
            cache=cache,
            progress=progress.update,
            stop_words=stop_words,
            on_message=partial(console.print, soft_wrap=True),
        )


def _run(
    teacher: str,
    rows: TaskData[Any],
    folder: Path,
    recipe: Recipe,
    training: TrainOptions,
    output: OutputOptions,
    student: str | None,
    augmented: Augmentation | None,
) -> dict[str, Any]:
    from ternarybert import packed
    from ternarybert.cli.training_display import TrainingDisplay
    from ternarybert.packed.inspect import inspect_model
    from ternarybert.training.ternarize import ternarize as run

    with TrainingDisplay(make_console(errors=True), "ternarizing") as progress:
        options = training_options(training, output, progress)
        metrics = run(teacher, rows, folder, recipe, options, student=student, augment=augmented).to_dict()
    if is_first_process():
        sizes = inspect_model(packed.read(folder))
        metrics["size"] = {name: getattr(sizes, name) for name in ("bytes", "mb", "mib", "ratio")}
    return metrics


def _warn_torch_only(model: str, console: Console) -> None:
    """Print before hours of training, not after them, that the student will only run in torch."""
    from ternarybert.runtime.load import check_computation
    from ternarybert.training.models import load_config

    try:
        check_computation(load_config(model).to_dict())
    except UnsupportedModelError as error:
        console.print(f"Note: the student will run in torch only: {error}.", soft_wrap=True)


def _next(folder: Path, data: TrainingDataOptions, teacher: str, task: Task) -> list[object]:
    """The command to try: an evaluation on the rows that were given for that, or else answers to the training rows.

    An embedder gives vectors instead of answers; of pairs, `encode` reads one column.
    """
    from ternarybert.data.embedding import EmbeddingTask

    if data.task is not None or data.evaluation is not None:
        return ["evaluate", folder, *data.arguments(), "--teacher", teacher]
    if data.train is None or data.train.suffix.lower() in (
        ".json",
        ".zip",
        ".gz",
    ):  # SQuAD's, which predict cannot read
        return ["inspect", folder]
    if isinstance(task, EmbeddingTask):
        column = ["--text", task.text_columns[0]] if data.text is not None or len(task.text_columns) > 1 else []
        return ["encode", data.train, "--model", folder, *column, "--output", f"{folder}-vectors.npy"]
    columns = {"--text": data.text, "--text-pair": data.text_pair}
    named = [part for name, value in columns.items() if value is not None for part in (name, value)]
    return ["predict", folder, "--input", data.train, *named]


def _show(metrics: dict[str, Any], folder: Path, console: Console, following: Sequence[object]) -> None:
    best, final = metrics["student"]["best"], metrics["student"]["final"]
    columns = {
        "teacher": metrics["teacher"],
        f"{metrics['kept']} student (step {best['step']})": best["sets"],
        f"last student (step {final['step']})": final["sets"],
    }
    show_scores(console, columns)
    show_training(console, metrics, "student", best)
    console.print(f"The student is in {folder}: {size_line(**metrics['size'])}.")
    show_next(console, *following)
