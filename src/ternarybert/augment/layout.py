"""How rows are written: like the input, so that whatever read it reads the result.

Rows are written one by one and never changed again, which is what lets a run be stopped and continued. That rules out
parquet.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ternarybert.errors import DataError, suggest


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
