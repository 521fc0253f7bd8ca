"""How well a text answers a query, as a number: rerankers, which sentence-transformers calls cross-encoders.

Rows have the columns `text` (the query), `text_pair` (the text) and, where they are known, `label`: the relevance, from
0 to 1. Rows with the same query are its candidates; a model is scored by how it orders them: nDCG and reciprocal rank
of the first ten, in percent, over the queries with something relevant and something else among their candidates.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ternarybert.data.labels import as_number
from ternarybert.data.metrics import predict_from_logits, spearman
from ternarybert.data.ranking import average_precision, ndcg, reciprocal_rank
from ternarybert.data.readers import Table, open_rows, read_table, sample
from ternarybert.data.table import read_texts
from ternarybert.data.task import Scores, Task, TaskData, make_dataset
from ternarybert.errors import DataError, LabelError, UnsupportedModelError

RERANKING = "reranking"
SETTINGS_FILE = "config_sentence_transformers.json"
SECTION = "sentence_transformers"  # the key in config.json: what a cross-encoder makes of its output
_OLD_KEY = "sbert_ce_default_activation_function"
_QUERIES = ("query", "question")
_TEXTS = ("text", "passage", "document", "paragraph", "answer", "context")
_SCORES = ("score", "relevance", "label")
_FIRST = 10  # places of a ranking that count


@dataclass(frozen=True)
class RerankingTask(Task):
    """A score for every pair of a query and a text."""

    name: str
    text_columns: tuple[str, ...] = ("query", "text")
    metrics: tuple[str, ...] = ("ndcg@10", "mrr@10", "average_precision")
    max_length: int = 256
    batch_size: int = 32
    epochs: int = 3

    kind = RERANKING
    unit = "pairs"
    regression = True  # L_pred is a squared error, which recipes divide by the teacher's variance

    def identity(self) -> object:
        """Pairs need nothing else."""
        return None

    def fit(self, data: TaskData[RerankingTask], config: Mapping[str, Any]) -> TaskData[RerankingTask]:
        """Any model with one output."""
        if len(config["id2label"]) != 1:
            raise UnsupportedModelError(f"a reranker has one output; this model has {len(config['id2label'])}")
        return data

    def has_references(self, examples: Any) -> bool:
        """Whether there is a column of scores."""
        return "label" in examples.column_names

    def scores(self, examples: Any, predictions: NDArray[Any], teacher: NDArray[Any] | None = None) -> Scores:
        """Figures of the order of each query's candidates; agreement is the correlation of ranks with the teacher's."""
        predicted = predict_from_logits(predictions, regression=True)
        scores: Scores = {}
        if self.has_references(examples):
            labels = np.asarray(examples["label"], np.float64)
            ranked = list(_rankings(examples["text"], predicted, labels))
            if ranked:
                scores["ndcg@10"] = 100 * float(np.mean([ndcg(*each, _FIRST) for each in ranked]))
                scores["mrr@10"] = 100 * float(np.mean([reciprocal_rank(*each, _FIRST) for each in ranked]))
            if np.isin(labels, (0, 1)).all() and labels.any():
                scores["average_precision"] = 100 * average_precision(predicted, labels.astype(int))
        if teacher is not None:
            scores["agreement"] = 100 * spearman(predicted, predict_from_logits(teacher, regression=True))
        return scores

    def sample(self, examples: Any, count: int) -> Any:
        """A random choice, the same for a number of pairs."""
        return examples.select(random.Random(0).sample(range(len(examples)), count))

    def describe(self, data: TaskData[Any]) -> str:
        """The columns, and how many queries there are."""
        parts = [part for part in (data.train, *data.evals.values()) if part is not None]
        queries = len({query for part in parts for query in part["text"]})
        known = "with scores" if any(map(self.has_references, parts)) else "no scores"
        return f"'{self.text_columns[0]}' and '{self.text_columns[1]}', {queries:,} queries, {known}"


def _rankings(
    queries: Sequence[str], predicted: NDArray[Any], labels: NDArray[Any]
) -> Iterator[tuple[list[int], dict[int, float]]]:
    """The candidates of each query, best first, and the grades of the relevant ones."""
    groups: dict[str, list[int]] = {}
    for row, query in enumerate(queries):
        groups.setdefault(query, []).append(row)
    for rows in groups.values():
        relevant = {row: float(labels[row]) for row in rows if labels[row] > 0}
        if relevant and len({float(labels[row]) for row in rows}) > 1:
            # Of equal scores the least relevant comes first: a model that cannot tell texts apart earns nothing by it.
            yield sorted(rows, key=lambda row: (-predicted[row], labels[row])), relevant


def load_rankings(
    train: str | Path | None,
    evaluation: str | Path | None = None,
    *,
    text: str | None = None,
    text_pair: str | None = None,
    label: str | None = None,
    labeled: bool = False,
    eval_share: float = 0.1,
    seed: int = 42,
) -> TaskData[RerankingTask]:
    """Read rows (query, text, score) from a table; scores are from 0 to 1, and may be missing to distill.

    `text` names the column of queries, `text_pair` that of texts, `label` that of scores. Without an evaluation file,
    `eval_share` of the queries is held out, with all their texts.
    """
    files = {part: path for part, path in (("train", train), ("dev", evaluation)) if path is not None}
    if not files:
        raise DataError("no data: give a training file, an evaluation file or both")
    tables = {part: read_table(path) for part, path in files.items()}
    lead = next(iter(tables.values()))
    columns = _column(lead, text, _QUERIES, "query"), _column(lead, text_pair, _TEXTS, "text")
    score = _score_column(lead, label, columns)
    rows = {}
    for part, table in tables.items():
        scored = score is not None and score in table.columns
        if labeled and part == "train" and not scored:
            raise DataError(f"{table.path} has no column with scores; name it with --label")
        rows[part] = make_dataset(read_texts(table, columns), _scores(table, str(score)) if scored else None)
    task = RerankingTask(Path(next(iter(files.values()))).stem, columns)
    kept = rows.pop("train", None)
    if rows or not eval_share:
        return TaskData(task, kept, rows)
    return TaskData(task, *_hold_out_queries(kept, eval_share, seed))


def holds_rankings(path: str | Path) -> bool:
    """Whether a table has a column `query` and one of texts."""
    path = Path(path)
    if path.suffix.lower() not in (".csv", ".tsv", ".jsonl", ".parquet") or not path.is_file():
        return False
    names = set(sample(open_rows(path)).columns)
    return "query" in names and bool(names & set(_TEXTS))


def _column(table: Table, named: str | None, usual: Sequence[str], what: str) -> str:
    found = named or next((name for name in usual if name in table.columns), None)
    if found is None:
        seen = ", ".join(table.columns)
        flag = "--text" if what == "query" else "--text-pair"
        raise DataError(f"which column of {table.path} is the {what}? Name it ({flag}); columns: {seen}")
    table.column(found)
    return found


def _score_column(table: Table, named: str | None, taken: Sequence[str]) -> str | None:
    if named is not None:
        table.column(named)
        return named
    return next((name for name in _SCORES if name in table.columns and name not in taken), None)


def _scores(table: Table, column: str) -> list[float]:
    numbers = []
    for row, value in enumerate(table.column(column)):
        number = as_number(str(value).strip())
        if number is None or not 0 <= number <= 1:
            raise LabelError(f"{table.location(row)}: the score {value!r:.40} is not a number from 0 to 1")
        numbers.append(number)
    return numbers


def _hold_out_queries(rows: Any, share: float, seed: int) -> tuple[Any, dict[str, Any]]:
    queries = list(dict.fromkeys(rows["text"]))
    if len(queries) < 2:
        raise DataError("all pairs have one query, so none can be held out; give an evaluation file")
    random.Random(seed).shuffle(queries)
    held = set(queries[: max(1, round(share * len(queries)))])
    aside = [query in held for query in rows["text"]]
    kept = [i for i, out in enumerate(aside) if not out]
    return rows.select(kept), {"dev": rows.select([i for i, out in enumerate(aside) if out])}


def cross_encoder_activation(config: Mapping[str, Any], folder: str | Path | None = None) -> str | None:
    """The function that sentence-transformers applies to a cross-encoder's output; None for another model.

    Its own file comes first, as there; older versions write it into config.json.
    """
    path = None if folder is None else Path(folder) / SETTINGS_FILE
    if path is not None and path.is_file():
        settings = json.loads(path.read_text(encoding="utf-8"))
        if settings.get("model_type") == "CrossEncoder":
            return str(settings.get("activation_fn") or "Sigmoid")
    section = config.get(SECTION)
    if isinstance(section, Mapping) and section.get("activation_fn"):
        return str(section["activation_fn"])
    return str(config[_OLD_KEY]) if config.get(_OLD_KEY) else None
