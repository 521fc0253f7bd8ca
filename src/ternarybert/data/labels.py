"""Labels as people write them, class ids as models number them, and the mapping between the two.

A label in a file may be "pos", 3, "2.0" or True. It becomes a name (a string), or a number where the task is
regression. The model at hand decides which name has which id. Scored with another order, a student would be compared
with the wrong classes without an error, so labels are matched by name, never by position alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from ternarybert.data import metrics
from ternarybert.data.readers import Table
from ternarybert.data.task import TaskData
from ternarybert.errors import DataError, LabelError

if TYPE_CHECKING:
    from datasets import Dataset

    from ternarybert.data.classification import ClassificationTask

# No leading zeros: "007" is the name of a class, not a number.
_WHOLE = re.compile(r"([+-]?(?:0|[1-9]\d*))(?:\.0*)?")
_NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9]\d*)(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")


def read_labels(table: Table, column: str) -> list[str]:
    """Every row's label as text; an error names the row without one."""
    return [_as_text(value, table, row) for row, value in enumerate(table.column(column))]


def _as_text(value: object, table: Table, row: int) -> str:
    text = str(value).strip()
    if value is None or not text or (isinstance(value, float) and math.isnan(value)):
        raise DataError(f"{table.location(row)}: no label; drop the row, or the whole column to go without labels")
    if not isinstance(value, (str, int, float)):  # bool is an int
        raise DataError(f"{table.location(row)}: the label is a {type(value).__name__}, not a name or a number")
    whole = _WHOLE.fullmatch(text)
    return str(int(whole[1])) if whole else text


def as_number(text: str) -> float | None:
    """Parse a finite number; None if it is not one."""
    number = float(text) if _NUMBER.fullmatch(text) else math.nan
    return number if math.isfinite(number) else None


def are_continuous(labels: Iterable[str]) -> bool:
    """Whether labels can only mean regression: numbers, and not all of them whole."""
    numbers = [as_number(label) for label in labels]
    return None not in numbers and any(number != int(number) for number in numbers if number is not None)


def sorted_names(labels: Iterable[str]) -> tuple[str, ...]:
    """Distinct names in an order that does not depend on the rows: numbers by value, names alphabetically."""
    names = set(labels)
    if all(_WHOLE.fullmatch(name) for name in names):
        return tuple(sorted(names, key=int))
    return tuple(sorted(names))


def is_generic(names: Sequence[str]) -> bool:
    """Whether a model's label names are placeholders: LABEL_0, LABEL_1, ... or 0, 1, ..."""
    return all(name.upper().removeprefix("LABEL_") == str(i) for i, name in enumerate(names))


def match_labels(names: Sequence[str], teacher: Sequence[str]) -> dict[str, int]:
    """The model's id for each label in the data.

    Names match regardless of case and of how their words are joined. Labels that are all ids (0 to n-1, or False and
    True for two classes) are taken as ids.
    """
    by_name = _index(teacher)
    ids_by_name = {name: by_name.get(name, by_name.get(_key(name))) for name in names}
    unknown = [name for name, i in ids_by_name.items() if i is None]
    if not unknown:
        return {name: i for name, i in ids_by_name.items() if i is not None}
    ids = {str(i): i for i in range(len(teacher))} | ({"false": 0, "true": 1} if len(teacher) == 2 else {})
    if all(name.casefold() in ids for name in names):
        return {name: ids[name.casefold()] for name in names}
    if is_generic(teacher):
        raise LabelError(
            f"the teacher's labels have no names ({listed(teacher)}) and the data have {listed(unknown)}; write ids "
            f"from 0 to {len(teacher) - 1} into the data, or the names into id2label in the teacher's config.json"
        )
    raise LabelError(f"the teacher does not know {listed(unknown)}; its labels are {listed(teacher)}")


def _key(name: str) -> str:
    # Only separators between words: the minus of "-1" stays.
    return re.sub(r"(?<=\w)[-_\s]+(?=\w)", "", name.strip().casefold())


def _index(teacher: Sequence[str]) -> dict[str, int]:
    """Ids by exact name and by key; a key that two names share finds neither."""
    keys = [_key(name) for name in teacher]
    by_key = {key: i for i, key in enumerate(keys) if keys.count(key) == 1}
    return by_key | {name: i for i, name in enumerate(teacher)}


