"""Files that rows and their answers are written to.

CSV, TSV and JSON lines grow by lines. Parquet cannot be continued, so there the answers alone are collected as JSON
lines, and in the end join the rows of the input, which keep their types.

MERGED-DOCS:
How rows are written: like the input, so that whatever read it reads the result.

Rows are written one by one and never changed again, which is what lets a run be stopped and continued. That rules out
parquet.

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

from ternarybert.data.readers import Rows, import_parquet, parquet_batches
from ternarybert.errors import DataError, OptionError, suggest
from ternarybert.storage import ResumableFile


@dataclass(frozen=True)
class Layout:
    """A way to write a table as text."""

    kind: str  # csv (also for tabs), plain (tabs, and quotes mean nothing), jsonl or txt (one text a line)
    delimiter: str = ","
    header: bool = True

    def check(self, columns: Mapping[str, Sequence[object]], where: Path) -> None:
        """Refuse, before any work, what could not be read again."""
        if self.kind == "txt" and len(columns) > 1:
            raise DataError(f"{where}: one text a line has no room for {', '.join(columns)}; write .csv or .jsonl")
        breaks = {"plain": "\t\n", "txt": "\r\n"}.get(self.kind, "")
        for name, values in columns.items():
            row = next((i for i, value in enumerate(values) if any(c in str(value) for c in breaks)), None)
            if row is not None:
                raise DataError(f"{where}: row {row + 1} of '{name}' has a tab or line break; write .csv or .jsonl")

    def first_line(self, names: Sequence[str]) -> str:
        """What comes before the rows."""
        return self.line(dict(zip(names, names, strict=True))) if self.header and self.kind in ("csv", "plain") else ""

    def line(self, row: Mapping[str, object]) -> str:
        """One row, with its end of line."""
        if self.kind == "jsonl":
            return json.dumps(row, ensure_ascii=False, default=str) + "\n"
        fields = ["" if value is None else str(value) for value in row.values()]
        if self.kind == "csv":
            line = io.StringIO()
            # Some Pythons quote only the line breaks that the writer itself ends lines with; \r in a text needs it too.
            csv.writer(line, delimiter=self.delimiter, lineterminator="\r\n").writerow(fields)
            return line.getvalue().removesuffix("\r\n") + "\n"
        return "\t".join(fields) + "\n"


_BY_SUFFIX = {
    ".csv": Layout("csv"),
    ".tsv": Layout("csv", "\t"),
    ".jsonl": Layout("jsonl"),
    ".json": Layout("jsonl"),  # read as JSON lines unless it begins as a list
    ".txt": Layout("txt"),
}


def choose_layout(out: Path, like: Path, layout: Layout) -> Layout:
    """Give the layout of a file to write: the input's, when it is the same kind of file."""
    return layout if out.suffix.lower() == like.suffix.lower() != ".parquet" else layout_by_suffix(out)


def layout_by_suffix(path: Path) -> Layout:
    """Give the usual layout of a kind of file."""
    suffix = path.suffix.lower()
    if suffix not in _BY_SUFFIX:
        raise DataError(f"{path}: rows cannot be written to a file '{suffix}'{suggest(suffix, _BY_SUFFIX)}")
    return _BY_SUFFIX[suffix]


Kinds: TypeAlias = Mapping[str, "str | None"]  # of the answers' columns: Arrow's name of the type, where it has one
Step: TypeAlias = Sequence[tuple[dict[str, Any], dict[str, Any]]]  # rows and what was said to them

_BATCH = 4096  # rows of a parquet file


class Format:
    """JSON lines, which is also what the others begin with."""

    def __init__(self, rows: Rows, names: Sequence[str], kinds: Kinds) -> None:
        self.rows, self.names, self.kinds = rows, names, kinds

    def lines(self, step: Step, *, first: bool) -> str:
        """Rows with their answers; `first` if nothing is in the file yet."""
        return "".join(f"{_json({**row, **said})}\n" for row, said in step)

    def finish(self, file: ResumableFile) -> None:
        """All rows are written."""
        file.finish()


