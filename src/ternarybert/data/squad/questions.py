"""Questions about a text, in one record, whatever file they come in.

Three formats are read: the official JSON of SQuAD (articles, paragraphs, questions; v1.1 and v2.0, also zipped), the
hub's rows (`answers` holds two lists, `text` and `answer_start`), and the user's own JSON lines, where an answer may be
just its text. All three first become a table of the same columns, so that there is one set of checks, and a complaint
can say where the row is.
"""

from __future__ import annotations

import gzip
import json
import logging
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, cast

from ternarybert.data.readers import Table, open_rows, parquet_columns, read_table, sample
from ternarybert.errors import DataError

_log = logging.getLogger(__name__)
_FIELDS = ("id", "title", "context", "question", "answers", "is_impossible")
# How far, in characters, an answer may be from where the file says: stripped blanks and line ends move it so much.
_SLACK = 16
_FEW = 10  # lines that tell whether a file holds questions
_ALWAYS_UNPACKED, _MOST_TIMES = 4 << 20, 20  # bytes, and times the size of the packed file; SQuAD's is 4
_START = 1 << 16  # characters that tell whether a JSON file has the official layout


@dataclass(frozen=True, slots=True)
class GoldAnswer:
    """A piece of the context."""

    text: str
    start: int  # its first character in the context


@dataclass(frozen=True, slots=True)
class Question:
    """A question, the text to find its answer in, and the answers that people gave."""

    question: str
    context: str
    answers: tuple[GoldAnswer, ...] | None = None  # empty: the context does not answer it; None: unknown
    id: str = ""
    title: str = ""  # of the article that the context is from

    def __post_init__(self) -> None:
        _check_text("question", self.question)
        _check_text("context", self.context)
        if not self.context.strip():
            raise DataError("the context is empty; there is nothing to find an answer in")
        for answer in self.answers or ():
            if answer.start < 0 or not self.context.startswith(answer.text, answer.start):
                raise DataError(f"the context has no '{answer.text:.40}' at character {answer.start}")


def read_questions(path: str | Path) -> list[Question]:
    """Read official JSON (also .zip or .gz of it), JSON lines, a JSON list, or parquet with the hub's columns."""
    path = Path(path)
    return questions_of(_read_official(path) or read_table(path))


def holds_questions(path: str | Path) -> bool:
    """Whether a file looks like questions: SQuAD's JSON, or columns `question` and `context` without a `label`.

    Only the first rows are read. Of JSON lines a few are looked at together, so that a row that lacks something is
    named as such.
    """
    path = Path(path)
    if path.suffix.lower() in (".zip", ".gz"):
        return True
    if not path.is_file() or path.suffix.lower() in (".csv", ".tsv", ".txt"):  # no lists, so no answers
        return False
    names = _first_names(path)
    return {"question", "context"} <= names and "label" not in names


def _first_names(path: Path) -> set[str]:
    """The columns of the first rows."""
    if path.suffix.lower() == ".parquet":
        return set(parquet_columns(path))
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        start = file.read(_START).lstrip()
        if path.suffix.lower() == ".json" and start.startswith("["):
            return set(sample(open_rows(path)).columns)
        if path.suffix.lower() == ".json" and all(f'"{name}"' in start for name in ("data", "paragraphs")):
            return set(_FIELDS)  # the official layout
        file.seek(0)
        return set().union(*map(_names, islice(filter(str.strip, file), _FEW)))


def _names(line: str) -> set[str]:
    """The fields of a JSON line; of a line that is none the reader says what is wrong."""
    try:
        return set(json.loads(line))
    except (ValueError, TypeError, RecursionError):
        return set()


