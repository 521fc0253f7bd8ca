"""Where results go: claim an output, write it whole or not at all, and resume one that was interrupted.

Every command that writes goes through one of five ways:

    `write_json`        a small JSON file, replaced in one step
    `replace_file`      any other file made in one go: a table, a figure
    `replace_folder`    a folder made in one go: a packed model, a report
    `claim_folder`      a folder that fills over hours: its marker file says which job owns it
    `ResumableFile`     a file that grows row by row

None of them overwrites what a user may want to keep. An output that exists is refused, unless `--force` was given and
the output is of the kind that the command itself writes. While an output is made it is locked (`lock_output`), so that
two runs cannot mix; whoever locks it next removes what a killed run left.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from ternarybert.errors import FolderExistsError, OutputError, TernaryBertError
from ternarybert.locks import exclusive_lock

REPORT, REPORT_PAGE = "report", "report.html"  # what `ternarybert report` adds to a packed folder
ADVICE = "choose another --output, or use --force to start over"

# --- locks -----------------------------------------------------------------------------------------------------


@contextmanager
def lock_output(path: Path) -> Iterator[None]:
    """Let one run at a time make an output, file or folder; another one is refused at once.

    What a killed run left beside the output is removed.
    """
    with exclusive_lock(path) as is_first:
        if is_first:
            _remove_leftovers(path)
        yield


def _temporary(path: Path, end: str) -> Path:
    """A name beside an output that nobody else uses, and that `_remove_leftovers` knows."""
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{end}")


def _remove_leftovers(path: Path) -> None:
    """Remove what a killed run left beside an output; the older folder, if it was killed before the new one came."""
    pattern = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{8}\.(new|old)" + re.escape(path.suffix) + "?")
    left = [entry for entry in path.parent.iterdir() if pattern.fullmatch(entry.name)]
    for entry in left:
        if ".old" in entry.name and entry.is_dir() and is_vacant(path):
            install_folder(entry, path)
        elif entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)


# --- files that are made in one go -----------------------------------------------------------------------------


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Give a path to write to, with the same suffix. It becomes `path` when the block succeeds."""
    with lock_output(path):
        draft = _temporary(path, f".new{path.suffix}")
        try:
            yield draft
            _flush(draft)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


# --- JSON files ------------------------------------------------------------------------------------------------


def write_json(path: Path, value: object, *, indent: int | None = None) -> None:
    """Replace a JSON file in one step, so that nobody ever reads half of it."""
    draft = _draft(path)
    draft.write_text(json.dumps(value, indent=indent), encoding="utf-8")
    draft.replace(path)


