"""What a data set is to the rest of the package: a `Task` says what the rows mean, a `TaskData` holds them.

Whatever the source, the rows arrive in the same columns: `text`, for pairs also `text_pair`, and, where there are
labels, `label`: a class id in the order of `task.labels`, or a float for regression. Nothing downstream asks for a
task's name, so a user's own table is as good a task as MNLI.

MERGED-DOCS:
Rows in memory with the face of a `datasets.Dataset`, as far as scoring a packed model needs it.

A base install has no `datasets`, which brings hundreds of megabytes; evaluating a model should work there, too.

"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from ternarybert.data import metrics
from ternarybert.errors import MissingExtraError

if TYPE_CHECKING:
    from datasets import Dataset


class PlainRows:
    """Columns of equal length."""

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
        """Some of the rows, in the order asked."""
        return PlainRows({name: [values[row] for row in rows] for name, values in self._columns.items()})

    def remove_columns(self, name: str) -> PlainRows:
        """The rows without a column."""
        return PlainRows({other: values for other, values in self._columns.items() if other != name})

    def add_column(self, name: str, values: Sequence[Any]) -> PlainRows:
        """The rows with one more column."""
        return PlainRows({**self._columns, name: values})


@dataclass(frozen=True)
class Task:
    """One data set's meaning and the settings it is trained with; the defaults are the paper's (section 4.1)."""

    name: str
    text_columns: tuple[str, ...]  # one or two, as the source calls them
    label_column: str | None
    labels: tuple[str, ...] | None  # class names in the order of their ids; None for regression and when unknown
    metrics: tuple[str, ...]  # the first is the one models are selected by
    regression: bool = False
    positive: int = 1  # the class that F1 is about
    max_length: int = 128
    batch_size: int = 32
    epochs: int = 3
    epochs_augmented: int = 1  # augmented data are many times more, one pass is enough
    augment: bool | None = None  # whether the paper augments this task; None where it says nothing
    augment_variants: int = 20  # variants per example when it is augmented (TinyBERT's N)

    @property
    def pair(self) -> bool:
        """Whether an input is two texts."""
        return len(self.text_columns) == 2

    @property
    def num_labels(self) -> int | None:
        """How many outputs a model for this task has; None when the labels are not known."""
        if self.regression:
            return 1
        return len(self.labels) if self.labels else None

    def score(self, predictions: ArrayLike, references: ArrayLike) -> dict[str, float]:
        """Compute the metrics of the task, in percent where that makes sense."""
        return metrics.score(self.metrics, predictions, references, positive=self.positive)


@dataclass(frozen=True)
class TaskData:
    """A task with its rows. Either part may be missing: an evaluation needs no `train`."""

    task: Task
    train: Dataset | None
    evals: dict[str, Dataset]  # normally "dev"; MNLI has "dev_matched" and "dev_mismatched"


def make_dataset(texts: Sequence[Sequence[str]], labels: Sequence[int] | Sequence[float] | None) -> Dataset:
    """Rows in the canonical columns, from one or two columns of texts and maybe labels."""
    columns: dict[str, Sequence[object]] = dict(zip(("text", "text_pair"), texts, strict=False))
    if labels is not None:
        columns["label"] = labels
    try:
        return import_datasets().Dataset.from_dict(columns)
    except MissingExtraError:  # enough to score a packed model, which needs nothing else of what is missing
        return PlainRows(columns)


def import_datasets() -> ModuleType:
    """Import the `datasets` library, late because it takes a second and the runtime lives without it."""
    try:
        import datasets
    except ImportError as error:
        raise MissingExtraError("reading data sets needs more: pip install 'ternarybert[train]'") from error
    module: ModuleType = datasets
    return module
