"""Reads the data that the options of a command name, and describes it in a line.

Data is a known task (`--task` with `--data`) or the user's own files (`--train`, `--eval`). Files with the columns
`question` and `context`, and SQuAD's own JSON, hold questions about texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternarybert.cli.options import DataOptions, refuse
from ternarybert.errors import DataError

if TYPE_CHECKING:
    from ternarybert.data import TaskData

    AnyData = TaskData[Any]


def load_data(
    options: DataOptions,
    train: Path | None = None,
    labels: Callable[[], Sequence[str]] | None = None,
    *,
    regression: bool | None = None,
    labeled: bool = False,
) -> AnyData:
    """Read the data; `labels` gives the label names of the model at hand, in the order of its ids.

    `labeled` refuses a table to train on that has no labels.
    """
    from ternarybert.data import load_questions, load_table, load_task

    _check(options, train)
    data: AnyData
    chosen = {} if regression is None else {"regression" if regression else "no_regression": True}
    if options.task is not None:
        refuse(f"with --task {options.task}, whose columns are known", **options.columns, **chosen)
        data = load_task(options.task, options.data)
    elif _are_questions(options, train):
        refuse("on questions", **chosen)
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
            labeled=labeled,
        )
    if options.max_length is None:
        return data
    task: Any = replace(data.task, max_length=options.max_length)
    return replace(data, task=task)


def load_plain_texts(options: DataOptions, train: Path | None = None, pooling: str | None = None) -> AnyData:
    """Read texts for an embedder; scored pairs are for evaluation."""
    from ternarybert.data import load_texts

    _check(options, train)
    refuse("with an embedder, which learns from any text; name files with --train and --eval", task=options.task)
    data = load_texts(
        train,
        options.evaluation,
        text=options.text,
        text_pair=options.text_pair,
        label=options.label,
        pooling=pooling,
    )
    if options.max_length is None:
        return data
    return replace(data, task=replace(data.task, max_length=options.max_length))


def _are_questions(options: DataOptions, train: Path | None) -> bool:
    """Whether the files hold questions; if columns were named, they are a table of texts."""
    from ternarybert.data.squad.questions import holds_questions

    path = train or options.evaluation
    return path is not None and not any(options.columns.values()) and holds_questions(path)


def _check(options: DataOptions, train: Path | None) -> None:
    files = [path for path in (train, options.evaluation) if path is not None]
    if options.task is not None and files:
        raise DataError(f"--task {options.task} and {files[0]} exclude each other; give one of them")
    if options.task is None and options.data is not None:
        raise DataError(
            f"--data {options.data} is for --task; name your own files with --train and --eval, or add --task"
        )
    if options.task is None and not files:
        raise DataError("no data; name a file, or a known task with --task (see --help)")


def describe(data: AnyData) -> str:
    """What was read, in a line: how many rows, which columns, which labels."""
    parts = {"train": data.train, **data.evals}
    counts = ", ".join(f"{name} {len(rows):,} {data.task.unit}" for name, rows in parts.items() if rows is not None)
    return f"{data.task.name}: {counts}; {data.task.describe(data)}"
