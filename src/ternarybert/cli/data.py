"""Reads the data that the options of a command name, and describes it in a line.

Data is a known task (`--task` with `--data`) or the user's own files (`--train`, `--eval`). Files with the columns
`question` and `context`, and SQuAD's own JSON, hold questions about texts. Files with tokens and tags hold words, which
`--task ner` says of any file; files whose labels are lists have several labels per text, as `--task multi-label` says.
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


NER = "ner"
SEVERAL = "multi-label"
RERANK = "rerank"
OWN_KINDS = (NER, SEVERAL, RERANK)  # values of --task that say what the user's own files are for


def load_data(
    options: DataOptions,
    train: Path | None = None,
    labels: Callable[[], Sequence[str]] | None = None,
    *,
    kind: str | None = None,
    regression: bool | None = None,
    labeled: bool = False,
) -> AnyData:
    """Read the data; `labels` gives the label names of the model at hand, in the order of its ids.

    `kind` is the kind of task that the model is for. `labeled` refuses a table to train on that has no labels.
    """
    from ternarybert.data import load_multi_label, load_questions, load_rankings, load_table, load_tags, load_task

    _check(options, train)
    data: AnyData
    columns: dict[str, Any] = dict(options.columns)
    chosen = {} if regression is None else {"regression" if regression else "no_regression": True}
    if _are_tags(options, train, kind):
        why = "with words that have tags" if kind is None else "with a model that tags words"
        refuse(why, text_pair=options.text_pair, label=options.label, **chosen)
        data = load_tags(
            train,
            options.evaluation,
            labels=labels() if labels else None,
            text=options.text,
            conll=options.task == NER and not _holds_rows(train or options.evaluation),
            labeled=labeled,
        )
    elif _have_several_labels(options, train, kind):
        refuse("with several labels per text", **chosen)
        names = labels() if labels else None
        data = load_multi_label(train, options.evaluation, **columns, labels=names, labeled=labeled)
    elif _are_rankings(options, train, kind):
        refuse("with queries and texts", **chosen)
        data = load_rankings(train, options.evaluation, **columns, labeled=labeled)
    elif options.task is not None:
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
    if options.evaluation is None:
        refuse("with an embedder, which learns from texts without labels", label=options.label)
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


def _are_tags(options: DataOptions, train: Path | None, kind: str | None) -> bool:
    """Whether the task is to tag words: as the user says, by the model, or by the file."""
    from ternarybert.data.tagged_sentences import holds_tags
    from ternarybert.data.token_classification import TOKEN_CLASSIFICATION

    if options.task is not None or kind is not None:
        return options.task == NER or (options.task is None and kind == TOKEN_CLASSIFICATION)
    path = train or options.evaluation
    return path is not None and not any(options.columns.values()) and holds_tags(path)


def _have_several_labels(options: DataOptions, train: Path | None, kind: str | None) -> bool:
    """Whether texts have lists of labels: as the user says, by the model, or by the file."""
    from ternarybert.data.multi_label import MULTI_LABEL, holds_label_lists

    if options.task is not None or kind is not None:
        return options.task == SEVERAL or (options.task is None and kind == MULTI_LABEL)
    path = train or options.evaluation
    return path is not None and holds_label_lists(path, options.label)


def _are_rankings(options: DataOptions, train: Path | None, kind: str | None) -> bool:
    """Whether pairs are a query and a text: as the user says, by the model, or by the file."""
    from ternarybert.data.reranking import RERANKING, holds_rankings

    if options.task is not None or kind is not None:
        return options.task == RERANK or (options.task is None and kind == RERANKING)
    path = train or options.evaluation
    return path is not None and not any(options.columns.values()) and holds_rankings(path)


def _holds_rows(path: Path | None) -> bool:
    """Whether a file is a table by its suffix, and not columns of words."""
    return path is not None and path.suffix.lower() in (".csv", ".json", ".jsonl", ".parquet")


def _check(options: DataOptions, train: Path | None) -> None:
    files = [path for path in (train, options.evaluation) if path is not None]
    if options.task in OWN_KINDS:
        if options.data is not None or not files:
            raise DataError(f"--task {options.task} is about your own files; name them with --train and --eval")
        return
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