def read_json(path: Path, *, advice: str = "use --force to start over") -> dict[str, Any]:
    """Read a JSON object that `write_json` wrote."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise OutputError(f"{path} is damaged ({error}); {advice}") from error
    if not isinstance(value, dict):
        raise OutputError(f"{path} is damaged (it holds a {type(value).__name__}); {advice}")
    return value


def _draft(path: Path) -> Path:
    return path.with_name(f"{path.name}.new")


# --- folders that are made in one go ---------------------------------------------------------------------------


def named_folder(path: Path) -> Path:
    """The same folder by a path that ends in its name, as '.' and '..' do not."""
    named = path.resolve() if path.name in ("", "..") else path
    if not named.name:
        raise OutputError(f"{path} is the root of the file system; choose another --output")
    return named


def check_output_folder(
    folder: Path, *, replaceable: bool, advice: str = "choose another --output, or use --force to replace it"
) -> None:
    """Refuse a folder that is taken. Nothing is touched.

    A missing or empty folder passes. So does one that is `replaceable`: the caller has seen what it holds, and
    `--force` was given. Folders inside it are never replaceable, except those that commands write: a report, ONNX
    files, and the modules of a sentence embedder.
    """
    if is_vacant(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise FolderExistsError(f"{folder} exists and is not a folder; choose another output folder")
    if not replaceable:
        raise FolderExistsError(f"{folder} exists; {advice}")
    for entry in folder.iterdir():
        ours = (entry.name == REPORT and is_report(entry)) or is_module(entry) or is_onnx(entry)
        if entry.is_dir() and not entry.is_symlink() and not ours:
            raise FolderExistsError(f"{folder} holds the folder '{entry.name}', which would be deleted; move it first")


def check_not_input(source: Path, output: Path) -> None:
    """Refuse to write to the folder that is read, by whichever path: what is not written again would be lost."""
    same = False
    with suppress(OSError):  # one of the two does not exist
        same = output.samefile(source)
    if same:
        raise FolderExistsError(f"{output} is the folder that is read; choose another output folder")


def is_vacant(folder: Path) -> bool:
    """Whether nothing is there, or an empty folder."""
    if not os.path.lexists(folder):
        return True
    return folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())


def is_module(folder: Path) -> bool:
    """Whether a folder holds a module of a sentence embedder and nothing else, such as 1_Pooling."""
    if not re.fullmatch(r"\d+_(Pooling|Dense|Normalize)", folder.name) or not folder.is_dir():
        return False
    return all(entry.name in ("config.json", "model.safetensors") and entry.is_file() for entry in folder.iterdir())


def is_onnx(folder: Path) -> bool:
    """Whether a folder is the one of `export --to onnx` and holds nothing else."""
    return folder.name == "onnx" and folder.is_dir() and all(entry.suffix == ".onnx" for entry in folder.iterdir())


def is_report(folder: Path) -> bool:
    """Whether a folder holds a report and nothing else; a report can be made again."""
    names = [entry.name for entry in folder.iterdir() if entry.is_file() and not entry.is_symlink()]
    others = [name for name in names if not name.endswith((".svg", ".png")) and name != REPORT_PAGE]
    return REPORT_PAGE in names and not others and len(names) == len(list(folder.iterdir()))


@contextmanager
def replace_folder(folder: Path, check: Callable[[], None]) -> Iterator[Path]:
    """Give an empty folder to fill. It becomes `folder` when the block succeeds, and is deleted when it fails.

    `check` raises if `folder` must not be replaced. It is called before the work and again after it, because the work
    may take long. The new folder is flushed to the disk before it takes its name.
    """
    staging = _temporary(folder, ".new")
    with lock_output(folder):
        try:
            check()
            folder.parent.mkdir(parents=True, exist_ok=True)
            staging.mkdir()
            yield staging
            for path in staging.iterdir():
                _flush(path)
            _flush(staging)
            check()
            install_folder(staging, folder)
            _flush(folder.parent)
        except BaseException as error:
            shutil.rmtree(staging, ignore_errors=True)
            if isinstance(error, OSError) and not isinstance(error, TernaryBertError):  # some of ours are OSErrors too
                raise OutputError(f"{folder}: cannot be written: {error.strerror or error}") from error
            raise


def install_folder(made: Path, folder: Path) -> None:
    """Rename a finished folder to its final name; an older folder there is deleted when the new one is in place.

    Where the system can exchange two folders in one step there is a complete folder by that name at every moment. Else
    there is one under one of the names, and the next run that locks the output gives it its name back.
    """
    if is_vacant(folder):
        if os.name == "nt" and folder.is_dir():
            folder.rmdir()  # Windows renames nothing onto a folder, not even onto an empty one
        made.replace(folder)
        return
    if _exchange(made, folder):
        shutil.rmtree(made, ignore_errors=True)
        return
    retired = _temporary(folder, ".old")
    folder.rename(retired)
    try:
        made.rename(folder)
    except BaseException:
        retired.rename(folder)
        raise
    shutil.rmtree(retired, ignore_errors=True)


_HERE, _EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


def _exchange(one: Path, other: Path) -> bool:
    """Let two folders exchange their names in one step; False where the system or the file system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    done: int = rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), ctypes.c_uint(_EXCHANGE))
    return done == 0


def _flush(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # Windows cannot open a directory, and needs no flush of one
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# --- folders that fill over time -------------------------------------------------------------------------------


def claim_folder(
    folder: Path,
    marker: str,
    plan: Mapping[str, Any],
    *,
    force: bool = False,
    owned: Sequence[str] | None = None,
    advice: str = ADVICE,
) -> bool:
    """Claim a folder for the job that `plan` describes. Returns whether an earlier run of the same job is resumed.

    The plan is kept in the file `marker` of the folder. A folder without it belongs to somebody else, and one with
    another plan to another job; both are refused. With `force` an earlier job's files are deleted first: all, or only
    those that are `owned`, where users may have put files beside them.
    """
    path = folder / marker
    check_claim(folder, marker, None if force else plan, advice=advice)
    resumed = path.is_file() and not force and bool(read_json(path))
    if resumed:
        return True
    if path.is_file():
        release_folder(folder, marker, owned)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, plan)
    return False


def check_claim(folder: Path, marker: str, plan: Mapping[str, Any] | None, *, advice: str = ADVICE) -> None:
    """Refuse a folder that `claim_folder` would refuse; nothing is touched. Without a plan any earlier job will do."""
    if (folder / marker).is_file():
        if plan is not None:
            _check_plan(folder / marker, plan, folder, advice)
    elif folder.is_symlink() or (os.path.lexists(folder) and not folder.is_dir()):
        raise FolderExistsError(f"{folder} exists and is not a folder; choose another output folder")
    elif folder.is_dir() and any(entry.name != f"{marker}.new" for entry in folder.iterdir()):
        raise FolderExistsError(f"{folder} holds something else (there is no {marker} in it); choose another --output")


def claim_file(marker: Path, plan: Mapping[str, Any], *, what: Path, advice: str = ADVICE) -> bool:
    """Write the plan of the job that makes `what`, or check that it is the one written earlier, and return True."""
    if marker.is_file():
        _check_plan(marker, plan, what, advice)
        return True
    marker.parent.mkdir(parents=True, exist_ok=True)
    write_json(marker, plan)
    return False


