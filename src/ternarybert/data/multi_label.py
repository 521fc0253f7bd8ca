"""Several labels for a text, or none: topics, guardrails, routes.

Rows have the columns of `ClassificationTask`, but `label` is a list with 0 or 1 for each label. A label applies where
its probability reaches its threshold. The best threshold of each label is found on held-out rows and kept in the
model's `config.json` under `multi_label`.
"""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ternarybert.data.labels import is_generic, listed, match_labels, sorted_names
from ternarybert.data.ranking import average_precision
from ternarybert.data.readers import Table, read_table
from ternarybert.data.table import Columns, choose_columns, hold_out_rows, read_texts
from ternarybert.data.task import Scores, Task, TaskData, make_dataset
from ternarybert.errors import DataError, LabelError

_log = logging.getLogger(__name__)
MULTI_LABEL = "multi-label"
SECTION = "multi_label"  # the key in a model's config.json
_HALF = 0.5
_BINS = 10  # of probabilities, for the calibration error


@dataclass(frozen=True, eq=False)
class LabelChoices:
    """What a model says about each row: the probability of every label, and whether it applies."""

    probabilities: NDArray[np.float64]  # (N, labels)
    chosen: NDArray[np.bool_]


@dataclass(frozen=True)
class MultiLabelTask(Task):
    """Labels for every text, each by itself."""

    name: str
    text_columns: tuple[str, ...]
    labels: tuple[str, ...] | None = None  # in the order of their ids; None when unknown
    thresholds: tuple[float, ...] | None = None  # of the labels; None: one half for all
    metrics: tuple[str, ...] = ("micro_f1", "macro_f1", "average_precision")
    max_length: int = 128
    batch_size: int = 32
    epochs: int = 3

    kind = MULTI_LABEL
    unit = "rows"

    def identity(self) -> object:
        """The labels in their order."""
        return self.labels

    def fit(self, data: TaskData[MultiLabelTask], config: Mapping[str, Any]) -> TaskData[MultiLabelTask]:
        """Use the model's labels in its order, and its thresholds."""
        names = tuple(str(name) for _, name in sorted((int(i), name) for i, name in config["id2label"].items()))
        thresholds = model_thresholds(config, names)
        if self.labels is None or names == self.labels:
            return replace(data, task=replace(self, labels=names, thresholds=thresholds))
        if len(names) != len(self.labels):
            raise LabelError(f"the model has {len(names)} labels, the data have {len(self.labels)}")
        if is_generic(names):
            return replace(data, task=replace(self, thresholds=thresholds))
        ids = match_labels(self.labels, names)
        order = [self.labels.index(name) for name in sorted(ids, key=lambda name: ids[name])]
        parts = {name: _reordered(rows, order) for name, rows in data.evals.items()}
        train = None if data.train is None else _reordered(data.train, order)
        return TaskData(replace(self, labels=names, thresholds=thresholds), train, parts)

    def has_references(self, examples: Any) -> bool:
        """Whether there is a column of labels."""
        return "label" in examples.column_names

    def choices(self, logits: NDArray[Any]) -> LabelChoices:
        """Probabilities of logits (N, labels), and what applies by the thresholds."""
        if not np.isfinite(logits).all():
            raise DataError("the logits are not finite; the model is broken")
        probabilities = probability(logits)
        return LabelChoices(probabilities, probabilities >= np.asarray(self.thresholds or _HALF))

    def scores(self, examples: Any, predictions: LabelChoices, teacher: LabelChoices | None = None) -> Scores:
        """F1 of all decisions and the mean over the labels, average precision, and the error of the probabilities.

        Agreement is the F1 of the labels with the teacher's.
        """
        scores: Scores = {}
        if self.has_references(examples):
            wanted = np.asarray(examples["label"], dtype=bool)
            scores = {
                "micro_f1": micro_f1(predictions.chosen, wanted),
                "macro_f1": macro_f1(predictions.chosen, wanted),
                "average_precision": mean_average_precision(predictions.probabilities, wanted),
                "calibration_error": calibration_error(predictions.probabilities, wanted),
            }
        if teacher is not None:
            either = bool((predictions.chosen | teacher.chosen).any())
            scores["agreement"] = micro_f1(predictions.chosen, teacher.chosen) if either else 1.0
        return {name: 100 * value for name, value in scores.items()}

    def calibration(self, examples: Any, predictions: LabelChoices) -> list[list[float]] | None:
        """Of all labels together: decisions in each tenth of the probability, mean probability, share that applies."""
        if not self.has_references(examples):
            return None
        flat, right = predictions.probabilities.ravel(), np.asarray(examples["label"], np.float64).ravel()
        parts = [(flat[inside], right[inside]) for i in range(_BINS) if (inside := _bins(flat) == i).any()]
        return [[float(len(some)), float(some.mean()), float(true.mean())] for some, true in parts]

    def tuned(self, examples: Any, logits: NDArray[Any]) -> MultiLabelTask:
        """With the thresholds that are best on these rows."""
        probabilities, wanted = probability(logits), np.asarray(examples["label"], dtype=bool)
        found = [best_threshold(probabilities[:, i], wanted[:, i]) for i in range(wanted.shape[1])]
        return replace(self, thresholds=tuple(found))

    def sample(self, examples: Any, count: int) -> Any:
        """A random choice, the same for a number of rows."""
        return examples.select(random.Random(0).sample(range(len(examples)), count))

    def describe(self, data: TaskData[Any]) -> str:
        """The columns of texts, and the labels."""
        texts = " and ".join(f"'{name}'" for name in self.text_columns)
        return f"texts {texts}, " + (f"several of {listed(self.labels)}" if self.labels else "no labels")


