"""Reads tables: CSV, TSV, JSON lines, a JSON list, parquet and plain text, by the file's suffix.

`open_rows` gives the rows one after the other, in constant memory (`Rows`); `read_table` gives them all as columns
(`Table`). Both know the line of every row, so that an error can point at it. A `Rows` can be iterated over again and
again, each time from the beginning, and knows how much of the file it has read, so a progress bar needs no row count.
What has to be found out about a file, such as its delimiter, is found out from a bounded part of it, once.

The standard library reads the text formats rather than pandas (behind `datasets`): pandas turns a review that says
"None" or "NA" into a missing value, renames duplicate columns without a warning and guesses types column by column.
Here a field of a text file stays the string that its author wrote.
"""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain, compress, islice
from pathlib import Path
from typing import Any, TypeAlias

from ternarybert.errors import DataError, MissingExtraError, suggest, suggest_path

Row: TypeAlias = tuple[int, dict[str, object]]  # the number of its line (or row), and its fields by name
Line: TypeAlias = tuple[int, list[str]]  # the number of the line where it ends, and its fields

_log = logging.getLogger(__name__)
_TEXT_FILES = (".csv", ".tsv", ".txt")  # in which a row may be blank
_SAMPLE = 200  # rows that are read to see what the columns are
_DELIMITERS = ",;\t"  # spreadsheets write semicolons where the comma is the decimal point
_LOOK_AHEAD = 2_000, 1 << 20  # lines and characters that decide whether quotes enclose the fields of a TSV file
_BLOCK = 1 << 16  # characters of a JSON list read at a time
_ESCAPED_SURROGATE = "\\ud"  # how JSON writes a surrogate, alone or in a pair
_BATCH = 1024  # rows of a parquet file
_CSV_LIMIT = 2**31 - 1  # characters of a field; the most that every platform takes


class BadRow(dict[str, object]):
    """The fields of a row that could be read, and what is wrong with it."""

    def __init__(self, reason: str, fields: Iterable[tuple[str, object]] = ()) -> None:
        super().__init__(fields)
        self.reason = reason


