"""Files in a folder, safely: reading never leaves the folder, writing never leaves half a folder behind.

A new folder is written under another name beside its place, flushed to the disk, and renamed. When it replaces an older
one, that is renamed away first and removed last, so at every moment a complete folder exists under one of the names.

MERGED-DOCS:
A file that is written in steps and survives being killed between any two of them.

Rows go to `<file>.part`. After each step, `<file>.part.json` says which job writes here, how many input rows are done
and how long the part is by then. Whoever continues cuts off what came after, so a step is either there as a whole or
done again. The finished part takes the file's name in one move.

"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from ternarybert.errors import (
    FolderExistsError,
    OutputError,
    PackedConfigError,
    PackedError,
    TernaryBertError,
    UnsafeFileError,
)


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


PICKLED = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib")

REPORT, REPORT_PAGE = "report", "report.html"  # what `ternarybert report` adds to a packed folder


def find_file(folder: Path, name: str) -> Path | None:
    """Give the path of a regular file in the folder, None if there is none of that name."""
    path = folder / name
    if not os.path.lexists(path):
        return None
    if not path.is_file():  # a pipe would block us, a directory or a dangling link cannot be read
        raise UnsafeFileError(f"{name} is not a regular file")
    return path


def read_file(path: Path, limit: int) -> bytes:
    """Read a whole file that must not be longer than the limit."""
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise PackedConfigError(f"{path.name} is longer than {limit} bytes, which is the limit")
    return data


@contextmanager
def reading(folder: str | Path) -> Iterator[None]:
    """Let every error of the block name the folder, and those of the disk be ours."""
    try:
        yield
    except PackedError as error:
        raise type(error)(f"{folder}: {error}") from error
    except OSError as error:
        raise PackedError(f"{folder}: cannot be read: {error.strerror or error}") from error


@contextmanager
def writing(folder: str | Path) -> Iterator[None]:
    """Let the errors of the disk be ours."""
    try:
        yield
    except TernaryBertError:  # some of them are errors of the disk by descent
        raise
    except OSError as error:
        raise PackedError(f"{folder}: cannot be written: {error.strerror or error}") from error


def refuse_escapes(folder: Path) -> None:
    """Refuse symbolic links that lead out of the folder, for every file that this or another library will open."""
    here = Path(os.path.realpath(folder))
    # The hub's download cache: snapshots/<commit>/[folder/]config.json -> [../]../../blobs/<hash>
    snapshots = next((parent for parent in here.parents if parent.name == "snapshots"), None)
    roots = [str(here), *([str(snapshots.parent / "blobs")] if snapshots else [])]
    for entry in folder.iterdir():
        target = os.path.realpath(entry)
        if entry.is_symlink() and not any(os.path.commonpath([root, target]) == root for root in roots):
            raise UnsafeFileError(f"{entry.name} is a symbolic link that leads out of the folder, to {target}")


def refuse_same(source: Path, place: Path) -> None:
    """Refuse to write where one reads, by whichever way the two paths lead there: what is not written anew is lost."""
    same = False
    with suppress(OSError):  # of two paths one of which leads nowhere
        same = place.samefile(source)
    if same:
        raise FolderExistsError(f"{place} is the folder that is read; choose another place")


def check_place(folder: Path, *, replaceable: bool) -> None:
    """Refuse a place that is taken; `replaceable` says that a folder there may go."""
    if not os.path.lexists(folder) or (folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise FolderExistsError(f"{folder} exists and is not a folder; choose another place")
    if not replaceable:
        raise FolderExistsError(f"{folder} exists; choose another place (--force replaces a model of the same kind)")
    if kept := [entry.name for entry in folder.iterdir() if _is_kept(entry)]:
        raise FolderExistsError(f"{folder} holds the folder '{kept[0]}', which overwriting would delete; move it first")


def _is_kept(entry: Path) -> bool:
    return entry.is_dir() and not entry.is_symlink() and not (entry.name == REPORT and is_report(entry))


def is_report(folder: Path) -> bool:
    """Whether a folder holds a report and nothing else, which can be made again."""
    names = [entry.name for entry in folder.iterdir() if entry.is_file() and not entry.is_symlink()]
    others = [name for name in names if not name.endswith((".svg", ".png")) and name != REPORT_PAGE]
    return REPORT_PAGE in names and not others and len(names) == len(list(folder.iterdir()))


@contextmanager
def replacing(folder: Path, check: Callable[[], None]) -> Iterator[Path]:
    """Give an empty folder to fill; it takes the place when the block ends well, and vanishes when it does not.

    `check` raises if the place must not be taken. It is asked before the work and again after it, which may be long.
    """
    check()
    folder.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(4)
    staging = folder.parent / f".{folder.name}.{token}.new"
    staging.mkdir()
    try:
        yield staging
        for path in staging.iterdir():
            _flush(path)
        _flush(staging)
        check()
        _install(staging, folder, folder.parent / f".{folder.name}.{token}.old")
        _flush(folder.parent)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def _install(staging: Path, folder: Path, retired: Path) -> None:
    if not folder.is_dir() or not any(folder.iterdir()):
        staging.replace(folder)
        return
    folder.rename(retired)
    try:
        staging.rename(folder)
    except BaseException:
        retired.rename(folder)
        raise
    shutil.rmtree(retired, ignore_errors=True)


def _flush(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # Windows cannot open a directory, and needs no flush of one
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
