"""Reading the files of a model folder that anybody may have made: regular files, of bounded size, inside the folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ternarybert.errors import PackedConfigError, PackedError, UnsafeFileError

PICKLED = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib")  # can run code when loaded


def find_file(folder: Path, name: str) -> Path | None:
    """The path of a regular file in the folder, None if there is none of that name."""
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


@contextmanager
def reading(folder: str | Path) -> Iterator[None]:
    """Let every error of the block name the folder, and turn an OSError into a `PackedError`."""
    try:
        yield
    except PackedError as error:
        raise type(error)(f"{folder}: {error}") from error
    except OSError as error:
        raise PackedError(f"{folder}: cannot be read: {error.strerror or error}") from error