@dataclass
class Rows:
    """A file to be read row by row, or several as one (locations.py)."""

    path: Any  # a Path, or a RemotePath, which has what is used of one here
    read: Callable[[Rows], Iterator[Row]]
    unit: str = "line"  # what rows are counted by
    named: bool = True  # False for .txt, whose one column has no name
    strict: bool = True  # a bad row is an error; if not, it is given as a `BadRow`
    name: str = ""  # for messages; by default the path
    parts: tuple[TablePart, ...] = ()  # the files, where there are several
    share: float = field(default=0.0, init=False)  # of the file that was read so far
    delimiter: str | None = field(default=None, init=False)  # of a CSV file, once it is known
    quoted: bool | None = field(default=None, init=False)  # whether quotes enclose fields of a TSV file, once known

    def __iter__(self) -> Iterator[Row]:
        try:
            yield from self.read(self)
        except OSError as error:
            raise DataError(f"cannot read {self}: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise DataError(f"{self} is not UTF-8 text (byte {error.start}); save it as UTF-8") from error

    def __str__(self) -> str:
        return self.name or str(self.path)

    def location(self, number: int) -> str:
        """Where a row is, for a message."""
        return f"{self}, {self.unit} {number}"

    def bad(self, number: int, reason: str, fields: Iterable[tuple[str, object]] = ()) -> BadRow:
        """A row that is not as it should be."""
        if self.strict:
            raise DataError(f"{self.location(number)}: {reason}")
        return BadRow(reason, fields)

    def text_lines(self, newline: str | None = None) -> Iterator[str]:
        """The lines of a text file; each that is read moves the share forward."""
        size = max(1, self.path.stat().st_size)
        with self.path.open(encoding="utf-8-sig", newline=newline) as file:
            buffer: Any = file.buffer
            for line in file:
                self.share = buffer.raw.tell() / size
                yield line

    def text_blocks(self) -> Iterator[str]:
        """The text of a file, block by block."""
        size = max(1, self.path.stat().st_size)
        with self.path.open(encoding="utf-8-sig") as file:
            buffer: Any = file.buffer
            while block := file.read(_BLOCK):
                self.share = buffer.raw.tell() / size
                yield block


@dataclass(frozen=True)
class TablePart:
    """One of several files, and the columns that its folders stand for."""

    rows: Rows
    fields: dict[str, str]


@dataclass(frozen=True)
class Table:
    """Columns of one file, equally long."""

    path: Path
    columns: dict[str, list[object]]
    lines: Sequence[int]  # of each row: the line, or for binary files the row, where it (or its last part) stands
    unit: str = "line"
    named: bool = True  # False for .txt, whose one column has no name

    def __len__(self) -> int:
        return len(self.lines)

    def location(self, row: int) -> str:
        """Where a row is, for a message."""
        return f"{self.path}, {self.unit} {self.lines[row]}"

    def column(self, name: str) -> list[object]:
        """A column, or an error that names the nearest one."""
        if name not in self.columns:
            raise DataError(f"{self.path} has no column '{name}'{suggest(name, self.columns)}")
        return self.columns[name]

    def select(self, wanted: Sequence[bool]) -> Table:
        """The rows that are wanted."""
        columns = {name: list(compress(values, wanted)) for name, values in self.columns.items()}
        return replace(self, columns=columns, lines=list(compress(self.lines, wanted)))


def open_rows(path: str | Path) -> Rows:
    """Open a file to be read row by row."""
    path = Path(path)
    check_file(path)
    suffix = path.suffix.lower()
    if suffix not in _READERS:
        raise DataError(f"{path}: unknown kind of file '{path.suffix}'{suggest(path.suffix, _READERS)}")
    return rows_of(path)


def rows_of(path: Any) -> Rows:
    """The rows of a file whose suffix is known."""
    suffix = path.suffix.lower()
    return Rows(path, _READERS[suffix], "row" if suffix == ".parquet" else "line", named=suffix != ".txt")


def check_file(path: Path) -> None:
    """Refuse what is not a file that can be read more than once."""
    if path.is_dir():
        raise DataError(f"{path} is a folder; give a file")
    if not path.exists():
        raise DataError(f"{path} does not exist{suggest_path(path)}")
    if not path.is_file():
        raise DataError(f"{path} is a pipe or a device, which cannot be read twice; write it to a file first")


def read_table(path: str | Path) -> Table:
    """Read a whole file; blank rows of a text file are left out, with a warning."""
    rows = open_rows(path)
    return _table(rows, keep_blank=rows.path.suffix.lower() not in _TEXT_FILES)


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
        lines = [line for line in _split_at_tabs(rows.text_lines(newline="\n")) if "".join(line[1]).strip()]
        if header is not None:
            lines.insert(0, (0, list(header)))
        return _named(rows, iter(_without_broken(rows, lines, broken_share)))

    return _table(Rows(path, read))


def delimiter_of(path: Path) -> str:
    """What separates the columns of a CSV file: the one that makes most of them in the header, not within quotes."""
    return max(_DELIMITERS, key=lambda delimiter: len(_csv_header(path, delimiter)))


def parquet_batches(path: Path, size: int = _BATCH) -> Iterator[tuple[Any, int]]:
    """The record batches of a parquet file, and how many rows it has."""
    pyarrow, parquet = import_parquet()
    with path.open("rb") as source:
        try:
            file = parquet.ParquetFile(source, pre_buffer=False)
            for group in range(file.num_row_groups):  # one by one: all of them would be read ahead
                for batch in file.iter_batches(batch_size=size, row_groups=[group]):
                    yield batch, max(1, file.metadata.num_rows)
        except pyarrow.ArrowException as error:
            raise DataError(f"{path} is not a readable parquet file ({str(error).splitlines()[0]})") from error


def parquet_columns(path: Path) -> list[str]:
    """The names of the columns of a parquet file; no rows are read."""
    pyarrow, parquet = import_parquet()
    try:
        names: list[str] = parquet.read_schema(path).names
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"{path} is not a readable parquet file ({str(error).splitlines()[0]})") from error
    return names


