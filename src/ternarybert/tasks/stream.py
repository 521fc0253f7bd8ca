"""Rows of a file one after the other, in constant memory; `files.py` makes tables of them.

A `Rows` can be iterated over again and again, each time from the beginning. It tells how much of the file has been
read, so that a progress bar needs no count of the rows.

The standard library reads the text formats rather than pandas (behind `datasets`): pandas turns a review that says
"None" or "NA" into a missing value, renames doubled columns in silence and guesses types column by column. Here a
field of a text file stays the string that its author wrote.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from ternarybert._nearby import nearby
from ternarybert.errors import DataError, MissingExtraError, suggest
from ternarybert.tasks.delimited import read_csv, read_tsv

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
        raise DataError(f"{path} is a folder; give a file" if path.is_dir() else f"{path} does not exist{nearby(path)}")
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


_READERS: dict[str, Callable[[Rows], Iterator[Row]]] = {
    ".csv": read_csv,
    ".tsv": read_tsv,
    ".jsonl": _read_json_lines,
    ".json": _read_json,
    ".parquet": _read_parquet,
    ".txt": _read_text,
}
