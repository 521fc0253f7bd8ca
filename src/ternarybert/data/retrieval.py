"""Retrieval data in the layout of BEIR: which documents of a corpus answer a query.

    corpus.jsonl     {"_id": ..., "title": ..., "text": ...}   a document is its title and text
    queries.jsonl    {"_id": ..., "text": ...}
    qrels/test.tsv   query-id <tab> corpus-id <tab> score      with a header; a score of 0 is not relevant

Queries without a relevant document are left out, as everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ternarybert.data.labels import as_number
from ternarybert.data.ranking import Relevance
from ternarybert.data.readers import Table, open_rows, read_plain_tsv
from ternarybert.errors import DataError, suggest_path


@dataclass(frozen=True)
class RetrievalData:
    """Queries, documents, and for each query its relevant documents by number."""

    name: str
    queries: list[str]
    documents: list[str]
    relevant: list[Relevance]


def load_retrieval(folder: str | Path, split: str = "test") -> RetrievalData:
    """Read a folder in the layout of BEIR."""
    place = Path(folder)
    if not place.is_dir():
        raise DataError(f"there is no folder '{place}'{suggest_path(place)}")
    corpus = _texts(place / "corpus.jsonl")
    queries = _texts(place / "queries.jsonl")
    relevant = _relevance(place / "qrels" / f"{split}.tsv", {name: i for i, name in enumerate(corpus)}, set(queries))
    if not relevant:
        raise DataError(f"{place / 'qrels' / f'{split}.tsv'} has no relevant document for any query")
    return RetrievalData(
        place.name, [queries[name] for name in relevant], list(corpus.values()), list(relevant.values())
    )


def _texts(path: Path) -> dict[str, str]:
    """The texts of a file by id, the title first where there is one."""
    if not path.is_file():
        raise DataError(
            f"there is no {path}; a folder for retrieval has corpus.jsonl, queries.jsonl and qrels/test.tsv"
        )
    rows = open_rows(path)
    texts: dict[str, str] = {}
    for number, row in rows:
        if "_id" not in row or not isinstance(row.get("text"), str):
            raise DataError(f"{rows.location(number)}: expected '_id' and 'text', found {', '.join(map(str, row))}")
        name, title = str(row["_id"]), row.get("title")
        if name in texts:
            raise DataError(f"{rows.location(number)}: the id '{name}' occurs twice")
        texts[name] = f"{title} {row['text']}".strip() if isinstance(title, str) and title else str(row["text"])
    if not texts:
        raise DataError(f"{path} is empty")
    return texts


def _relevance(path: Path, documents: dict[str, int], queries: set[str]) -> dict[str, Relevance]:
    if not path.is_file():
        raise DataError(f"there is no {path}")
    table = read_plain_tsv(path)
    if len(table.columns) != 3:
        raise DataError(f"{path} has {len(table.columns)} columns; expected query-id, corpus-id and score")
    relevant: dict[str, dict[int, float]] = {}
    for row, (query, document, score) in enumerate(zip(*table.columns.values(), strict=True)):
        grade = as_number(str(score).strip())
        _check(table, row, {"query": (query, queries), "document": (document, documents)}, grade, score)
        if grade is not None and grade > 0:
            relevant.setdefault(str(query), {})[documents[str(document)]] = grade
    return {name: table_of for name, table_of in relevant.items() if table_of}


def _check(table: Table, row: int, names: dict[str, tuple[object, Any]], grade: float | None, score: object) -> None:
    for what, (name, known) in names.items():
        if str(name) not in known:
            raise DataError(f"{table.location(row)}: there is no {what} '{name}'")
    if grade is None:
        raise DataError(f"{table.location(row)}: the score '{score}' is not a number")
