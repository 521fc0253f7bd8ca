"""A file as a table of columns, which remembers the line of every row so that a complaint can point at it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import compress, islice
from pathlib import Path

from ternarybert.errors import DataError, suggest
from ternarybert.tasks.delimited import Line, named, plain
from ternarybert.tasks.stream import Row, Rows, open_rows

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
