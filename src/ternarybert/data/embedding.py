"""Texts for an embedder, one vector each: no labels are needed, the teacher's vectors are what is learned.

Rows have the column `text`. A pair counts as two texts. An evaluation set may also be pairs with a score of their
similarity (STS): `text`, `text_pair` and `label`; then the correlation of the cosines with the scores is measured too.
Any evaluation set is scored by the mean cosine of student's and teacher's vectors. What a model predicts is an array
with a row per text, of scored pairs all first texts and then all second ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ternarybert.data import metrics
from ternarybert.data.labels import as_number
from ternarybert.data.readers import Table, read_table
from ternarybert.data.table import choose_columns, hold_out_rows, read_texts
from ternarybert.data.task import Scores, Task, TaskData, make_dataset
from ternarybert.errors import DataError, LabelError

EMBEDDING = "embedding"
_HELD_OUT = 1000  # texts at most: the mean cosine of a thousand is known to a thousandth


@dataclass(frozen=True)
class EmbeddingTask(Task):
    """A vector for every text."""

    name: str
    text_columns: tuple[str, ...] = ("text",)
    metrics: tuple[str, ...] = ("spearman", "pearson", "cosine")
    max_length: int = 512  # at most; the model's own length where that is shorter
    batch_size: int = 32
    epochs: int = 3
    pooling: str | None = None  # of a model without modules; None: the model's own
    similarity_weight: float = 0.0  # of the error of the similarities within a batch, beside that of the vectors

    kind = EMBEDDING
    unit = "texts"

    def identity(self) -> object:
        """The pooling, and the weight of the similarities."""
        return [self.pooling, self.similarity_weight]

    def fit(self, data: TaskData[EmbeddingTask], config: Mapping[str, Any]) -> TaskData[EmbeddingTask]:
        """Texts fit every model."""
        return data

    def has_references(self, examples: Any) -> bool:
        """Whether these are pairs with scores."""
        return "label" in examples.column_names

    def scores(self, examples: Any, predictions: NDArray[Any], teacher: NDArray[Any] | None = None) -> Scores:
        """Correlations with the scores of pairs, and the mean cosine to the teacher's vectors, in percent."""
        scores: Scores = {}
        if self.has_references(examples):
            first, second = np.split(predictions, 2)
            scores.update(metrics.score(("spearman", "pearson"), cosines(first, second), examples["label"]))
        if teacher is not None:
            scores["cosine"] = 100 * float(np.mean(cosines(predictions, teacher)))
        return scores

    def sample(self, examples: Any, count: int) -> Any:
        """A random choice, the same for a number of texts."""
        return examples.shuffle(seed=0).select(range(count))

    def describe(self, data: TaskData[Any]) -> str:
        """The columns of texts."""
        return f"texts {' and '.join(repr(name) for name in self.text_columns)}, to embed"

    def main_metric(self, scores: Mapping[str, float]) -> str:
        """Correlation with the scores of pairs, else the cosine to the teacher's vectors."""
        return next((name for name in self.metrics if name in scores), "cosine")


def cosines(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """The cosine of each pair of rows; 0 where one of them is zero."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.asarray((a * b).sum(1) / np.where(lengths > 0, lengths, 1.0))


def texts_of(examples: Any) -> list[str]:
    """Every text of an evaluation set; of scored pairs all first texts, then all second ones."""
    names = [name for name in ("text", "text_pair") if name in examples.column_names]
    return [text for name in names for text in examples[name]]


def load_texts(
    train: str | Path | None,
    evaluation: str | Path | None = None,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    pooling: str | None = None,
    eval_share: float = 0.1,
    seed: int = 42,
) -> TaskData[EmbeddingTask]:
    """Read texts to distill an embedder from: CSV, TSV, JSON lines, parquet, or a text file with one text a line.

    Columns that are not named are guessed where it is obvious. Of an evaluation file with pairs and a column of scores
    the correlation is measured. Without an evaluation file, `eval_share` of the texts is held out, at most 1000.
    `pooling` (mean, cls or max) makes an embedder of a plain encoder; others have their own.
    """
    if train is None and evaluation is None:
        raise DataError("no data: give a training file, an evaluation file or both")
    named = {"text": text, "text_pair": text_pair, "label": label}
    columns: tuple[str, ...] = ("text",)
    rows, evals = None, {}
    if train is not None:
        table = read_table(train)
        texts, columns, _ = _columns(table, named)
        rows = make_dataset([[one for column in texts for one in column]], None)
    if evaluation is not None:
        table = read_table(evaluation)
        texts, columns_of_pairs, scores = _columns(table, named)
        columns = columns if train is not None else columns_of_pairs
        flat = [[one for column in texts for one in column]]
        evals["dev"] = make_dataset(flat, None) if scores is None else make_dataset(texts, scores)
    elif rows is not None and eval_share:
        share = min(eval_share, _HELD_OUT / len(rows))
        kept, held = hold_out_rows(len(rows), None, share, seed)
        rows, evals["dev"] = rows.select(kept), rows.select(held)
    first = Path(train if train is not None else evaluation or "texts")
    return TaskData(EmbeddingTask(first.stem, columns, pooling=pooling), rows, evals)


def read_scored_pairs(
    path: str | Path, *, text: str | None = None, text_pair: str | None = None, label: str | None = None
) -> tuple[list[str], list[str], list[float]]:
    """Pairs of texts with a number for each, from a table; STS or, with 0 and 1, pair classification."""
    table = read_table(path)
    texts, _, scores = _columns(table, {"text": text, "text_pair": text_pair, "label": label})
    if len(texts) != 2 or scores is None:
        raise DataError(
            f"{path} has the columns {', '.join(table.columns)}; expected two texts and a score "
            "(name them: text, text_pair, label)"
        )
    return texts[0], texts[1], scores


def _columns(
    table: Table, named: Mapping[str, str | None]
) -> tuple[list[list[str]], tuple[str, ...], list[float] | None]:
    """The texts, the names of their columns, and the scores of pairs that have them."""
    given = {name: value if table.named else None for name, value in named.items()}
    chosen = choose_columns([table], given["text"], given["text_pair"], given["label"])
    texts = read_texts(table, chosen.texts)
    if len(texts) < 2 or chosen.label is None:
        return texts, chosen.texts, None
    return texts, chosen.texts, _numbers(table, chosen.label)


def _numbers(table: Table, label: str) -> list[float]:
    numbers: list[float] = []
    values: Sequence[object] = table.column(label)
    for row, value in enumerate(values):
        number = as_number(str(value).strip())
        if number is None:
            raise LabelError(f"{table.location(row)}: the score '{value}' is not a number")
        numbers.append(number)
    return numbers
