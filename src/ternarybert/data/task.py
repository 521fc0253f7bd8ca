"""A data set as the rest of the package sees it: a `Task` gives its meaning, a `TaskData` holds its examples.

There is one subclass of `Task` for each kind of task, listed below. A new kind needs a subclass in a module of its own
here, a loader (cli/data.py), an entry in `data/kinds.py`, a head in `training/heads/` and an entry in
`runtime/evaluate.py`. The training loop, checkpoints and reports do not depend on the kind.

What an example is, and what a model predicts for it, is up to the kind:

| kind                 | examples              | predictions              |
|----------------------|-----------------------|--------------------------|
| classification       | a `Dataset` of texts  | logits (N, classes)      |
| question answering   | a list of `Question`  | a list of `Prediction`   |
| embedding            | a `Dataset` of texts  | vectors (N, dimensions)  |
| token classification | a list of `Sentence`  | a list of tags for each  |
| multi-label          | a `Dataset` of texts  | `LabelChoices`           |
| reranking            | a `Dataset` of pairs  | logits (N, 1)            |

Nothing here imports torch, so that packed models are scored without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

from ternarybert.errors import MissingExtraError

if TYPE_CHECKING:
    from datasets import Dataset

Scores: TypeAlias = dict[str, float]
ScoresBySet: TypeAlias = dict[str, Scores]  # evaluation set, then metric


class Task(ABC):
    """The meaning of a data set, its metrics, and the settings it is trained with."""

    kind: ClassVar[str]  # the key of every table of kinds
    unit: ClassVar[str]  # what its examples are called: rows, questions

    name: str
    metrics: tuple[str, ...]  # models are selected by the first
    max_length: int
    batch_size: int
    epochs: int

    @property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes in the order of their ids; empty where there are none."""
        return ()

    @abstractmethod
    def identity(self) -> object:
        """What tells two tasks of one name apart, as JSON: part of the plan that a resumed run must share."""

    @abstractmethod
    def fit(self, data: TaskData[Any], config: Mapping[str, Any]) -> TaskData[Any]:
        """Adapt the data to a trained model with this config.json: its order of labels, its threshold."""

    @abstractmethod
    def has_references(self, examples: Any) -> bool:
        """Whether these examples come with labels or answers to score against."""

    @abstractmethod
    def scores(self, examples: Any, predictions: Any, teacher: Any = None) -> Scores:
        """Metrics against the references, where there are any, and agreement with a teacher's predictions."""

    def confusion(self, examples: Any, predictions: Any) -> list[list[int]] | None:
        """Count predictions by class, a row per true class; None where there are no classes or no labels."""
        return None

    def calibration(self, examples: Any, predictions: Any) -> list[list[float]] | None:
        """By bins of the probability: how many, their mean probability, the share that is true; None without labels."""
        return None

    @abstractmethod
    def sample(self, examples: Any, count: int) -> Any:
        """Choose `count` of the examples, the same ones every time."""

    @abstractmethod
    def describe(self, data: TaskData[Any]) -> str:
        """Summarize columns, labels or answers in a few words."""

    def main_metric(self, scores: Mapping[str, float]) -> str:
        """The name of the score that models are selected by; without references that is agreement."""
        return next((name for name in self.metrics if name in scores), "agreement")


TaskT = TypeVar("TaskT", bound=Task, covariant=True)


@dataclass(frozen=True)
class TaskData(Generic[TaskT]):
    """A task with its examples. Either part may be missing: an evaluation needs no `train`."""

    task: TaskT
    train: Any | None
    evals: dict[str, Any]  # normally "dev"; MNLI has "dev_matched" and "dev_mismatched"


class PlainRows:
    """Columns of equal length, with the part of the interface of `datasets.Dataset` that scoring needs.

    A base install has no `datasets`, which brings hundreds of megabytes; a packed model can be evaluated there too.
    """

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        self._columns = {name: list(values) for name, values in columns.items()}

    @property
    def column_names(self) -> list[str]:
        """The names of the columns, in order."""
        return list(self._columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, name: str) -> list[Any]:
        return self._columns[name]

    def select(self, rows: Sequence[int]) -> PlainRows:
        """Some of the rows, in the given order."""
        return PlainRows({name: [values[row] for row in rows] for name, values in self._columns.items()})

    def remove_columns(self, name: str) -> PlainRows:
        """The rows without a column."""
        return PlainRows({other: values for other, values in self._columns.items() if other != name})

    def add_column(self, name: str, values: Sequence[Any]) -> PlainRows:
        """The rows with one more column."""
        return PlainRows({**self._columns, name: values})


def make_dataset(texts: Sequence[Sequence[str]], labels: Sequence[int] | Sequence[float] | None) -> Dataset:
    """Make rows with the columns `text`, `text_pair` and `label` from one or two columns of texts and maybe labels."""
    columns: dict[str, Sequence[object]] = dict(zip(("text", "text_pair"), texts, strict=False))
    if labels is not None:
        columns["label"] = labels
    try:
        return import_datasets().Dataset.from_dict(columns)
    except MissingExtraError:
        return PlainRows(columns)


def import_datasets() -> ModuleType:
    """Import the `datasets` library, late because it takes a second and the runtime works without it."""
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("reading data sets needs more: pip install 'ternarybert[train]'") from error
    module: ModuleType = datasets
    return module