def align_labels(data: TaskData[ClassificationTask], id2label: Mapping[int, str]) -> TaskData[ClassificationTask]:
    """Renumber the labels of a task in the teacher's order.

    A teacher with placeholder names (LABEL_0, ...) is taken to use the task's own order. Data without labels take
    over the teacher's names.
    """
    teacher = _names_in_order(id2label)
    task = data.task
    if task.labels is None:
        return _unnamed(data, teacher)
    if len(teacher) != len(task.labels):
        raise LabelError(
            f"the teacher has {len(teacher)} labels ({listed(teacher)}), "
            f"the task {task.name} has {len(task.labels)} ({listed(task.labels)})"
        )
    if is_generic(teacher) or teacher == task.labels:
        return data
    ids = match_labels(task.labels, teacher)
    new_id = [ids[name] for name in task.labels]
    if len(set(new_id)) != len(teacher):
        raise LabelError(f"two of the labels {listed(task.labels)} match the same label of the teacher: {ids}")
    aligned = replace(task, labels=teacher, positive=new_id[task.positive])
    train = None if data.train is None else _renumber(data.train, new_id)
    return TaskData(aligned, train, {name: _renumber(rows, new_id) for name, rows in data.evals.items()})


def _names_in_order(id2label: Mapping[int, str]) -> tuple[str, ...]:
    by_id = {int(i): name for i, name in id2label.items()}  # JSON makes the ids strings
    if sorted(by_id) != list(range(len(by_id))):
        raise LabelError(f"the teacher's id2label must number its labels from 0; it has {sorted(by_id)}")
    return tuple(by_id[i] for i in range(len(by_id)))


def _unnamed(data: TaskData[ClassificationTask], teacher: tuple[str, ...]) -> TaskData[ClassificationTask]:
    """Regression, or data without labels; a teacher with a single output is one for regression."""
    task = data.task
    if task.regression and len(teacher) != 1:
        raise LabelError(f"{task.name} is regression (one output), the teacher has {len(teacher)} labels")
    if task.regression:
        return data
    if len(teacher) == 1:
        return replace(data, task=replace(task, regression=True, metrics=metrics.REGRESSION))
    return replace(data, task=replace(task, labels=teacher))


def _renumber(rows: Dataset, new_id: Sequence[int]) -> Dataset:
    if "label" not in rows.column_names:
        return rows
    labels = [new_id[label] for label in rows["label"]]
    return rows.remove_columns("label").add_column("label", labels)


_TINY = 3  # a class with fewer rows can hardly be learned
_RARE = 0.1  # of the rows of a class with nearly the same name: then the name is a typo, maybe
_SIMILAR = 0.85  # similarity of two names, from 0 to 1
_MOST_COMPARED = 300  # class names; each is compared with each


def label_warnings(labels: Sequence[str]) -> list[str]:
    """What looks like a mistake in a column of class names: classes of a few rows, names that are nearly equal."""
    counts = Counter(labels)
    warned: list[str] = []
    for name, near in _near_names(counts):
        warned.append(f"the labels '{name}' ({counts[name]} rows) and '{near}' ({counts[near]}) are nearly the same")
    tiny = [name for name in sorted_names(labels) if counts[name] < _TINY]
    if tiny and len(labels) >= _TINY * len(counts):
        rows = ", ".join(f"'{name}' ({counts[name]})" for name in tiny[:8]) + (" ..." if len(tiny) > 8 else "")
        warned.append(f"{len(tiny)} of {len(counts)} classes have fewer than {_TINY} rows: {rows}")
    return warned


def _near_names(counts: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Pairs of names that may be meant as one, the rarer first: they differ in case or blanks only, or in a letter."""
    names = sorted(counts, key=lambda name: counts[name])[:_MOST_COMPARED]
    for i, name in enumerate(names):
        for other in names[i + 1 :]:
            if _key(name) == _key(other) or (
                counts[name] <= _RARE * counts[other]
                and re.sub(r"\D", "", name) == re.sub(r"\D", "", other)  # step 1 and step 2 are two names
                and SequenceMatcher(None, name.casefold(), other.casefold()).ratio() >= _SIMILAR
            ):
                yield name, other
                break


def listed(names: Sequence[str], most: int = 8) -> str:
    """Quote names for a message, the first few when there are many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"'{name}'" for name in names[:most]) + more
