"""The input of `predict`: a file, a folder of files, or a pattern such as `*.parquet`, here or at a URL.

    open_location("s3://mails/2026/*.parquet")

fsspec opens URLs; a protocol needs its package (s3fs for s3://, gcsfs for gs://, aiohttp for http://). Several files of
one kind are read one after the other, sorted by their paths, as one table. Folders are searched to any depth; what
begins with a dot or an underscore, such as `_SUCCESS`, is left out, as in Spark. A folder `year=2026` in a path is a
column `year` of the rows below it.
"""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote, urlsplit

from ternarybert.data.readers import SUFFIXES, BadRow, Row, Rows, TablePart, open_rows, rows_of
from ternarybert.errors import DataError, MissingExtraError, suggest

_BUFFER = 1 << 20  # bytes that are asked of a server at a time


@dataclass(frozen=True)
class RemotePath:
    """A file behind a URL, with what the readers use of a `Path`."""

    filesystem: Any
    path: str

    def __str__(self) -> str:
        return str(self.filesystem.unstrip_protocol(self.path))

    @property
    def suffix(self) -> str:
        """The ending of the name, without the query of the URL."""
        return PurePosixPath(urlsplit(self.path).path).suffix

    def resolve(self) -> RemotePath:
        """A URL is whole already."""
        return self

    def stat(self) -> Any:
        """The size, where the server tells it."""
        with _explained(str(self)):
            return SimpleNamespace(st_size=self.filesystem.size(self.path) or 0)

    def open(self, mode: str = "r", encoding: str | None = None, newline: str | None = None) -> Any:
        """Open it for reading, as bytes or as text."""
        with _explained(str(self)):
            file = io.BufferedReader(_RemoteBytes(self.filesystem.open(self.path, "rb"), str(self)), _BUFFER)
        return file if "b" in mode else io.TextIOWrapper(file, encoding=encoding, newline=newline)


class _RemoteBytes(io.RawIOBase):
    """A file of fsspec whose failures, which are of many kinds, are those of a file."""

    def __init__(self, file: Any, name: str) -> None:
        self._file, self._name = file, name

    def readable(self) -> bool:
        """For BufferedReader, as the next one."""
        return True

    def seekable(self) -> bool:
        """Parquet files are read from their end."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what comes next; 0 at the end."""
        with _explained(self._name):
            data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a byte."""
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        """How far it was read."""
        return int(self._file.tell())

    def close(self) -> None:
        """Close both."""
        if not self.closed:
            self._file.close()
        super().close()


def open_location(location: str | Path) -> Rows:
    """The rows of a file, or of all files of a folder or pattern."""
    name = os.fspath(location)
    if "://" in name:
        return _open_remote(name)
    path = Path(name)
    if path.is_dir():
        found = [each for each in path.rglob("*") if each.is_file()]
        return _together(name, sorted(found), path)
    if glob.has_magic(name) and not path.exists():
        found = [Path(each) for each in glob.glob(name, recursive=True)]  # noqa: PTH207
        return _together(name, sorted(each for each in found if each.is_file()), _fixed(path))
    return open_rows(path)


def _open_remote(name: str) -> Rows:
    from fsspec.core import url_to_fs

    with _explained(name):
        filesystem, path = url_to_fs(name)
        several = glob.has_magic(path) or filesystem.isdir(path)
        found = filesystem.glob(path) if glob.has_magic(path) else filesystem.find(path) if several else [path]
        files = [each for each in sorted(found) if not several or filesystem.isfile(each)]
    remote = [RemotePath(filesystem, each) for each in files]
    if several:
        return _together(name, remote, _fixed(PurePosixPath(path)))
    with _explained(name):
        if not filesystem.exists(path):
            raise DataError(f"{name} does not exist")
    return rows_of(_checked_suffix(remote[0]))


def _together(name: str, files: Sequence[Path | RemotePath], root: PurePosixPath | Path) -> Rows:
    """Files of one kind as one table."""
    files = [each for each in files if not _is_hidden(each, root) and each.suffix.lower() in SUFFIXES]
    if not files:
        raise DataError(f"{name} holds no file that can be read: {', '.join(sorted(SUFFIXES))}")
    kinds = sorted({each.suffix.lower() for each in files})
    if len(kinds) > 1:
        raise DataError(f"{name} holds files of several kinds: {', '.join(kinds)}; name one, as in '*{kinds[0]}'")
    parts = tuple(TablePart(rows_of(each), _partition(each)) for each in files)
    rows = replace(parts[0].rows, path=files[0], read=_read_parts, unit="row", parts=parts)
    return replace(rows, name=name)


def _fixed(pattern: PurePosixPath | Path) -> PurePosixPath | Path:
    """The folder that a pattern begins with; all of what has no wildcards."""
    while glob.has_magic(str(pattern)):
        pattern = pattern.parent
    return pattern


def _is_hidden(file: Path | RemotePath, root: PurePosixPath | Path) -> bool:
    """Whether a name below the root begins with a dot or an underscore."""
    path = PurePosixPath(file.path) if isinstance(file, RemotePath) else file
    below = path.relative_to(root) if path.is_relative_to(root) else PurePosixPath(path.name)
    return any(part.startswith((".", "_")) and "=" not in part and part != ".." for part in below.parts)


def _partition(file: Path | RemotePath) -> dict[str, str]:
    """The columns that folders such as `year=2026` stand for."""
    folders = PurePosixPath(str(file)).parts[:-1]
    pairs = (folder.partition("=") for folder in folders if "=" in folder and not folder.startswith("="))
    return {unquote(key): unquote(value) for key, _, value in pairs}


def _read_parts(rows: Rows) -> Iterator[Row]:
    """The rows of all parts, numbered through; a bad one is named by its own file."""
    done = 0
    for index, part in enumerate(rows.parts):
        one = replace(part.rows, strict=rows.strict)
        for number, row in one:
            done += 1
            rows.share = (index + one.share) / len(rows.parts)
            fields: dict[str, object] = {**part.fields, **row}
            if isinstance(row, BadRow):
                fields = BadRow(f"{one.location(number)}: {row.reason}", fields.items())
            yield done, fields


def _checked_suffix(path: RemotePath) -> RemotePath:
    if path.suffix.lower() not in SUFFIXES:
        raise DataError(f"{path}: unknown kind of file '{path.suffix}'{suggest(path.suffix, SUFFIXES)}")
    return path


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Whatever fails behind a URL as one line."""
    try:
        yield
    except DataError:
        raise
    except ImportError as error:  # fsspec knows the package of a protocol
        raise MissingExtraError(f"{name} needs more: {_first_line(error)}") from error
    except Exception as error:  # each protocol has errors of its own
        reason = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read ({_first_line(error)})"
        raise DataError(f"{name} {reason}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().split("\n")[0] or type(error).__name__)[:300]
