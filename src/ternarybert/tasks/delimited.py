"""CSV and TSV: lines of a file as fields, and fields by the names in the first line."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ternarybert.errors import DataError

if TYPE_CHECKING:
    from ternarybert.tasks.stream import Row, Rows

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
