"""A file as a table of columns, which remembers the line of every row so that a complaint can point at it.

MERGED-DOCS:
Rows of a file one after the other, in constant memory; `files.py` makes tables of them.

A `Rows` can be iterated over again and again, each time from the beginning. It tells how much of the file has been
read, so that a progress bar needs no count of the rows.

The standard library reads the text formats rather than pandas (behind `datasets`): pandas turns a review that says
"None" or "NA" into a missing value, renames doubled columns in silence and guesses types column by column. Here a
field of a text file stays the string that its author wrote.

---
CSV and TSV: lines of a file as fields, and fields by the names in the first line.
"""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import compress, islice
from pathlib import Path
from typing import Any, TypeAlias

from ternarybert.errors import DataError, MissingExtraError, suggest, suggest_path

Row: TypeAlias = tuple[int, dict[str, object]]  # the line or row where it stands, and its fields

_ESCAPED_HALF = "\\ud"  # how JSON begins a surrogate, alone or in a pair
_BATCH = 1024  # rows of a parquet file


@dataclass
class Rows:
    """A file to be read row by row."""

    path: Path
    _read: Callable[[Rows], Iterator[Row]]
    unit: str = "line"  # what rows are counted by
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

    def text_lines(self, newline: str | None = None) -> Iterator[str]:
        """The lines of a text file; each that is read moves the share forward."""
        size = max(1, self.path.stat().st_size)
        with self.path.open(encoding="utf-8-sig", newline=newline) as file:
            buffer: Any = file.buffer
            for line in file:
                self.share = buffer.raw.tell() / size
                yield line


def open_rows(path: str | Path) -> Rows:
    """Open CSV, TSV, JSON lines, a JSON list, parquet or plain text, by the file's suffix."""
    path = Path(path)
    if not path.is_file():
        raise DataError(
            f"{path} is a folder; give a file" if path.is_dir() else f"{path} does not exist{suggest_path(path)}"
        )
    kind = path.suffix.lower()
    if kind not in _READERS:
        raise DataError(f"{path}: unknown kind of file '{path.suffix}'{suggest(path.suffix, _READERS)}")
    return Rows(path, _READERS[kind], "row" if kind == ".parquet" else "line", named=kind != ".txt")


def _read_json_lines(rows: Rows) -> Iterator[Row]:
    # Only \n ends a line: JSON strings may hold the rarer line separators of Unicode as they are.
    for number, line in enumerate(rows.text_lines(newline="\n"), 1):
        if line.strip():
            try:
                yield number, _object(rows, number, _from_json(line))
            except json.JSONDecodeError as error:
                raise DataError(f"{rows.place(number)}: not JSON ({error.msg}); one object a line") from error


def _read_json(rows: Rows) -> Iterator[Row]:
    """One list of objects, which is read at once, or JSON lines under a shorter name."""
    first = next((line for line in rows.text_lines() if line.strip()), "")
    return _read_json_list(rows) if first.lstrip().startswith("[") else _read_json_lines(rows)


def _read_json_list(rows: Rows) -> Iterator[Row]:
    rows.unit = "object"
    try:
        records: list[object] = _from_json(rows.path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise DataError(f"{rows.path}, line {error.lineno}: not JSON ({error.msg})") from error
    for number, record in enumerate(records, 1):
        rows.share = number / len(records)
        yield number, _object(rows, number, record)


def _from_json(text: str) -> Any:
    value = json.loads(text)
    if _ESCAPED_HALF in text.lower():  # half of an emoji, say, which no file and no tokenizer can take
        value = json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))
    return value


def _object(rows: Rows, number: int, record: object) -> dict[str, object]:
    if not isinstance(record, dict):
        raise DataError(f"{rows.place(number)}: not an object with named fields")
    return record


def _read_text(rows: Rows) -> Iterator[Row]:
    for number, line in enumerate(rows.text_lines(), 1):
        if line.strip():
            yield number, {"text": line.strip()}


def _read_parquet(rows: Rows) -> Iterator[Row]:
    done = 0
    for batch, total in parquet_batches(rows.path):
        classes = _class_names((batch.schema.metadata or {}).get(b"huggingface"))
        for record in batch.to_pylist():
            done += 1
            rows.share = done / total
            yield done, record | {name: _class_name(record[name], names) for name, names in classes.items()}


def _class_names(metadata: bytes | None) -> dict[str, list[str]]:
    """Class names that `datasets` stores beside a column of ids: names survive another order, ids do not."""
    features = json.loads(metadata).get("info", {}).get("features", {}) if metadata else {}
    return {name: f["names"] for name, f in features.items() if isinstance(f, dict) and f.get("_type") == "ClassLabel"}


def _class_name(value: object, names: list[str]) -> str | None:
    """An id as a name; -1, which stands for 'not published' in hub data sets, as missing."""
    return names[value] if isinstance(value, int) and 0 <= value < len(names) else None


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


Line: TypeAlias = tuple[int, list[str]]  # where it ends, and its fields

_DELIMITERS = ",;\t"  # spreadsheets write semicolons where the comma is the decimal point


def read_csv(rows: Rows) -> Iterator[Row]:
    """A CSV file, whatever its delimiter is."""
    return named(rows, _quoted(rows, delimiter_of(rows.path)))


def read_tsv(rows: Rows) -> Iterator[Row]:
    """A TSV file with quotes or without: some programs quote fields in TSV files, others do not."""
    return named(rows, _quoted(rows, "\t") if _quotes_count(rows) else plain(rows))


def delimiter_of(path: Path) -> str:
    """What separates the columns of a CSV file: the one that makes most of them in the header, not within quotes."""
    return max(_DELIMITERS, key=lambda delimiter: len(_header(path, delimiter)))