def questions_of(table: Table) -> list[Question]:
    """Check every row of a table with columns `question`, `context` and maybe `answers`, `id`, `title`."""
    for name in ("question", "context"):
        table.column(name)
    labeled = _is_labeled(table)
    moved: list[str] = []
    questions: dict[str, Question] = {}
    for place, row in _rows(table):
        try:
            question = _question(row, labeled, place, moved)
        except DataError as error:
            raise DataError(f"{place}: {error}") from error
        if question.id in questions:
            raise DataError(f"{place}: another question has the same id")
        questions[question.id] = question
    if moved:
        _log.warning(
            "%s: %d answers are not where 'answer_start' says but close by, and were moved there; the first: %s",
            table.path,
            len(moved),
            moved[0],
        )
    return list(questions.values())


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        seen = "is missing" if value is None else f"is {value!r:.40} ({type(value).__name__}), not a text"
        raise DataError(f"the {name} {seen}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"the {name} holds half a character (a lone surrogate, as in an emoji cut in two)") from error


def _rows(table: Table) -> Iterator[tuple[str, dict[str, object]]]:
    """Each row with its place; rows without an id get the number of their line."""
    for number, values in enumerate(zip(*table.columns.values(), strict=True)):
        row = dict(zip(table.columns, values, strict=True))
        place = table.location(number)
        if row.get("id") is None:
            row["id"] = table.lines[number]
        else:
            place += f" (id {row['id']!s:.60})"
        yield place, row


def _is_labeled(table: Table) -> bool:
    """Whether a table has answers: a student can also learn from a teacher's answers alone."""
    if "answers" not in table.columns and "answer" in table.columns:
        raise DataError(f"{table.path} has a column 'answer'; call it 'answers' and make each a list")
    return any(value is not None for value in table.columns.get("answers", ()))


def _question(row: Mapping[str, object], labeled: bool, place: str, moved: list[str]) -> Question:
    context = row["context"]
    _check_text("context", context)
    pairs = _answer_pairs(row.get("answers")) if labeled else None
    if pairs is not None and row.get("is_impossible") is not None and bool(row["is_impossible"]) == bool(pairs):
        raise DataError(f"'is_impossible' is {row['is_impossible']}, but there are {len(pairs)} answers")
    answers = None if pairs is None else tuple(_locate(str(context), *pair, place, moved) for pair in pairs)
    title = "" if row.get("title") is None else str(row["title"])
    # The record itself checks that the texts are texts.
    return Question(cast(str, row["question"]), cast(str, context), answers, str(row["id"]), title)


def _answer_pairs(value: object) -> list[tuple[object, object]]:
    """Give text and start of each answer, whichever of the three shapes they are in; the start may be missing."""
    if isinstance(value, Mapping):
        texts = value.get("text")
        starts = value.get("answer_start", [None] * len(texts)) if isinstance(texts, list) else None
        if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
            raise DataError("'answers' needs two lists of one length, 'text' and 'answer_start'")
        return list(zip(texts, starts, strict=True))
    if not isinstance(value, list):
        seen = "missing" if value is None else f"{value!r:.40}"
        raise DataError(f"'answers' is {seen}; give a list, an empty one where the context has no answer")
    return [(a.get("text"), a.get("answer_start")) if isinstance(a, Mapping) else (a, None) for a in value]


def _locate(context: str, text: object, start: object, place: str, moved: list[str]) -> GoldAnswer:
    """Find an answer where the file says, or close by; the first of its kind where the file does not say."""
    _check_text("text of an answer", text)
    text = str(text)
    if not text.strip():
        raise DataError("an answer is empty; where the context has no answer, leave the list empty")
    if start is None:
        found = context.find(text)
        if found < 0:
            raise DataError(f"the answer '{text:.40}' is not in the context")
        return GoldAnswer(text, found)
    if not isinstance(start, int) or isinstance(start, bool):
        raise DataError(f"'answer_start' is {start!r:.40}, not a whole number")
    if start >= 0 and context.startswith(text, start):
        return GoldAnswer(text, start)
    low, high = (max(0, edge) for edge in (start - _SLACK, start + len(text) + _SLACK))
    near = [low + match.start() for match in re.finditer(re.escape(text), context[low:high])]
    if not near:
        raise DataError(
            f"the answer '{text:.40}' is not at character {start}; count characters and not bytes, or leave "
            "'answer_start' out"
        )
    moved.append(place)
    return GoldAnswer(text, min(near, key=lambda found: abs(found - start)))


def _read_official(path: Path) -> Table | None:
    """Flatten the official layout; None when the file is in another one."""
    suffix = path.suffix.lower()
    if suffix not in (".json", ".zip", ".gz") or not path.is_file():
        return None
    try:
        data = json.loads(_read_bytes(path))
    except RecursionError as error:
        raise DataError(f"{path} is not JSON (nested too deeply)") from error
    except (OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"cannot read {path}: {error}") from error
    except ValueError as error:  # not JSON, or not UTF-8
        if suffix == ".json":
            return None  # JSON lines, perhaps
        raise DataError(f"{path} does not hold JSON ({error})") from error
    if isinstance(data, dict) and "data" in data:
        return _flatten(path, data)
    if suffix == ".json":
        return None
    raise DataError(f"{path} does not hold SQuAD's JSON, an object with 'data'; unpack other files")


def _read_bytes(path: Path) -> bytes:
    if path.suffix.lower() == ".gz":
        with gzip.open(path) as file:
            return _unpacked(file, path)
    if path.suffix.lower() != ".zip":
        return path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if name.lower().endswith(".json")]
        if len(names) != 1:
            raise DataError(f"{path} holds {len(names)} JSON files; unpack it and name one")
        with archive.open(names[0]) as file:
            return _unpacked(file, path)


def _unpacked(file: IO[bytes] | gzip.GzipFile, path: Path) -> bytes:
    """All of a packed file, unless it is far larger than text ever gets: a few kilobytes can unpack to any size."""
    limit = max(_ALWAYS_UNPACKED, _MOST_TIMES * path.stat().st_size)
    data = file.read(limit + 1)
    if len(data) > limit:
        raise DataError(f"{path} unpacks to more than {limit >> 20} MB; if it is what you expect, unpack it yourself")
    return data


def _flatten(path: Path, data: Mapping[str, object]) -> Table:
    columns: dict[str, list[object]] = {name: [] for name in _FIELDS}
    for number, article in enumerate(_objects(data, "data", str(path)), 1):
        place = f"{path}, article {number}"
        for paragraph in _objects(article, "paragraphs", place):
            shared = {"title": article.get("title"), "context": paragraph.get("context")}
            for question in _objects(paragraph, "qas", place):
                row = {**question, **shared}
                for name, column in columns.items():
                    column.append(row.get(name))
    if not columns["question"]:
        raise DataError(f"{path} holds no questions")
    return Table(path, columns, range(1, len(columns["question"]) + 1), "question")


def _objects(parent: Mapping[str, object], name: str, place: str) -> list[dict[str, object]]:
    children = parent.get(name)
    if not isinstance(children, list) or not all(isinstance(child, dict) for child in children):
        raise DataError(f"{place}: '{name}' is not a list of objects")
    return children