def release_folder(folder: Path, marker: str, owned: Sequence[str] | None = None) -> None:
    """Delete what a job made in its folder, so that any job may claim it.

    An empty plan stays as the marker: the folder is still ours, and the next claim deletes what a kill left in it.
    """
    write_json(folder / marker, {})
    for entry in [folder / name for name in owned] if owned is not None else list(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name != marker:
            entry.unlink(missing_ok=True)


def _check_plan(marker: Path, plan: Mapping[str, Any], what: Path, advice: str) -> None:
    """Refuse to resume with other settings, which would mix two jobs in one output. An empty plan is no job's."""
    earlier, wanted = read_json(marker, advice=advice), json.loads(json.dumps(plan))
    different = [name for name in wanted if earlier.get(name) != wanted[name]]
    if earlier and different:
        raise OutputError(f"{what} was started with a different {', '.join(different)}; {advice}")


# --- files that grow row by row --------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileProgress:
    """How much of a resumable file is written."""

    identity: str  # of the job: a hash of everything that decides the bytes of the file
    done: int = 0  # input rows
    written: int = 0  # output rows
    size: int = 0  # bytes
    input_hash: str = ""  # of the input rows that are done, where the caller gives one
    replaces: bool = False  # started with --force: may replace a finished file


def check_output_file(path: Path, *, force: bool) -> None:
    """Refuse a finished file, unless it is to be replaced; nothing is touched."""
    if path.exists() and not force:
        unfinished = _read_progress(_progress_file(path))
        if unfinished is None or not unfinished.replaces:
            raise OutputError(f"{path} exists; choose another --output, or use --force to replace it")


class ResumableFile:
    """A file that is written in steps, and resumed after being killed between any two of them.

    Rows go to `<file>.part`. After each step, `<file>.part.json` records which job writes the file, how many input rows
    are done and how long the part is by then. A later run of the same job truncates the part to that length, so a step
    is either complete or repeated. The finished part is renamed to the file in one step.

    `force` starts over: it drops a part and, at the end, replaces a finished file.
    """

    def __init__(self, path: Path, identity: str, *, force: bool = False) -> None:
        """Open the part of an earlier run of the same job, or start one."""
        self.path, self.part = path, path.with_name(f"{path.name}.part")
        self._progress_file = _progress_file(path)
        with ExitStack() as locked:
            locked.enter_context(lock_output(path))
            self._claim(identity, force=force)
            self._lock = locked.pop_all()

    def _claim(self, identity: str, *, force: bool) -> None:
        path = self.path
        earlier = None if force else self._earlier(identity)
        if earlier is None or not earlier.replaces:
            check_output_file(path, force=force)
        # An empty part has nothing to lose: its run was killed before it wrote anything.
        if earlier is None and not force and self.part.exists() and self.part.stat().st_size:
            raise OutputError(f"{self.part} was started by another run; remove it, or use --force to start over")
        self.progress = earlier or FileProgress(identity, replaces=force)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._open(fresh=earlier is None)
        except OSError as error:
            raise OutputError(f"cannot write {self.part}: {error.strerror or error}") from error

    def append(self, lines: str, done: int, written: int, input_hash: str = "") -> None:
        """Write the lines that belong to the next `done` input rows; `input_hash` is that of all rows so far."""
        data = lines.encode()
        self._file.write(data)
        self._file.flush()
        # The rows must be on the disk before they are recorded as done.
        os.fsync(self._file.fileno())
        before = self.progress
        self.progress = replace(
            before,
            done=before.done + done,
            written=before.written + written,
            size=before.size + len(data),
            input_hash=input_hash,
        )
        self._save()

    def finish(self, made: Path | None = None) -> None:
        """Rename the part to the file, or another file that was made from it."""
        self._file.close()
        (made or self.part).replace(self.path)
        self._progress_file.unlink(missing_ok=True)
        self.part.unlink(missing_ok=True)

    def __enter__(self) -> ResumableFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
        self._lock.close()

    def _earlier(self, identity: str) -> FileProgress | None:
        """The progress of an earlier run of this job, if its part is complete up to there."""
        progress = _read_progress(self._progress_file)
        if progress is None or progress.identity != identity or not self.part.is_file():
            return None
        return progress if progress.size <= self.part.stat().st_size else None

    def _open(self, *, fresh: bool) -> BinaryIO:
        if fresh:
            self._progress_file.unlink(missing_ok=True)  # it counts rows that are about to be deleted
            self.part.write_bytes(b"")
            self._save()
        file = self.part.open("r+b")
        file.truncate(self.progress.size)
        file.seek(self.progress.size)
        return file

    def _save(self) -> None:
        write_json(self._progress_file, asdict(self.progress))


def _progress_file(path: Path) -> Path:
    return path.with_name(f"{path.name}.part.json")


def _read_progress(path: Path) -> FileProgress | None:
    try:
        return FileProgress(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
