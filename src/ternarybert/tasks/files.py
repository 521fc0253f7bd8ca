"""Reads a file into columns, and remembers the line of every row so that a complaint can point at it.

The standard library reads the text formats rather than pandas (behind `datasets`): pandas turns a review that says
"None" or "NA" into a missing value, renames doubled columns in silence and guesses types column by column. Here a
field of a text file stays the string that its author wrote.
"""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path

from ternarybert._nearby import nearby
from ternarybert.errors import DataError, suggest
from ternarybert.tasks.task import import_datasets

_log = logging.getLogger(__name__)


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
    """Read CSV, TSV, JSON lines, parquet or plain text, by the file's suffix."""
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path} is a folder; give a file" if path.is_dir() else f"{path} does not exist{nearby(path)}")
    read = _READERS.get(path.suffix.lower())
    if read is None:
        raise DataError(f"{path}: unknown kind of file '{path.suffix}'{suggest(path.suffix, _READERS)}")
    return _guarded(read, path)


def read_plain_tsv(path: Path, header: Sequence[str] | None = None, broken_share: float = 0.0) -> Table:
    """Read a file in which every tab separates and quotes mean nothing, as in GLUE.

    `header` names the columns of a file that has no header line. A line with a wrong number of fields is an error,
    unless the file is known to hold a few: up to `broken_share` of the lines may be too short, and are left out
    with a warning.
    """

    def read(path: Path) -> Table:
        rows = _split_lines(path)
        if header is not None:
            rows.insert(0, (0, list(header)))
        return _table(path, rows, broken_share)

    return _guarded(read, path)


def _guarded(read: Callable[[Path], Table], path: Path) -> Table:
    """Run a reader; what can go wrong in any format becomes an error of ours."""
    try:
        table = read(path)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error
    if not len(table):
        raise DataError(f"{path} holds no rows")
    return table


def _read_csv(path: Path) -> Table:
    with path.open(encoding="utf-8-sig") as file:
        first_line = file.readline()
    # Spreadsheets write semicolons where the comma is the decimal point.
    return _table(path, _quoted_rows(path, max(",;\t", key=first_line.count)))


def _read_tsv(path: Path) -> Table:
    """Read with quotes or without: some programs quote fields in TSV files, others do not.

    Quotes count where that gives a regular table, unless lines that are regular by themselves would be glued
    together: then they are two stray quotes and not the ends of one long text.
    """
    plain = _split_lines(path)
    try:
        quoted = _table(path, _quoted_rows(path, "\t"))
    except DataError:
        return _table(path, plain)
    regular = len({len(fields) for _, fields in plain}) == 1
    return _table(path, plain) if regular and len(quoted) < len(plain) - 1 else quoted


def _read_text(path: Path) -> Table:
    with path.open(encoding="utf-8-sig") as file:
        numbered = [(number, line.strip()) for number, line in enumerate(file, 1) if line.strip()]
    return Table(path, {"text": [line for _, line in numbered]}, [number for number, _ in numbered], named=False)


def _read_json(path: Path) -> Table:
    """JSON lines, or one list of objects."""
    text = path.read_text(encoding="utf-8-sig")
    if path.suffix.lower() == ".json" and text.lstrip().startswith("["):
        try:
            return _records(path, list(enumerate(json.loads(text), 1)), unit="object")
        except json.JSONDecodeError as error:
            raise DataError(f"{path}, line {error.lineno}: not JSON ({error.msg})") from error
    # Not splitlines(): JSON strings may hold the rarer line separators of Unicode as they are.
    return _records(path, list(_json_lines(path, text.split("\n"))), unit="line")


def _json_lines(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, object]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(f"{path}, line {number}: not JSON ({error.msg}); one object a line") from error


def _records(path: Path, numbered: list[tuple[int, object]], unit: str) -> Table:
    names: dict[str, None] = {}
    records: list[dict[str, object]] = []
    for number, record in numbered:
        if not isinstance(record, dict):
            raise DataError(f"{path}, {unit} {number}: not an object with named fields")
        names.update(dict.fromkeys(record))
        records.append(record)
    columns = {name: [record.get(name) for record in records] for name in names}
    return Table(path, columns, [number for number, _ in numbered], unit)