def import_parquet() -> tuple[Any, Any]:
    """Import what reads parquet, or say what to install."""
    try:
        import pyarrow  # type: ignore[import-untyped]
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError("parquet files need more: pip install pyarrow; or use CSV or JSON lines") from error
    return pyarrow, parquet


def _table(rows: Rows, most: int | None = None, *, keep_blank: bool = True) -> Table:
    columns: dict[str, list[object]] = {}
    lines: list[int] = []
    for number, row in islice(rows if keep_blank else _without_blank_rows(rows), most):
        for name, value in row.items():
            if name not in columns:
                columns[name] = [None] * len(lines)
            columns[name].append(value)
        lines.append(number)
        if len(row) < len(columns):
            for values in columns.values():
                values += [None] * (len(lines) - len(values))
    if not lines:
        raise DataError(f"{rows} holds no rows")
    return Table(rows.path, columns, lines, rows.unit, rows.named)


def _without_blank_rows(rows: Rows) -> Iterator[Row]:
    blank: list[int] = []
    for number, row in rows:
        if any(row.values()):
            yield number, row
        else:
            blank.append(number)
    if blank:
        _log.warning("%s: left out %d blank rows, the first is %s %d", rows, len(blank), rows.unit, blank[0])


# --- CSV and TSV -----------------------------------------------------------------------------------------------


def _read_csv(rows: Rows) -> Iterator[Row]:
    """A CSV file, whatever its delimiter is."""
    if rows.delimiter is None:
        rows.delimiter = delimiter_of(rows.path)
    return _named(rows, _quoted(rows, rows.text_lines(newline=""), rows.delimiter))


def _read_tsv(rows: Rows) -> Iterator[Row]:
    return _named(rows, _tsv_lines(rows))


def _tsv_lines(rows: Rows) -> Iterator[Line]:
    """The lines of a TSV file with quotes or without: some programs quote fields in TSV files, others do not.

    Up to the first line where that makes a difference there is nothing to decide. From there on the next lines do.
    """
    lines = rows.text_lines(newline="\n")  # only \n ends a line: texts that hold a lone \r would fall into two
    width, number = 0, 0
    for number, line in enumerate(lines, 1):
        if not width and "\r" in line.rstrip("\r\n"):  # an old Macintosh file, with \r at the end of every line
            yield from _quoted(rows, rows.text_lines(newline=""), "\t")
            return
        if _is_ambiguous(line):
            ahead, further = [line, *_take(lines, *_LOOK_AHEAD)], list(islice(lines, 1))
            if rows.quoted is None:
                rows.quoted = _quotes_enclose(ahead, width, is_whole=not further)
            rest = chain(ahead, further, lines)
            if rows.quoted:
                yield from _quoted(rows, rest, "\t", number, width)
            else:
                yield from _without_blank_lines(_split_at_tabs(rest, number), width)
            return
        fields = line.rstrip("\r\n").split("\t")
        width = width or (len(fields) if line.strip() else 0)
        if line.strip() or len(fields) == width:
            yield number, fields


def _is_ambiguous(line: str) -> bool:
    """Whether a line reads differently with quotes: only at the beginning of a field they can enclose it."""
    return line.startswith('"') or '\t"' in line or "\r" in line.rstrip("\r\n")


def _quotes_enclose(lines: Sequence[str], width: int, *, is_whole: bool) -> bool:
    """Whether quotes in a TSV file enclose fields: if that gives a regular table.

    Unless lines that are regular by themselves would be glued together: then these are two stray quotes, and not the
    ends of one long text. The lines begin with the first that has a quote. Unless the file ends with them
    (`is_whole`), the last text may end in the lines that follow.
    """
    plain = [len(fields) for _, fields in _split_at_tabs(lines) if any(map(str.strip, fields))]
    enclosed: list[int] = []
    try:
        with _any_length():
            enclosed += (len(fields) for fields in csv.reader(lines, delimiter="\t", strict=True) if any(fields))
    except csv.Error as error:
        if is_whole or "unexpected end of data" not in str(error):
            return False
    expected = {width} if width else set(enclosed[:1])
    glued = len(set(plain) | expected) == 1 and len(enclosed) < len(plain)
    return bool(enclosed) and set(enclosed) == expected and not glued