def probability(logits: NDArray[Any]) -> NDArray[np.float64]:
    """The probability of each label by itself."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * logits.astype(np.float64))))  # a sigmoid that never overflows


def micro_f1(chosen: NDArray[Any], wanted: NDArray[Any]) -> float:
    """F1 of all decisions together."""
    total = int(chosen.sum()) + int(wanted.sum())
    return 2 * int((chosen & wanted).sum()) / total if total else 0.0


def macro_f1(chosen: NDArray[Any], wanted: NDArray[Any]) -> float:
    """The mean of the labels' F1; one that is neither chosen nor wanted has 0, as in scikit-learn."""
    return float(np.mean([micro_f1(chosen[:, i], wanted[:, i]) for i in range(wanted.shape[1])]))


def mean_average_precision(probabilities: NDArray[Any], wanted: NDArray[Any]) -> float:
    """The mean over the labels that occur."""
    present = [i for i in range(wanted.shape[1]) if wanted[:, i].any()]
    values = [average_precision(probabilities[:, i], wanted[:, i].astype(int)) for i in present]
    return float(np.mean(values)) if values else 0.0


def calibration_error(probabilities: NDArray[Any], wanted: NDArray[Any]) -> float:
    """How far probabilities are from the share of labels that apply: the mean over ten bins, by their sizes."""
    flat, right = probabilities.ravel(), wanted.ravel().astype(np.float64)
    bins = _bins(flat)
    gaps = [abs(float((flat[bins == i] - right[bins == i]).sum())) for i in range(_BINS)]
    return sum(gaps) / flat.size


def _bins(probabilities: NDArray[Any]) -> NDArray[np.int64]:
    return np.minimum((probabilities * _BINS).astype(np.int64), _BINS - 1)


def best_threshold(probabilities: NDArray[Any], wanted: NDArray[Any]) -> float:
    """The threshold with the highest F1, between two neighboring probabilities; one half for a label without rows."""
    if not wanted.any():
        return _HALF
    order = np.argsort(-probabilities, kind="stable")
    values, hits = probabilities[order], np.cumsum(wanted[order])
    last = np.append(np.flatnonzero(np.diff(values)), len(values) - 1)  # of every run of equal probabilities
    f1 = 2 * hits[last] / (last + 1 + hits[-1])
    best = int(last[int(f1.argmax())])
    below = values[best + 1] if best + 1 < len(values) else 0.0
    return float((values[best] + below) / 2)


def model_thresholds(config: Mapping[str, Any], labels: Sequence[str]) -> tuple[float, ...] | None:
    """The thresholds in a model's config.json; None where it has none."""
    section = config.get(SECTION)
    if section is None:
        return None
    values = section.get("thresholds") if isinstance(section, Mapping) else None
    if not isinstance(values, Mapping) or set(values) != set(labels):
        raise DataError(f"config.json: '{SECTION}.thresholds' must have a number for each label")
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise DataError(f"config.json: the threshold of '{name:.40}' is {value!r:.40}, not a number from 0 to 1")
    return tuple(float(values[name]) for name in labels)


def _reordered(rows: Any, order: Sequence[int]) -> Any:
    if "label" not in rows.column_names:
        return rows
    labels = [[row[i] for i in order] for row in rows["label"]]
    return rows.remove_columns("label").add_column("label", labels)


# --- reading ---


def load_multi_label(
    train: str | Path | None,
    evaluation: str | Path | None = None,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    labels: Sequence[str] | None = None,
    labeled: bool = False,
    eval_share: float = 0.1,
    seed: int = 42,
) -> TaskData[MultiLabelTask]:
    """Read texts with several labels each: a column of lists, or a column of 0 and 1 per label.

    `label` names the column of lists, or the columns of the labels, separated by commas. `labels` are the model's, in
    the order of its ids. Other options are those of `load_table`.
    """
    files = {part: path for part, path in (("train", train), ("dev", evaluation)) if path is not None}
    if not files:
        raise DataError("no data: give a training file, an evaluation file or both")
    tables = {part: read_table(path) for part, path in files.items()}
    named = _label_columns(tables, label, labels)
    columns = _text_columns(list(tables.values()), text, text_pair, named)
    found = {part: _label_sets(table, named) for part, table in tables.items()}
    if labeled and found.get("train") is None:
        raise DataError(f"{train} has no labels; name the column of lists, or the columns of the labels (--label)")
    names = _names(found, named, labels)
    rows = {}
    for part, table in tables.items():
        vectors = None if found[part] is None or names is None else _vectors(table, found[part] or [], names)
        rows[part] = make_dataset(read_texts(table, columns.texts), vectors)  # type: ignore[arg-type]
    task = MultiLabelTask(Path(next(iter(files.values()))).stem, columns.texts, names)
    held = rows.pop("train", None)
    if rows or not eval_share:
        return TaskData(task, held, rows)
    kept, aside = hold_out_rows(len(tables["train"]), None, eval_share, seed)
    return TaskData(task, held.select(kept), {"dev": held.select(aside)})


