"""Writes tables: whole, row by row, or as the rows of an input with a model's answers beside them.

A `TableFormat` turns a row into a line of CSV, TSV, JSON lines or plain text, so that whatever read the input reads the
output. Lines are only appended, which lets a run be stopped and resumed. Parquet has no lines: there an `AnswerWriter`
collects the answers as JSON lines, and at the end joins them with the rows of the input, which keep their types.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

from ternarybert.data.readers import Rows, TablePart, import_parquet, parquet_batches
from ternarybert.errors import DataError, OptionError, suggest
from ternarybert.storage import ResumableFile, replace_file

ArrowTypes: TypeAlias = Mapping[str, "str | None"]  # Arrow's names of the types of columns; None: a list
Answered: TypeAlias = tuple[Mapping[str, Any], Mapping[str, Any]]  # a row, and the columns that hold its answer

_BATCH = 4096  # rows of a parquet file


@dataclass(frozen=True)
class TableFormat:
    """A way to write a table as text."""

    kind: str  # csv (also for tabs), plain (tabs, and quotes mean nothing), jsonl or txt (one text a line)
    delimiter: str = ","
    header: bool = True

    def check(self, columns: Mapping[str, Sequence[object]], path: Path) -> None:
        """Refuse, before any work, what could not be read again."""
        if self.kind == "txt" and len(columns) > 1:
            raise DataError(
                f"{path}: a .txt file holds one text per line and cannot store {', '.join(columns)}; "
                "write .csv or .jsonl"
            )
        breaks = {"plain": "\t\n", "txt": "\r\n"}.get(self.kind, "")
        for name, values in columns.items():
            row = next((i for i, value in enumerate(values) if any(c in str(value) for c in breaks)), None)
            if row is not None:
                raise DataError(f"{path}: row {row + 1} of '{name}' has a tab or line break; write .csv or .jsonl")

    def first_line(self, names: Sequence[str]) -> str:
        """The header, for a format that has one."""
        return self.line(dict(zip(names, names, strict=True))) if self.header and self.kind in ("csv", "plain") else ""

    def line(self, row: Mapping[str, object]) -> str:
        """One row, with its end of line."""
        if self.kind == "jsonl":
            return _json(row) + "\n"
        fields = [_field(value) for value in row.values()]
        if self.kind == "csv":
            line = io.StringIO()
            # Before Python 3.13 only the line breaks are quoted that the writer itself ends lines with.
            csv.writer(line, delimiter=self.delimiter, lineterminator="\r\n").writerow(fields)
            return line.getvalue().removesuffix("\r\n") + "\n"
        return "\t".join(fields) + "\n"


def format_by_suffix(path: Path) -> TableFormat:
    """The usual format of a kind of file."""
    suffix = path.suffix.lower()
    if suffix not in _BY_SUFFIX:
        raise DataError(f"{path}: rows cannot be written to a file '{suffix}'{suggest(suffix, _BY_SUFFIX)}")
    return _BY_SUFFIX[suffix]


def matching_format(path: Path, input_path: Path, input_format: TableFormat) -> TableFormat:
    """The format of a file to write: the input's, when it is the same kind of file."""
    same = path.suffix.lower() == input_path.suffix.lower() != ".parquet"
    return input_format if same else format_by_suffix(path)


def write_table(path: Path, columns: Mapping[str, Sequence[object]]) -> None:
    """Write a whole table in the usual format of its kind of file."""
    form, names = format_by_suffix(path), list(columns)
    form.check(columns, path)
    with replace_file(path) as draft, draft.open("w", encoding="utf-8", newline="") as file:
        file.write(form.first_line(names))
        for values in zip(*columns.values(), strict=True):
            file.write(form.line(dict(zip(names, values, strict=True))))