class _Separated(Format):
    """CSV and TSV."""

    delimiter = ","

    def lines(self, step: Step, *, first: bool) -> str:
        text = io.StringIO()
        writer = csv.writer(text, delimiter=self.delimiter, lineterminator="\n")
        if first:
            writer.writerow([*self.names, *step[0][1]])
        for row, said in step:
            if len(row) > len(self.names) or not row.keys() <= set(self.names):
                strange = next(name for name in row if name not in self.names)
                raise DataError(f"'{strange}' is not in the first rows of {self.rows.path}; write to a .jsonl file")
            writer.writerow([_field(row.get(name)) for name in self.names] + [_field(value) for value in said.values()])
        return text.getvalue()


class _Tabbed(_Separated):
    delimiter = "\t"


class _Parquet(Format):
    """The part holds the answers only."""

    def lines(self, step: Step, *, first: bool) -> str:
        return "".join(f"{_json(said)}\n" for _, said in step)

    def finish(self, file: ResumableFile) -> None:
        """Join rows and answers, batch by batch."""
        pyarrow, parquet = import_parquet()
        joined = file.path.with_name(f"{file.path.name}.joined")
        writer = None
        try:
            with file.part.open(encoding="utf-8", newline="\n") as answers:
                for table in _tables(self.rows, answers, self.kinds):
                    writer = writer or parquet.ParquetWriter(joined, table.schema)
                    writer.write_table(table.cast(writer.schema))
        except pyarrow.ArrowException as error:
            reason = str(error).splitlines()[0]
            raise DataError(f"{self.rows.path} makes no parquet table ({reason}); write to a .jsonl file") from error
        finally:
            if writer is not None:
                writer.close()
        file.finish(joined)


def _tables(rows: Rows, answers: Iterator[str], kinds: Kinds) -> Iterator[Any]:
    """Batches of the input with the answers as further columns."""
    pyarrow, _ = import_parquet()
    schema = None
    for batch in _row_batches(rows):
        said = [json.loads(line) for line in islice(answers, len(batch))]
        found = pyarrow.Table.from_pylist(said, schema=schema)
        schema = schema or _without_nulls(pyarrow, found.schema, kinds)
        found = found.cast(schema)
        table = pyarrow.Table.from_batches([batch])
        for name in found.column_names:
            table = table.append_column(name, found[name])
        yield table


def _row_batches(rows: Rows) -> Iterator[Any]:
    pyarrow, _ = import_parquet()
    if rows.path.suffix.lower() == ".parquet":
        yield from (batch for batch, _ in parquet_batches(rows.path, _BATCH))
        return
    numbered, schema = iter(rows), None
    while chunk := [row for _, row in islice(numbered, _BATCH)]:
        batch = pyarrow.RecordBatch.from_pylist(chunk, schema=schema)
        schema = schema or _without_nulls(pyarrow, batch.schema)
        yield batch.cast(schema)


def _without_nulls(pyarrow: Any, schema: Any, kinds: Kinds | None = None) -> Any:
    """A column in which the first rows have nothing may have values of its kind later on; of unknown kind, texts."""
    kinds = kinds or {}
    fields = []
    for one in schema:
        kind = pyarrow.type_for_alias(kinds.get(one.name) or "string")
        fields.append(pyarrow.field(one.name, kind if pyarrow.types.is_null(one.type) else one.type))
    return pyarrow.schema(fields)


def format_of(path: Path, rows: Rows, names: Sequence[str], kinds: Kinds) -> Format:
    """How to write a file, by its suffix; `kinds` are the columns of answers, `names` those of the input."""
    form = _FORMATS.get(path.suffix.lower())
    if form is None:
        raise OptionError(f"{path}: cannot write '{path.suffix}' files{suggest(path.suffix, _FORMATS)}")
    if form is _Parquet:
        import_parquet()  # said now and not after the last row
    return form(rows, names, kinds)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _field(value: object) -> object:
    return _json(value) if isinstance(value, (list, dict)) else value


_FORMATS = {".csv": _Separated, ".tsv": _Tabbed, ".jsonl": Format, ".parquet": _Parquet}
