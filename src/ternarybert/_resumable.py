"""A file that is written in steps and survives being killed between any two of them.

Rows go to `<file>.part`. After each step, `<file>.part.json` says which job writes here, how many input rows are done
and how long the part is by then. Whoever continues cuts off what came after, so a step is either there as a whole or
done again. The finished part takes the file's name in one move.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from ternarybert.errors import OutputError


@dataclass(frozen=True)
class State:
    """How far a job has come."""

    job: str  # a name for everything that decides the bytes
    done: int = 0  # input rows
    written: int = 0  # output rows
    size: int = 0  # bytes


def refuse_existing(path: Path, *, force: bool) -> None:
    """A finished file is not overwritten unless asked."""
    if path.exists() and not force:
        raise OutputError(f"{path} exists; name another file, or overwrite it with --force")


class ResumableFile:
    """Opens the part of an earlier run of the same job, or begins one."""

    def __init__(self, path: Path, job: str, *, force: bool = False) -> None:
        """Refuse a place where something else would be lost, unless forced."""
        self.path = path
        self.part, self._note = path.with_name(f"{path.name}.part"), path.with_name(f"{path.name}.part.json")
        refuse_existing(path, force=force)
        found = self._find(job)
        # An empty part has nothing to lose: whoever made it was killed before it wrote its note.
        if found is None and self.part.exists() and self.part.stat().st_size and not force:
            raise OutputError(f"{self.part} is from another run; remove it, or begin anew with --force")
        self.state = found or State(job)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._open(fresh=found is None)
        except OSError as error:
            raise OutputError(f"cannot write {self.part}: {error.strerror or error}") from error

    def append(self, lines: str, done: int, written: int) -> None:
        """Write the lines that belong to the next `done` input rows."""
        data = lines.encode()
        self._file.write(data)
        self._file.flush()
        # The rows must be on the disk before the note says so.
        os.fsync(self._file.fileno())
        before = self.state
        self.state = replace(
            before, done=before.done + done, written=before.written + written, size=before.size + len(data)
        )
        self._save()

    def finish(self, made: Path | None = None) -> None:
        """Give the file its name, or give it to another one that was made of it."""
        self._file.close()
        (made or self.part).replace(self.path)
        self._note.unlink(missing_ok=True)
        self.part.unlink(missing_ok=True)

    def __enter__(self) -> ResumableFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def _find(self, job: str) -> State | None:
        """The state of an earlier run of this very job, if its part is whole up to there."""
        try:
            state = State(**json.loads(self._note.read_text(encoding="utf-8")))
            whole = state.size <= self.part.stat().st_size
        except (OSError, ValueError, TypeError):
            return None
        return state if whole and state.job == job else None

    def _open(self, *, fresh: bool) -> BinaryIO:
        if fresh:
            self._note.unlink(missing_ok=True)  # it speaks of rows that are about to go
            self.part.write_bytes(b"")
            self._save()
        file = self.part.open("r+b")
        file.truncate(self.state.size)
        file.seek(self.state.size)
        return file

    def _save(self) -> None:
        new = self._note.with_name(f"{self._note.name}.new")
        new.write_text(json.dumps(asdict(self.state)), encoding="utf-8")
        new.replace(self._note)