def holds_label_lists(path: str | Path, label: str | None = None) -> bool:
    """Whether the rows of a JSON lines file have a list as their label."""
    path = Path(path)
    if path.suffix.lower() not in (".jsonl", ".json") or not path.is_file():
        return False
    try:
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            row = json.loads(next(filter(str.strip, file), "null"))
    except ValueError:
        return False
    wanted = (label,) if label else ("labels", "label")
    return isinstance(row, dict) and any(isinstance(row.get(name), list) for name in wanted) and "tokens" not in row


def _label_columns(tables: Mapping[str, Table], label: str | None, labels: Sequence[str] | None) -> tuple[str, ...]:
    """The column of lists, or those of the labels; none for texts without labels."""
    lead = next(iter(tables.values()))
    if label is not None:
        names = tuple(name.strip() for name in label.split(","))
        for name in names:
            lead.column(name)
        return names
    usual = next((name for name in ("labels", "label") if lead.named and name in lead.columns), None)
    if usual is not None:
        return (usual,)
    marks = [name for name, values in lead.columns.items() if _are_marks(values)]
    return tuple(name for name in marks if labels is None or name in labels)


def _are_marks(values: Sequence[object]) -> bool:
    """Whether most of a column is 0 or 1: a bad cell is then an error, and does not cost the label."""
    return sum(str(value).strip() in ("0", "1") for value in values) > len(values) / 2


def _text_columns(tables: Sequence[Table], text: str | None, text_pair: str | None, marks: Sequence[str]) -> Columns:
    bare = [replace(table, columns={n: v for n, v in table.columns.items() if n not in marks}) for table in tables]
    return choose_columns(bare, text, text_pair, None)


def _label_sets(table: Table, columns: Sequence[str]) -> list[list[str]] | None:
    """The labels of every row; None if the table has no such column."""
    if not table.named or not columns or not all(name in table.columns for name in columns):
        return None
    if len(columns) > 1:
        return [[n for n in columns if _mark(table, row, n)] for row in range(len(table))]
    return [_label_list(table.location(row), value, columns[0]) for row, value in enumerate(table.column(columns[0]))]


def _mark(table: Table, row: int, name: str) -> bool:
    value = str(table.column(name)[row]).strip()
    if value not in ("0", "1"):
        raise LabelError(
            f"{table.location(row)}: '{name}' is {value!r:.40}; a column per label has 0 or 1 "
            "(if it is no label, name the labels with --label)"
        )
    return value == "1"


def _label_list(place: str, value: object, name: str) -> list[str]:
    if isinstance(value, str):
        raise LabelError(f"{place}: '{name}' is the string {value!r:.40}; write a list in JSON lines, such as [\"a\"]")
    if not isinstance(value, list):
        raise LabelError(f"{place}: '{name}' is {value!r:.40}, not a list; write an empty list where nothing applies")
    for one in value:
        if not isinstance(one, str) or not one.strip():
            raise LabelError(f"{place}: {one!r:.40} in '{name}' is not the name of a label")
    if len(set(value)) != len(value):
        raise LabelError(f"{place}: '{name}' has a label twice: {value!r:.60}")
    return [one.strip() for one in value]


def _names(
    found: Mapping[str, list[list[str]] | None], columns: Sequence[str], labels: Sequence[str] | None
) -> tuple[str, ...] | None:
    """The labels in the order of their ids."""
    first = next((rows for rows in found.values() if rows is not None), None)
    if first is None:
        return None if labels is None else tuple(labels)
    seen = set(chain.from_iterable(first))
    names = tuple(labels) if labels is not None else columns if len(columns) > 1 else sorted_names(seen)
    if len(names) < 2:
        raise LabelError(f"there must be at least two labels, not {len(names)}; for one, use a column of classes")
    never = [name for name in names if name not in seen]
    if never:
        _log.warning("%d labels never occur in the first file: %s", len(never), listed(never))
    return tuple(names)


def _vectors(table: Table, rows: Sequence[Sequence[str]], names: Sequence[str]) -> list[list[float]]:
    ids = {name: i for i, name in enumerate(names)}
    vectors = []
    for row, chosen in enumerate(rows):
        vector = [0.0] * len(names)
        for name in chosen:
            if name not in ids:
                raise LabelError(f"{table.location(row)}: unknown label '{name}'; the labels are {listed(names)}")
            vector[ids[name]] = 1.0
        vectors.append(vector)
    return vectors
