"""Rows of a file one after the other, for files of any length: what `files.py` reads at once, in constant memory.

A `Rows` can be iterated over again and again, each time from the beginning. It tells how much of the file has been
read, so that a progress bar needs no count of the rows.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from ternarybert._nearby import nearby
from ternarybert.errors import DataError, MissingExtraError, suggest
from ternarybert.tasks.files import Table

Row: TypeAlias = tuple[int, dict[str, object]]  # the line or row where it stands, and its fields

_SAMPLE = 200  # rows that are looked at to see what the columns are
_ESCAPED_HALF = "\\ud"  # how JSON begins a surrogate, alone or in a pair
_BATCH = 1024  # rows of a parquet file


@dataclass
class Rows:
    """A file to be read row by row."""

    path: Path
    _read: Callable[[Rows], Iterator[Row]]
    unit: str = "line"
    named: bool = True  # False for .txt, whose one column has no name of its own
    share: float = field(default=0.0, init=False)  # of the file that was read so far

    def __iter__(self) -> Iterator[Row]:
        try:
            yield from self._read(self)
        except OSError as error:
            raise DataError(f"cannot read {self.path}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise DataError(f"{self.path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error

    def place(self, number: int) -> str:
        """Where a row is, for a message."""
        return f"{self.path}, {self.unit} {number}"

    def sample(self) -> Table:
        """The first rows as a table."""
        first = list(islice(self, _SAMPLE))
        if not first:
            raise DataError(f"{self.path} holds no rows")
        names = dict.fromkeys(name for _, row in first for name in row)
        columns = {name: [row.get(name) for _, row in first] for name in names}
        return Table(self.path, columns, [number for number, _ in first], self.unit, self.named)


def open_rows(path: str | Path) -> Rows:
    """Open CSV, TSV, JSON lines, parquet or plain text, by the file's suffix."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path} is a folder; give a file" if path.is_dir() else f"{path} does not exist{nearby(path)}")
    kind = path.suffix.lower()
    if kind not in _READERS:
        raise DataError(f"{path}: unknown kind of file '{path.suffix}'{suggest(path.suffix, _READERS)}")
    return Rows(path, _READERS[kind], "row" if kind == ".parquet" else "line", named=kind != ".txt")


@contextmanager
def _text(rows: Rows, newline: str | None = None) -> Iterator[TextIO]:
    """The file as text; whatever is read from it moves the share forward."""
    size = max(1, rows.path.stat().st_size)
    with rows.path.open(encoding="utf-8-sig", newline=newline) as file:
        yield _Counting(file, rows, size)  # type: ignore[misc]


class _Counting:
    """Lines of a file that note how far they are."""

    def __init__(self, file: Any, rows: Rows, size: int) -> None:
        self._file, self._rows, self._size = file, rows, size

    def __iter__(self) -> Iterator[str]:
        for line in self._file:
            self._rows.share = self._file.buffer.raw.tell() / self._size
            yield line


def _read_csv(rows: Rows) -> Iterator[Row]:
    with rows.path.open(encoding="utf-8-sig") as file:
        first_line = file.readline()
    # Spreadsheets write semicolons where the comma is the decimal point.
    return _named(rows, _quoted(rows, max(",;\t", key=first_line.count)))


def _read_tsv(rows: Rows) -> Iterator[Row]:
    return _named(rows, _quoted(rows, "\t") if _quotes_count(rows) else _plain(rows))


def _quotes_count(rows: Rows) -> bool:
    """Whether quotes in a TSV file enclose fields: where that gives a regular table and glues no lines together.

    The same decision as in `files.py`, which says why; here it takes one more pass over the file.
    """
    lines, widths = _shape(_plain(rows))
    try:
        quoted_lines, quoted_widths = _shape(_quoted(rows, "\t"))
    except DataError:
        return False
    return len(quoted_widths) == 1 and not (len(widths) == 1 and quoted_lines < lines)


def _shape(lines: Iterator[tuple[int, list[str]]]) -> tuple[int, set[int]]:
    """How many rows there are, and what numbers of fields they have."""
    count, widths = 0, set()
    for _, fields in lines:
        count += 1
        widths.add(len(fields))
    return count, widths


def _quoted(rows: Rows, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    limit = csv.field_size_limit(2**31 - 1)  # texts may be of any length; this is the most that every platform takes
    try:
        with _text(rows, newline="") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            try:
                for fields in reader:
                    if any(fields):
                        yield reader.line_num, fields
            except csv.Error as error:
                raise DataError(f"{rows.place(reader.line_num)}: {error}; look for a stray quote") from error
    finally:
        csv.field_size_limit(limit)


def _plain(rows: Rows) -> Iterator[tuple[int, list[str]]]:
    with _text(rows, newline="\n") as file:  # only \n ends a line: texts that hold a lone \r would fall into two
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, line.rstrip("\r\n").split("\t")


def _named(rows: Rows, lines: Iterator[tuple[int, list[str]]]) -> Iterator[Row]:
    """Rows by the names in the first one; columns without a name, such as a row index, are dropped."""
    header = next(lines, None)
    if header is None:
        raise DataError(f"{rows.path} is empty")
    names = [name.strip() for name in header[1]]
    doubled = sorted({name for name in names if name and names.count(name) > 1})
    if doubled:
        raise DataError(f"{rows.path} names the column '{doubled[0]}' twice; rename one of them")
    for number, fields in lines:
        if len(fields) != len(names):
            raise DataError(f"{rows.place(number)}: {len(fields)} fields where the header has {len(names)}")
        yield number, {name: value for name, value in zip(names, fields, strict=True) if name}


def _read_json(rows: Rows) -> Iterator[Row]:
    with _text(rows, newline="\n") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, _object(rows, number, line)


def _object(rows: Rows, number: int, line: str) -> dict[str, object]:
    try:
        record = json.loads(line)
        if _ESCAPED_HALF in line.lower():  # half of an emoji, say, which no file and no tokenizer can take
            record = json.loads(json.dumps(record, ensure_ascii=False).encode(errors="replace"))
    except json.JSONDecodeError as error:
        raise DataError(f"{rows.place(number)}: not JSON ({error.msg}); one object a line") from error
    if not isinstance(record, dict):
        raise DataError(f"{rows.place(number)}: not an object with named fields")
    return record


def _read_text(rows: Rows) -> Iterator[Row]:
    with _text(rows) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield number, {"text": line.strip()}


def _read_parquet(rows: Rows) -> Iterator[Row]:
    done = 0
    for batch, total in parquet_batches(rows.path):
        for record in batch.to_pylist():
            done += 1
            rows.share = done / total
            yield done, record


def parquet_batches(path: Path, size: int = _BATCH) -> Iterator[tuple[Any, int]]:
    """The record batches of a parquet file, and how many rows it has."""
    pyarrow, parquet = import_parquet()
    with path.open("rb") as source:
        try:
            file = parquet.ParquetFile(source)
            for batch in file.iter_batches(batch_size=size):
                yield batch, max(1, file.metadata.num_rows)
        except pyarrow.ArrowException as error:
            raise DataError(f"{path} is not a readable parquet file ({str(error).splitlines()[0]})") from error


def import_parquet() -> tuple[Any, Any]:
    """Import what reads parquet, or say what to install."""
    try:
        import pyarrow  # type: ignore[import-untyped]
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("parquet files need more: pip install pyarrow; or use CSV or JSON lines") from error
    return pyarrow, parquet


_READERS: dict[str, Callable[[Rows], Iterator[Row]]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_json,
    ".parquet": _read_parquet,
    ".txt": _read_text,
}