def _split_at_tabs(lines: Iterable[str], first: int = 1) -> Iterator[Line]:
    """Lines in which every tab separates and quotes mean nothing."""
    return ((number, line.rstrip("\r\n").split("\t")) for number, line in enumerate(lines, first))


def _without_blank_lines(lines: Iterable[Line], width: int = 0) -> Iterator[Line]:
    """The lines from the header on that are rows. One with as many fields as the header is, even if all are empty."""
    for number, fields in lines:
        if any(map(str.strip, fields)) or (width and len(fields or [""]) == width):
            width = width or len(fields)
            yield number, fields or [""]


def _quoted(rows: Rows, lines: Iterator[str], delimiter: str, first: int = 1, width: int = 0) -> Iterator[Line]:
    """Lines in which quotes enclose fields, also over the end of a line."""
    return _without_blank_lines(_csv_lines(rows, lines, delimiter, first), width)


def _csv_lines(rows: Rows, lines: Iterator[str], delimiter: str, first: int) -> Iterator[Line]:
    with _any_length():
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        try:
            for fields in reader:
                yield first - 1 + reader.line_num, fields
        except csv.Error as error:
            raise DataError(f"{rows.location(first - 1 + reader.line_num)}: {error}; look for a stray quote") from error


def _named(rows: Rows, lines: Iterator[Line]) -> Iterator[Row]:
    """Rows by the names in the first one; columns without a name, such as a row index, are dropped."""
    header = next(lines, None)
    if header is None:
        raise DataError(f"{rows} is empty")
    names = [name.strip() for name in header[1]]
    doubled = sorted({name for name in names if name and names.count(name) > 1})
    if doubled:
        raise DataError(f"{rows} names the column '{doubled[0]}' twice; rename one of them")
    for number, fields in lines:
        named = ((name, value) for name, value in zip(names, fields, strict=False) if name)
        if len(fields) == len(names):
            yield number, dict(named)
        else:
            yield number, rows.bad(number, f"{len(fields)} fields where the header has {len(names)}", named)


def _without_broken(rows: Rows, lines: list[Line], share: float) -> list[Line]:
    """Drop lines that are too short, if they are few enough; else leave them all, to be refused."""
    width = len(lines[0][1]) if lines else 0
    odd = [(number, len(fields)) for number, fields in lines if len(fields) != width]
    if not odd or len(odd) > share * (len(lines) - 1) or max(fields for _, fields in odd) > width:
        return lines
    _log.warning("%s: left out %d broken lines, the first is line %d", rows, len(odd), odd[0][0])
    return [line for line in lines if len(line[1]) == width]


def _csv_header(path: Path, delimiter: str) -> list[str]:
    with _any_length(), path.open(encoding="utf-8-sig", newline="") as file:
        try:
            return next(filter(any, csv.reader(_take(file, *_LOOK_AHEAD), delimiter=delimiter)), [])
        except csv.Error:  # the reader of the rows meets it again, and names the line
            return []


def _take(lines: Iterator[str], count: int, characters: int) -> Iterator[str]:
    """The next lines, until there are so many of them or of their characters."""
    for line in islice(lines, count):
        yield line
        characters -= len(line)
        if characters < 0:
            return


@contextmanager
def _any_length() -> Iterator[None]:
    """Let texts be of any length."""
    limit = csv.field_size_limit(_CSV_LIMIT)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


# --- JSON, text and parquet ------------------------------------------------------------------------------------


def _read_json(rows: Rows) -> Iterator[Row]:
    """One list of objects, or JSON lines under a shorter name."""
    start = next((block.lstrip() for block in rows.text_blocks() if not block.isspace()), "")
    return _read_json_list(rows) if start.startswith("[") else _read_json_lines(rows)


