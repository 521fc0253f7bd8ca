"""What users say about their data, and the rows they mean.

Data is a known task (`--task` with `--data`) or the user's own files (`--train`, `--eval`) with their columns. Files
with columns `question` and `context`, and SQuAD's own JSON, hold questions about texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ternarybert.cli.options import option
from ternarybert.errors import DataError

if TYPE_CHECKING:
    from ternarybert.tasks import SquadData, Task, TaskData

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
) -> TaskData | SquadData:
    """Read the rows; `labels` tells the names that the model at hand knows, in the order of its ids.

    `labelled` refuses a table to learn from that has no labels.
    """
    from ternarybert.tasks import load_glue, load_questions, load_squad, load_table

    _check(options, train)
    data: TaskData | SquadData
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
    from ternarybert.tasks.squad_questions import holds_questions

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


def describe(data: TaskData | SquadData) -> str:
    """What was understood of the data, in a line."""
    from ternarybert.tasks import SquadData

    parts = {"train": data.train, **data.evals}
    unit = "questions" if isinstance(data, SquadData) else "rows"
    counts = ", ".join(f"{name} {len(rows):,} {unit}" for name, rows in parts.items() if rows is not None)
    return f"{data.task.name}: {counts}; {_answers(data) if isinstance(data, SquadData) else _columns(data.task)}"


def _answers(data: SquadData) -> str:
    """How many questions have no answer, and how many were never answered by anybody."""
    questions = [question for part in (data.train, *data.evals.values()) for question in part or ()]
    unknown = sum(question.answers is None for question in questions)
    if unknown == len(questions):
        return "no answers"
    silent = sum(question.answers == () for question in questions)
    notes = (f"{count:,} {what}" for count, what in ((silent, "without an answer"), (unknown, "not labelled")) if count)
    return ", ".join(notes) or "all have answers"


def _columns(task: Task) -> str:
    texts = " and ".join(f"'{name}'" for name in task.text_columns)
    if task.label_column is None:
        return f"texts {texts}, no labels"
    names = list(task.labels or ())
    kind = "a number" if task.regression else ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
    return f"texts {texts}, label '{task.label_column}' ({kind})"
