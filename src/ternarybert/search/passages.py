"""Files as passages: paragraphs of texts with the line they start at, or the rows of a table's column.

A heading belongs to the paragraph that follows it, and a paragraph that is too long for a vector is split between
lines or sentences. What is not text (a NUL among the first bytes) is left out. Text that is not UTF-8 is read anyway,
with a mark for every byte that has no meaning. Both are reported, not silent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ternarybert.data.readers import check_file, open_rows, sample
from ternarybert.data.table import choose_columns
from ternarybert.runtime.predict_file import text_of

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
LONGEST = 900  # characters of a passage: about 200 tokens
SHORTEST = 20  # characters; a line with less says too little to be found
_PROBE = 8192  # bytes in which a file shows whether it is text
_LARGEST_FILE = 64 << 20  # bytes
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")


@dataclass(frozen=True)
class Passage:
    """A part of a file, and the line or row where it starts."""

    line: int
    text: str


@dataclass
class ReadingNotes:
    """What the user should know about the files that were read."""

    binary: list[Path] = field(default_factory=list)
    broken: list[Path] = field(default_factory=list)  # not UTF-8
    unreadable: list[Path] = field(default_factory=list)
    large: list[Path] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """One line for each kind of file that was not read as it is."""
        kinds = {
            "left out, not text": self.binary,
            f"left out, larger than {_LARGEST_FILE >> 20} MB": self.large,
            "left out, cannot be read": self.unreadable,
            "not UTF-8, read with marks for what has no meaning": self.broken,
        }
        for what, paths in kinds.items():
            if paths:
                more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
                yield f"{what}: {paths[0]}{more}"


def find_files(root: Path) -> list[Path]:
    """The files below a folder in a fixed order, or the file itself; what is hidden is left out."""
    if root.is_file():
        return [root]
    if not root.is_dir():
        check_file(root)
    found: list[Path] = []
    for folder, folders, names in os.walk(root):  # does not follow links to folders, so it ends
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(folder) / name for name in sorted(names) if not name.startswith(".")]
    return [path for path in found if path.is_file()]


def read_passages(path: Path, notes: ReadingNotes) -> list[Passage]:
    """The passages of a text; none of a file that is not text."""
    try:
        if path.stat().st_size > _LARGEST_FILE:
            notes.large.append(path)
            return []
        data = path.read_bytes()
    except OSError:
        notes.unreadable.append(path)
        return []
    text = _decode(data)
    if text is None:
        notes.binary.append(path)
        return []
    if "\ufffd" in text and "\ufffd".encode() not in data:
        notes.broken.append(path)
    return list(split_text(text))


def read_rows(path: Path, column: str | None = None) -> list[Passage]:
    """The rows of a table as passages; the column of the texts is guessed where it is obvious."""
    rows = open_rows(path)
    name = choose_columns([sample(rows)], column, None, None).texts[0]
    texts = ((number, text_of([row.get(name)], [name])) for number, row in open_rows(path))
    return [
        Passage(number, text.strip()) for number, (text, reason) in texts if reason is None and isinstance(text, str)
    ]


def _decode(data: bytes) -> str | None:
    """The text of a file, None if it is none."""
    for mark, encoding in ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if data.startswith(mark):
            return data.decode(encoding, errors="replace")
    if b"\0" in data[:_PROBE]:
        return None
    return data.decode("utf-8-sig", errors="replace")


def split_text(text: str) -> Iterator[Passage]:
    """Paragraphs, with their headings, of at most `LONGEST` characters."""
    heading: list[tuple[int, str]] = []
    for block in _blocks(text.splitlines()):
        if len(block) == 1 and _is_heading(block[0][1]):
            heading = [*heading, *block] if heading and block[0][0] - heading[-1][0] <= 2 else block
            continue
        for lines in _short_enough([*heading, *block]):
            joined = " ".join(line.strip() for _, line in lines).strip()
            if len(joined) >= SHORTEST:
                yield Passage(lines[0][0], joined)
        heading = []
    if heading and len(joined := " ".join(line.strip() for _, line in heading)) >= SHORTEST:
        yield Passage(heading[0][0], joined)


def _blocks(lines: Sequence[str]) -> Iterator[list[tuple[int, str]]]:
    """Numbered lines between blank ones; a heading is a block of its own."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        if (not line.strip() or _is_heading(line)) and block:
            yield block
            block = []
        if _is_heading(line):
            yield [(number, line)]
        elif line.strip():
            block.append((number, line))
    if block:
        yield block


def _is_heading(line: str) -> bool:
    return line.startswith("#") and line.lstrip("#").startswith(" ") and len(line) < 200


def _short_enough(lines: list[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    """The lines in groups of at most `LONGEST` characters; a longer line is split at its sentences."""
    group: list[tuple[int, str]] = []
    size = 0
    for number, line in lines:
        for part in [line] if len(line) <= LONGEST else _sentences(line):
            if group and size + len(part) > LONGEST:
                yield group
                group, size = [], 0
            group.append((number, part))
            size += len(part) + 1
    if group:
        yield group


def _sentences(line: str) -> Iterator[str]:
    for sentence in _SENTENCE_END.split(line):
        for start in range(0, len(sentence), LONGEST):
            yield sentence[start : start + LONGEST]