def _read_json_lines(rows: Rows) -> Iterator[Row]:
    # Only \n ends a line: JSON strings may hold the rarer line separators of Unicode as they are.
    for number, line in enumerate(rows.text_lines(newline="\n"), 1):
        if line.strip():
            try:
                value = _whole_characters(json.loads(line), line)
            except json.JSONDecodeError as error:
                yield number, rows.bad(number, f"not JSON ({error.msg}); one object a line")
            except RecursionError:
                yield number, rows.bad(number, "not JSON (nested too deeply)")
            except ValueError:  # Python limits the digits of an integer
                yield number, rows.bad(number, "not JSON (a number with too many digits)")
            else:
                yield number, _object(rows, number, value)


def _read_json_list(rows: Rows) -> Iterator[Row]:
    """The objects of a list, one by one: of the text only the object that is being read is in memory."""
    rows.unit = "object"
    text = _JsonText(rows)
    text.expect("[")
    number = 0
    while not text.accepts("]"):
        if number:
            text.expect(",")
        number += 1
        yield number, _object(rows, number, text.value())
    if text.next():
        raise text.fault("Extra data")


class _JsonText:
    """The text of a JSON file, from which values are taken one by one."""

    def __init__(self, rows: Rows) -> None:
        self._rows, self._blocks = rows, rows.text_blocks()
        self._text, self._lines = "", 1  # what was read and not taken yet; the number of its first line
        self._decoder = json.JSONDecoder()

    def next(self) -> str:
        """The next character that is not blank; nothing at the end."""
        while not (text := self._text.lstrip(" \t\r\n")):
            if not self._more():
                self._drop(len(self._text))
                return ""
        self._drop(len(self._text) - len(text))
        return self._text[0]

    def accepts(self, mark: str) -> bool:
        """Take a character if it is the next one."""
        if self.next() != mark:
            return False
        self._drop(1)
        return True

    def expect(self, mark: str) -> None:
        """Take a character that must be the next one."""
        if not self.accepts(mark):
            raise self.fault(f"Expecting '{mark}'")

    def value(self) -> Any:
        """Take a value; where it is not complete, as much again is read, so that no text is parsed too often."""
        self.next()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text)
            except RecursionError as error:
                raise self.fault("nested too deeply") from error
            except json.JSONDecodeError as error:
                if not self._more(len(self._text)):
                    raise self.fault(error.msg, error.lineno) from error
                continue
            except ValueError as error:  # Python limits the digits of an integer
                raise self.fault("a number with too many digits") from error
            # A number may go on in the next block.
            if end < len(self._text) or not self._more():
                text = self._text[:end]
                self._drop(end)
                return _whole_characters(value, text)

    def fault(self, reason: str, line: int = 1) -> DataError:
        """An error at a line of the text that is left."""
        return DataError(f"{self._rows}, line {self._lines + line - 1}: not JSON ({reason})")

    def _drop(self, count: int) -> None:
        self._lines += self._text.count("\n", 0, count)
        self._text = self._text[count:]

    def _more(self, characters: int = 1) -> bool:
        """Read further, at least so many characters; whether there were any."""
        blocks = []
        while characters > 0 and (block := next(self._blocks, "")):
            blocks.append(block)
            characters -= len(block)
        self._text += "".join(blocks)
        return bool(blocks)


def _whole_characters(value: Any, text: str) -> Any:
    """Replace lone surrogates, such as half of an emoji, which no file and no tokenizer can take."""
    if _ESCAPED_SURROGATE not in text.lower():
        return value
    return json.loads(json.dumps(value, ensure_ascii=False).encode(errors="replace"))


def _object(rows: Rows, number: int, record: object) -> dict[str, object]:
    return record if isinstance(record, dict) else rows.bad(number, "not an object with named fields")


def _read_text(rows: Rows) -> Iterator[Row]:
    for number, line in enumerate(rows.text_lines(), 1):
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


_READERS: dict[str, Callable[[Rows], Iterator[Row]]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_json_lines,
    ".json": _read_json,
    ".parquet": _read_parquet,
    ".txt": _read_text,
}
SUFFIXES = tuple(_READERS)  # of the files that can be read