class AnswerWriter:
    """Writes the rows of an input with answers beside them, as lines of a resumable file."""

    def __init__(self, rows: Rows, names: Sequence[str], answers: ArrowTypes, form: TableFormat) -> None:
        self.rows, self.names, self.answers, self.form = rows, names, answers, form

    def append(self, file: ResumableFile, step: Sequence[Answered], input_hash: str = "") -> None:
        """Write the next rows; `input_hash` is that of all rows up to them."""
        if step:
            first = self.form.first_line([*self.names, *self.answers]) if file.progress.size == 0 else ""
            lines = [self.form.line(self._row(row, answer)) for row, answer in step]
            file.append(first + "".join(lines), done=len(step), written=len(step), input_hash=input_hash)

    def finish(self, file: ResumableFile) -> None:
        """All rows are written."""
        file.finish()

    def _row(self, row: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
        if self.form.kind == "jsonl":
            return {**row, **answer}
        if not row.keys() <= set(self.names):
            late = next(name for name in row if name not in self.names)
            raise DataError(f"'{late}' is not in the first rows of {self.rows}; write to a .jsonl file")
        return {name: row.get(name) for name in self.names} | dict(answer)


class ParquetAnswerWriter(AnswerWriter):
    """Collects the answers, and joins them with the rows of the input at the end."""

    def finish(self, file: ResumableFile) -> None:
        """Join rows and answers, batch by batch."""
        pyarrow, parquet = import_parquet()
        joined = file.path.with_name(f"{file.path.name}.joined")
        writer = None
        try:
            with file.part.open(encoding="utf-8", newline="\n") as lines:
                for table in _joined(self.rows, lines, self.answers):
                    writer = writer or parquet.ParquetWriter(joined, table.schema)
                    writer.write_table(table.cast(writer.schema))
        except pyarrow.ArrowException as error:
            reason = str(error).splitlines()[0]
            raise DataError(f"{self.rows} makes no parquet table ({reason}); write to a .jsonl file") from error
        finally:
            if writer is not None:
                writer.close()
        file.finish(joined)

    def _row(self, row: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
        return dict(answer)


def answer_writer(path: Path, rows: Rows, names: Sequence[str], answers: ArrowTypes) -> AnswerWriter:
    """What writes a file of this suffix; `names` are the columns of the input, `answers` those that are added."""
    suffix = path.suffix.lower()
    if suffix not in _ANSWER_SUFFIXES:
        raise OptionError(f"{path}: cannot write '{path.suffix}' files{suggest(path.suffix, _ANSWER_SUFFIXES)}")
    if suffix == ".parquet":
        import_parquet()  # an error now, and not after the last row
        return ParquetAnswerWriter(rows, names, answers, TableFormat("jsonl"))
    return AnswerWriter(rows, names, answers, format_by_suffix(path))


def _joined(rows: Rows, lines: Iterator[str], types: ArrowTypes) -> Iterator[Any]:
    """Batches of the input with the answers as further columns."""
    pyarrow, _ = import_parquet()
    schema = None
    for batch in _row_batches(rows):
        records = [json.loads(line) for line in islice(lines, len(batch))]
        answers = pyarrow.Table.from_pylist(records, schema=schema)
        schema = schema or _without_nulls(pyarrow, answers.schema, types)
        answers = answers.cast(schema)
        table = pyarrow.Table.from_batches([batch])
        for name in answers.column_names:
            table = table.append_column(name, answers[name])
        yield table


def _row_batches(rows: Rows) -> Iterator[Any]:
    pyarrow, _ = import_parquet()
    if rows.path.suffix.lower() == ".parquet":
        for part in rows.parts or (TablePart(rows, {}),):
            for batch, _ in parquet_batches(part.rows.path, _BATCH):
                yield _with_fields(pyarrow, batch, part.fields)
        return
    numbered, schema = iter(rows), None
    while chunk := [row for _, row in islice(numbered, _BATCH)]:
        batch = pyarrow.RecordBatch.from_pylist(chunk, schema=schema)
        schema = schema or _without_nulls(pyarrow, batch.schema)
        yield batch.cast(schema)


def _with_fields(pyarrow: Any, batch: Any, fields: Mapping[str, str]) -> Any:
    """A batch with the columns of its part in front, as in its rows."""
    own = batch.schema.names
    added = {name: pyarrow.array([value] * len(batch)) for name, value in fields.items() if name not in own}
    arrays, names = [*added.values(), *batch.columns], [*added, *own]
    return pyarrow.RecordBatch.from_arrays(arrays, names=names) if added else batch


def _without_nulls(pyarrow: Any, schema: Any, types: ArrowTypes | None = None) -> Any:
    """A column that is empty in the first rows may have values of its type later on; of unknown type: text."""
    types = types or {}
    fields = []
    for one in schema:
        kind = pyarrow.type_for_alias(types.get(one.name) or "string")
        fields.append(pyarrow.field(one.name, kind if pyarrow.types.is_null(one.type) else one.type))
    return pyarrow.schema(fields)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _field(value: object) -> str:
    if value is None:
        return ""
    return _json(value) if isinstance(value, (list, dict)) else str(value)


_BY_SUFFIX = {
    ".csv": TableFormat("csv"),
    ".tsv": TableFormat("csv", "\t"),
    ".jsonl": TableFormat("jsonl"),
    ".json": TableFormat("jsonl"),  # read as JSON lines unless it begins as a list
    ".txt": TableFormat("txt"),
}
_ANSWER_SUFFIXES = (".csv", ".tsv", ".jsonl", ".parquet")
