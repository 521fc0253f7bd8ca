"""The user's own table as a task: any file format, any column names, any label names.

Columns that the user names must exist. Others are guessed only where a person would not hesitate: a wrong guess would
train a model on the wrong column for an hour. The chosen columns, the labels and whether it is regression are kept in
the task, so that the caller can show them. A table without labels is fine: distillation learns from the teacher.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from ternarybert.data import metrics
from ternarybert.data.classification import ClassificationTask
from ternarybert.data.labels import (
    are_continuous,
    as_number,
    label_warnings,
    listed,
    match_labels,
    read_labels,
    sorted_names,
)
from ternarybert.data.readers import Table, read_table
from ternarybert.data.task import TaskData, make_dataset
from ternarybert.errors import DataError, LabelError, suggest

_log = logging.getLogger(__name__)
_TEXT_NAMES = ("text", "sentence", "review", "content", "comment", "message", "document", "tweet", "utterance", "body")
_PAIR_NAMES = (
    ("text", "text_pair"),
    ("text_a", "text_b"),
    ("text1", "text2"),
    ("sentence1", "sentence2"),
    ("sentence_1", "sentence_2"),
    ("question1", "question2"),
    ("premise", "hypothesis"),
)
_LABEL_NAMES = ("label", "labels", "class", "category", "target", "score", "rating")


@dataclass(frozen=True)
class Columns:
    """Names of one or two text columns and maybe a label column."""

    texts: tuple[str, ...]
    label: str | None


def choose_columns(tables: Sequence[Table], text: str | None, text_pair: str | None, label: str | None) -> Columns:
    """Settle the columns for a training and an evaluation table together.

    The first table with named columns decides about the texts. The label may be in any: a student can learn from
    unlabeled text and be judged on a labeled table.
    """
    lead = next((table for table in tables if table.named), tables[0])
    label = _label(tables, lead, label, taken={text, text_pair})
    texts = _text_columns(lead, text, text_pair, label)
    for table in tables:
        _check_texts(table, texts, lead)
    _check_labels(tables, label)
    return Columns(texts, label)


def _label(tables: Sequence[Table], lead: Table, label: str | None, taken: Collection[str | None]) -> str | None:
    if label is None:
        guesses = (_find(table, _LABEL_NAMES, taken) for table in tables if table.named)
        return next((guess for guess in guesses if guess), None)
    if not any(label in table.columns for table in tables if table.named):
        lead.column(label)  # raises, and names the nearest column
    return label


def _text_columns(table: Table, text: str | None, text_pair: str | None, label: str | None) -> tuple[str, ...]:
    for name in (text, text_pair):
        if name is not None and table.named:
            table.column(name)
    if text not in (None, "text") and not table.named:
        raise DataError(f"{table.path} holds one text a line and has no column '{text}'; leave it out")
    if text is None and text_pair is None:
        both = next((pair for names in _PAIR_NAMES if (pair := _find_all(table, names, label))), None)
        if both:
            return both
    text = text or _guess_text(table, taken={text_pair, label})
    chosen = (text,) if text_pair is None else (text, text_pair)
    if len({*chosen, label}) <= len(chosen):
        raise DataError(f"the same column of {table.path} is named twice: {', '.join(chosen)}, label {label}")
    return chosen


def _guess_text(table: Table, taken: Collection[str | None]) -> str:
    known = _find(table, _TEXT_NAMES, taken)
    if known:
        return known
    wordy = [name for name, values in table.columns.items() if name not in taken and _has_words(values)]
    if len(wordy) != 1:
        seen = ", ".join(table.columns)
        raise DataError(f"which column of {table.path} is the text? Name it (text=..., --text); columns: {seen}")
    return wordy[0]


def _has_words(values: Sequence[object]) -> bool:
    """Whether a column holds strings, and not only numbers written as strings."""
    present = [value for value in values if value is not None]
    strings = [value for value in present if isinstance(value, str)]
    return len(strings) == len(present) and any(as_number(value.strip() or "0") is None for value in strings)


def _find(table: Table, names: Sequence[str], taken: Collection[str | None]) -> str | None:
    """Give the column with the first of some usual names, in any case."""
    by_name = {name.casefold(): name for name in table.columns if name not in taken}
    return next((by_name[name] for name in names if name in by_name), None)


def _find_all(table: Table, names: tuple[str, str], label: str | None) -> tuple[str, ...] | None:
    found = tuple(column for name in names if (column := _find(table, (name,), {label})))
    return found if len(found) == len(names) else None


def _check_texts(table: Table, texts: tuple[str, ...], lead: Table) -> None:
    if not table.named and len(texts) > 1:
        raise DataError(f"{table.path} holds one text a line; pairs need a table with two columns")
    missing = [name for name in texts if table.named and name not in table.columns]
    if missing:
        raise DataError(
            f"{table.path} has no column '{missing[0]}', {lead.path} has{suggest(missing[0], table.columns)}"
        )


def _check_labels(tables: Sequence[Table], label: str | None) -> None:
    """Refuse an evaluation table without labels beside a training table that has them."""
    train, last = tables[0], tables[-1]
    if label is not None and has_label(train, label) and not has_label(last, label):
        raise DataError(f"{last.path} has no column '{label}', {train.path} has; the labels are needed in both")


def require_label(table: Table, label: str | None) -> None:
    """Refuse a table to learn from that has no label column."""
    if not table.named:
        raise DataError(f"{table.path} holds texts without labels; learning them needs a table with a label column")
    if not has_label(table, label):
        seen = ", ".join(table.columns)
        raise DataError(f"which column of {table.path} is the label? Name it (label=..., --label); columns: {seen}")


def has_label(table: Table, label: str | None) -> bool:
    """Whether a table holds the label column."""
    return table.named and label in table.columns


# From this many rows on, a table in which most rows have a label of their own is not meant as classification.
_ENOUGH_ROWS = 20


def load_table(
    train: str | Path | None,
    evaluation: str | Path | None = None,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    regression: bool | None = None,
    labeled: bool = False,
    eval_share: float = 0.1,
    seed: int = 42,
) -> TaskData[ClassificationTask]:
    """Read a table of texts from CSV, TSV, JSON lines, parquet, or a text file with one text a line.

    Columns that are not named are guessed where it is obvious. `labels` are the teacher's, in the order of its ids;
    without them the order is sorted. Labels that are numbers and not all whole mean regression, unless `regression`
    says otherwise; a teacher with a single label is one for regression. `labeled` refuses training rows that have no
    labels. Without an evaluation file, `eval_share` of the rows is held out, the same rows for the same seed.
    """
    tables = _read(train, evaluation)
    columns = choose_columns(list(tables.values()), text, text_pair, label)
    if labeled and "train" in tables:
        require_label(tables["train"], columns.label)
    written = _written_labels(tables, columns.label)
    if _is_regression(written, labels, regression):
        numbers = {part: _numbers(values, tables[part]) for part, values in written.items()}
        if labels is None and regression is None:
            _log.warning(
                "the labels '%s' are numbers, and not all of them whole: this is regression; if they are names of "
                "classes, use --no-regression (regression=False)",
                columns.label,
            )
        task = _task(tables, columns, None, metrics.REGRESSION)
        return _data(task, tables, numbers, eval_share, seed)
    names, ids = _classes(written, tables, labels)
    task = _task(tables, columns, names, metrics.CLASSIFICATION if written else metrics.UNLABELLED)
    return _data(task, tables, ids, eval_share, seed)


def _read(train: str | Path | None, evaluation: str | Path | None) -> dict[str, Table]:
    paths = {"train": train, "dev": evaluation}
    tables = {part: read_table(path) for part, path in paths.items() if path is not None}
    if not tables:
        raise DataError("no data: give a training file, an evaluation file or both")
    return tables


def _written_labels(tables: Mapping[str, Table], label: str | None) -> dict[str, list[str]]:
    """Give the labels of each part that has them, as written."""
    if label is None:
        return {}
    return {part: read_labels(table, label) for part, table in tables.items() if has_label(table, label)}


def _task(
    tables: Mapping[str, Table], columns: Columns, names: tuple[str, ...] | None, scores: tuple[str, ...]
) -> ClassificationTask:
    return ClassificationTask(
        name=next(iter(tables.values())).path.stem,
        text_columns=columns.texts,
        label_column=columns.label,
        labels=names,
        metrics=scores,
        regression=scores == metrics.REGRESSION,
    )


def _data(
    task: ClassificationTask,
    tables: Mapping[str, Table],
    labels: Mapping[str, Sequence[float]],
    eval_share: float,
    seed: int,
) -> TaskData[ClassificationTask]:
    texts = {part: read_texts(table, task.text_columns) for part, table in tables.items()}
    rows = {part: make_dataset(columns, labels.get(part)) for part, columns in texts.items()}
    train = rows.pop("train", None)
    if rows or not eval_share:
        return TaskData(task, train, rows)
    groups = None if task.regression else labels.get("train")
    kept, held = hold_out_rows(len(tables["train"]), groups, eval_share, seed)
    return TaskData(task, train.select(kept), {"dev": train.select(held)})


def read_texts(table: Table, names: Sequence[str]) -> list[list[str]]:
    """Give the text columns, every value checked: the first may not be blank, the second may."""
    columns = [table.column(name if table.named else "text") for name in names]
    for name, values in zip(names, columns, strict=True):
        for row, value in enumerate(values):
            fault = _fault(value, may_be_blank=name != names[0])
            if fault:
                raise DataError(f"{table.location(row)}: '{name}' {fault}")
    return [[str(value) for value in values] for values in columns]


def _fault(value: object, may_be_blank: bool) -> str | None:
    """Say what is wrong with a text, if anything."""
    if value is None:
        return "is missing; drop the row"
    if not isinstance(value, str):
        return f"is {value!r:.40} ({type(value).__name__}), not a text"
    return None if may_be_blank or value.strip() else "is empty; drop the row"


def _is_regression(written: Mapping[str, Sequence[str]], teacher: Sequence[str] | None, chosen: bool | None) -> bool:
    if chosen and teacher is not None and len(teacher) != 1:
        raise LabelError(f"regression needs a teacher with one output; this one has the labels {listed(teacher)}")
    if chosen is not None:
        return chosen
    if teacher is not None:
        return len(teacher) == 1
    return bool(written) and are_continuous(chain.from_iterable(written.values()))


def _numbers(labels: Sequence[str], table: Table) -> list[float]:
    numbers: list[float] = []
    for row, label in enumerate(labels):
        number = as_number(label)
        if number is None:
            raise LabelError(f"{table.location(row)}: the label '{label}' is not a number, and the task is regression")
        numbers.append(number)
    return numbers


def _classes(
    written: Mapping[str, Sequence[str]], tables: Mapping[str, Table], teacher: Sequence[str] | None
) -> tuple[tuple[str, ...] | None, dict[str, list[int]]]:
    """Class names in the order of their ids, and each part's labels as ids."""
    if teacher is not None:
        names = tuple(teacher)
        ids = match_labels(sorted_names(chain.from_iterable(written.values())), names)
    elif written:
        first = next(iter(written))
        names = _own_names(written[first], tables[first])
        ids = {name: i for i, name in enumerate(names)}
    else:
        return None, {}
    for part, labels in written.items():
        unseen = sorted_names(set(labels) - set(ids))
        if unseen:
            raise LabelError(f"{tables[part].path} has labels that the training file has not: {listed(unseen)}")
    return names, {part: [ids[label] for label in labels] for part, labels in written.items()}


