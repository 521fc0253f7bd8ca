"""Exclusive locks on outputs: two runs that write to one place would mix their rows or their weights.

The lock is on the file `.NAME.lock` beside the output. The system releases it when the process ends, however it ends,
so a killed run never blocks the next one. Where a file system has no locks, a warning is logged instead.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from ternarybert.errors import OutputError, TernaryBertError

_held: dict[str, tuple[int, int, int]] = {}  # by output: process, thread, how often it has locked it
_guard = threading.Lock()  # of _held
_TAKEN = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)  # what a lock that another process holds gives
# What file systems without locks answer, such as some that are mounted from elsewhere.
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP)


@contextmanager
def exclusive_lock(path: Path) -> Iterator[bool]:
    """Lock an output, file or folder, or raise at once if another run has locked it.

    A thread may lock again what it has locked; the value is whether this is the first time.
    """
    resolved = Path(os.path.realpath(path.parent)) / path.name
    is_first = _enter(str(resolved), path)
    try:
        with _locked_file(resolved.with_name(f".{resolved.name}.lock"), path) if is_first else nullcontext():
            yield is_first
    finally:
        _leave(str(resolved))


def _enter(key: str, path: Path) -> bool:
    """Count a lock of this process; whether it is the first one."""
    me = os.getpid(), threading.get_ident()
    with _guard:
        process, thread, count = _held.get(key, (0, 0, 0))
        if process != me[0]:  # nobody, or the process that this one was forked from
            count = 0
        elif thread != me[1]:
            raise _in_use(path)
        _held[key] = (*me, count + 1)
        return count == 0


def _leave(key: str) -> None:
    with _guard:
        process, thread, count = _held.pop(key)
        if count > 1:
            _held[key] = process, thread, count - 1


def _in_use(path: Path) -> OutputError:
    return OutputError(f"{path} is being written by another run; wait for it, or choose another output")


@contextmanager
def _locked_file(lock: Path, path: Path) -> Iterator[None]:
    missing = [folder for folder in (lock.parent, *lock.parent.parents) if not folder.exists()]
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = _open_locked(lock, path)
    except TernaryBertError:
        raise
    except OSError as error:
        raise OutputError(f"{path}: cannot be written: {error.strerror or error}") from error
    try:
        yield
    finally:
        # Removed while it is locked: whoever has opened it by now finds out that it is no longer the one in the folder.
        if os.name != "nt":
            lock.unlink(missing_ok=True)
        os.close(handle)
        if os.name == "nt":  # which removes no open file
            with suppress(OSError):
                lock.unlink()
        with suppress(OSError):  # not empty: something was made
            for folder in missing:
                folder.rmdir()


def _open_locked(lock: Path, path: Path) -> int:
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock_handle(handle)
            if _is_same_file(handle, lock):
                return handle
        except OSError as error:
            if error.errno in _TAKEN:
                os.close(handle)
                raise _in_use(path) from error
            if error.errno in _NO_LOCKS:
                _warn_without_locks(path)
                return handle
            os.close(handle)
            raise
        os.close(handle)  # its owner has removed it meanwhile


def _warn_without_locks(path: Path) -> None:
    import logging  # only here: `predict` starts 4 ms sooner without it

    log = logging.getLogger(__name__)
    log.warning("%s: this file system has no locks; make sure that no other run writes there", path)


def _lock_handle(handle: int) -> None:
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        # Of the process, unlike those of `flock`: a child that outlives it does not keep the lock.
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False