def plain(rows: Rows) -> Iterator[Line]:
    """Lines in which every tab separates and quotes mean nothing."""
    # Only \n ends a line: texts that hold a lone \r would fall into two.
    for number, line in enumerate(rows.text_lines(newline="\n"), 1):
        if line.strip():
            yield number, line.rstrip("\r\n").split("\t")


def named(rows: Rows, lines: Iterator[Line]) -> Iterator[Row]:
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


def _header(path: Path, delimiter: str) -> list[str]:
    with _any_length(), path.open(encoding="utf-8-sig", newline="") as file:
        try:
            return next(filter(any, csv.reader(file, delimiter=delimiter)), [])
        except csv.Error:  # the reader of the rows meets it again, and says where
            return []


def _quotes_count(rows: Rows) -> bool:
    """Whether quotes in a TSV file enclose fields: where that gives a regular table.

    Unless lines that are regular by themselves would be glued together: then they are two stray quotes and not the ends
    of one long text.
    """
    lines, widths = _shape(plain(rows))
    try:
        quoted_lines, quoted_widths = _shape(_quoted(rows, "\t"))
    except DataError:
        return False
    return len(quoted_widths) == 1 and not (len(widths) == 1 and quoted_lines < lines)


def _shape(lines: Iterator[Line]) -> tuple[int, set[int]]:
    """How many rows there are, and what numbers of fields they have."""
    count, widths = 0, set()
    for _, fields in lines:
        count += 1
        widths.add(len(fields))
    return count, widths


def _quoted(rows: Rows, delimiter: str) -> Iterator[Line]:
    with _any_length():
        reader = csv.reader(rows.text_lines(newline=""), delimiter=delimiter, strict=True)
        try:
            for fields in reader:
                if any(fields):
                    yield reader.line_num, fields
        except csv.Error as error:
            raise DataError(f"{rows.place(reader.line_num)}: {error}; look for a stray quote") from error


@contextmanager
def _any_length() -> Iterator[None]:
    """Let texts be of any length."""
    limit = csv.field_size_limit(2**31 - 1)  # the most that every platform takes
    try:
        yield
    finally:
        csv.field_size_limit(limit)


_log = logging.getLogger(__name__)
_SAMPLE = 200  # rows that are looked at to see what the columns are


@dataclass(frozen=True)
class Table:
    """Columns of one file, equally long."""

    path: Path
    columns: dict[str, list[object]]
    lines: Sequence[int]  # of each row: the line, or for binary files the row, where it (or its last part) stands
    unit: str = "line"
    named: bool = True  # False for .txt, whose one column has no name of its own

    def __len__(self) -> int:
        return len(self.lines)

    def place(self, row: int) -> str:
        """Where a row is, for a message."""
        return f"{self.path}, {self.unit} {self.lines[row]}"

    def column(self, name: str) -> list[object]:
        """Give a column, or an error that names the nearest one."""
        if name not in self.columns:
            raise DataError(f"{self.path} has no column '{name}'{suggest(name, self.columns)}")
        return self.columns[name]

    def select(self, wanted: Sequence[bool]) -> Table:
        """Keep the rows that are wanted."""
        columns = {name: list(compress(values, wanted)) for name, values in self.columns.items()}
        return replace(self, columns=columns, lines=list(compress(self.lines, wanted)))


def read_table(path: str | Path) -> Table:
    """Read CSV, TSV, JSON lines, a JSON list, parquet or plain text, by the file's suffix."""
    return _table(open_rows(path))


def sample(rows: Rows) -> Table:
    """The first rows as a table."""
    return _table(rows, _SAMPLE)


def read_plain_tsv(path: Path, header: Sequence[str] | None = None, broken_share: float = 0.0) -> Table:
    """Read a file in which every tab separates and quotes mean nothing, as in GLUE.

    `header` names the columns of a file that has no header line. A line with a wrong number of fields is an error,
    unless the file is known to hold a few: up to `broken_share` of the lines may be too short, and are left out
    with a warning.
    """

    def read(rows: Rows) -> Iterator[Row]:
        lines = list(plain(rows))
        if header is not None:
            lines.insert(0, (0, list(header)))
        return named(rows, iter(_without_broken(rows, lines, broken_share)))

    return _table(Rows(path, read))


def _table(rows: Rows, most: int | None = None) -> Table:
    columns: dict[str, list[object]] = {}
    lines: list[int] = []
    for number, row in islice(rows, most):
        for name, value in row.items():
            if name not in columns:
                columns[name] = [None] * len(lines)
            columns[name].append(value)
        lines.append(number)
        if len(row) < len(columns):
            for values in columns.values():
                values += [None] * (len(lines) - len(values))
    if not lines:
        raise DataError(f"{rows.path} holds no rows")
    return Table(rows.path, columns, lines, rows.unit, rows.named)


def _without_broken(rows: Rows, lines: list[Line], share: float) -> list[Line]:
    """Drop lines that are too short, if they are few enough; else leave them all, to be refused."""
    width = len(lines[0][1]) if lines else 0
    odd = [(number, len(fields)) for number, fields in lines if len(fields) != width]
    if not odd or len(odd) > share * (len(lines) - 1) or max(fields for _, fields in odd) > width:
        return lines
    _log.warning("%s: left out %d broken lines, the first is line %d", rows.path, len(odd), odd[0][0])
    return [line for line in lines if len(line[1]) == width]


_READERS: dict[str, Callable[[Rows], Iterator[Row]]] = {
    ".csv": read_csv,
    ".tsv": read_tsv,
    ".jsonl": _read_json_lines,
    ".json": _read_json,
    ".parquet": _read_parquet,
    ".txt": _read_text,
}