def _own_names(labels: Sequence[str], table: Table) -> tuple[str, ...]:
    names = sorted_names(labels)
    for line in label_warnings(labels):
        _log.warning("%s: %s", table.path, line)
    if len(names) == 1:
        raise LabelError(f"every label in {table.path} is '{names[0]}'; there is nothing to tell apart")
    if 2 * len(names) > len(labels) >= _ENOUGH_ROWS:
        raise LabelError(
            f"{table.path} has {len(names)} different labels in {len(labels)} rows, too many for classes; "
            "name another label column, or ask for regression if they are amounts"
        )
    return names


def hold_out_rows(rows: int, groups: Sequence[float] | None, share: float, seed: int) -> tuple[list[int], list[int]]:
    """Split row numbers into kept and held out, every class in proportion.

    Rows are shuffled, sorted by class and picked at even steps, so each class gives its share to within one row.
    The only row of a class is always kept: nothing could be learned about it otherwise.
    """
    if not 0 < share < 1:
        raise DataError(f"the held-out share must be at least 0 and below 1, not {share}")
    classes = [0.0] * rows if groups is None else groups
    size = Counter(classes)
    order = [row for row in range(rows) if size[classes[row]] > 1]
    random.Random(seed).shuffle(order)
    order.sort(key=lambda row: classes[row])
    count = min(max(1, round(share * rows)), len(order) - 1)
    if count < 1:
        raise DataError("too few rows to hold any out; give an evaluation file")
    held = {order[int((i + 0.5) * len(order) / count)] for i in range(count)}
    return [row for row in range(rows) if row not in held], sorted(held)