def _read_parquet(path: Path) -> Table:
    import_datasets()  # brings pyarrow, and says what to install when it is missing
    import pyarrow  # type: ignore[import-untyped]
    from pyarrow import parquet

    with path.open("rb") as file:
        try:
            table = parquet.read_table(file)
        except pyarrow.ArrowException as error:
            raise DataError(f"{path} is not a readable parquet file ({str(error).splitlines()[0]})") from error
    classes = _class_names((table.schema.metadata or {}).get(b"huggingface"))
    columns = {name: _named(table[name].to_pylist(), classes.get(name)) for name in table.column_names}
    return Table(path, columns, range(1, table.num_rows + 1), "row")


def _class_names(metadata: bytes | None) -> dict[str, list[str]]:
    """Class names that `datasets` stores beside a column of ids: names survive another order, ids do not."""
    features = json.loads(metadata).get("info", {}).get("features", {}) if metadata else {}
    return {name: f["names"] for name, f in features.items() if isinstance(f, dict) and f.get("_type") == "ClassLabel"}


def _named(values: list[object], names: list[str] | None) -> list[object]:
    """Ids as names; -1, which stands for 'not published' in hub data sets, as missing."""
    if names is None:
        return values
    return [names[v] if isinstance(v, int) and 0 <= v < len(names) else None for v in values]


def _quoted_rows(path: Path, delimiter: str) -> list[tuple[int, list[str]]]:
    """Split a CSV file into rows, each with the line it ends at; texts may be of any length."""
    limit = csv.field_size_limit(2**31 - 1)  # the most that every platform takes
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            try:
                return [(reader.line_num, row) for row in reader if any(row)]
            except csv.Error as error:
                raise DataError(f"{path}, line {reader.line_num}: {error}; look for a stray quote") from error
    finally:
        csv.field_size_limit(limit)


def _split_lines(path: Path) -> list[tuple[int, list[str]]]:
    # Only \n ends a line here: texts that hold a lone \r would fall into two.
    with path.open(encoding="utf-8-sig", newline="\n") as file:
        lines = ((number, line.rstrip("\r\n")) for number, line in enumerate(file, 1))
        return [(number, line.split("\t")) for number, line in lines if line.strip()]


def _table(path: Path, rows: list[tuple[int, list[str]]], broken_share: float = 0.0) -> Table:
    """Make a table of rows, the first naming the columns; those without a name, such as a row index, are dropped."""
    if not rows:
        raise DataError(f"{path} is empty")
    names = [name.strip() for name in rows[0][1]]
    doubled = sorted({name for name in names if name and names.count(name) > 1})
    if doubled:
        raise DataError(f"{path} names the column '{doubled[0]}' twice; rename one of them")
    whole = _drop_broken(path, rows[1:], len(names), broken_share)
    columns: dict[str, list[object]] = {name: [row[i] for _, row in whole] for i, name in enumerate(names) if name}
    return Table(path, columns, [number for number, _ in whole])


def _drop_broken(
    path: Path, rows: list[tuple[int, list[str]]], width: int, share: float
) -> list[tuple[int, list[str]]]:
    whole = [(number, row) for number, row in rows if len(row) == width]
    odd = [(number, len(row)) for number, row in rows if len(row) != width]
    if not odd:
        return whole
    if len(odd) > share * len(rows) or max(fields for _, fields in odd) > width:
        number, fields = odd[0]
        raise DataError(f"{path}, line {number}: {fields} fields where the header has {width}")
    _log.warning("%s: left out %d broken lines, the first is line %d", path, len(odd), odd[0][0])
    return whole


_READERS: dict[str, Callable[[Path], Table]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_json,
    ".json": _read_json,
    ".parquet": _read_parquet,
    ".txt": _read_text,
}
