"""What users say about their data, and the rows they mean.

Data is a known task (`--task` with `--data`) or the user's own files (`--train`, `--eval`) with their columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ternarybert.cli.options import option
from ternarybert.errors import DataError

if TYPE_CHECKING:
    from ternarybert.tasks import Task, TaskData

_DATA = "Data"
_FILE = "CSV, TSV, JSONL, parquet or one text a line (.txt)"


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
        option("--task", help="Or GLUE: cola, sst2, mrpc, stsb, qqp, mnli, qnli or rte.", panel=_DATA, metavar="NAME"),
    ] = None
    data: Annotated[
        Path | None,
        option("--data", help="Folder with the files of --task; without it, the hub.", panel=_DATA, metavar="FOLDER"),
    ] = None
    max_length: Annotated[
        int | None,
        option(
            "--max-length", help="Cut texts at so many tokens; your own at 128.", panel=_DATA, min=8, metavar="TOKENS"
        ),
    ] = None


def load_data(
    options: DataOptions,
    train: Path | None = None,
    labels: Sequence[str] | None = None,
    *,
    regression: bool | None = None,
) -> TaskData:
    """Read the rows; `labels` are the names that the model at hand knows, in the order of its ids."""
    from ternarybert.tasks import load_glue, load_table

    _check(options, train)
    if options.task is not None:
        data = load_glue(options.task, options.data)
    else:
        data = load_table(
            train,
            options.evaluation,
            text=options.text,
            text_pair=options.text_pair,
            label=options.label,
            labels=labels,
            regression=regression,
        )
    if options.max_length is None:
        return data
    return replace(data, task=replace(data.task, max_length=options.max_length))


def _check(options: DataOptions, train: Path | None) -> None:
    files = [path for path in (train, options.evaluation) if path is not None]
    if options.task is not None and files:
        raise DataError(f"--task {options.task} and {files[0]} cannot go together; give one or the other")
    if options.task is None and options.data is not None:
        raise DataError("--data is the folder of a GLUE task and needs --task; name your own files one by one")
    if options.task is None and not files:
        raise DataError("no data: name your own file, or a GLUE task with --task and --data (see --help)")


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


def describe(data: TaskData) -> str:
    """What was understood of the data, in a line."""
    parts = {"train": data.train, **data.evals}
    counts = ", ".join(f"{name} {len(rows):,} rows" for name, rows in parts.items() if rows is not None)
    return f"{data.task.name}: {counts}; {_columns(data.task)}"


def _columns(task: Task) -> str:
    texts = " and ".join(f"'{name}'" for name in task.text_columns)
    if task.label_column is None:
        return f"texts {texts}, no labels"
    names = list(task.labels or ())
    kind = "a number" if task.regression else ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
    return f"texts {texts}, label '{task.label_column}' ({kind})"
