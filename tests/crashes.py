"""Ends a writer at every one of its file events: killed there, or told that the disk is full.

A file event is what Python itself announces (audit events): a file opened for writing, renamed or removed, a folder
made or removed. Files are also cut off in the middle, whoever writes them (torch and safetensors announce nothing): the
system ends a process that writes beyond its limit of a file's size, or refuses the write.
"""

import errno
import os
import resource
import signal
import sys

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink")


def _is_write(event, arguments):
    if event == "open":
        flags = arguments[2]
        return isinstance(flags, int) and bool(flags & _WRITES)
    return event in _EVENTS


def _child(work, prepare):
    """Run in a process of its own; its exit code, or minus the signal that ended it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            prepare()
            work()
            code = 0
        finally:  # the parent's cleanup is none of this process's
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def at_every_event(work, folder, *, full=False):
    """Run `work` again and again; the n-th time it ends at its n-th event in the folder. Gives n before each next run.

    With `full` the event fails for want of space, and so does every one after it.
    """
    number = 1
    while True:
        seen = 0

        def hook(event, arguments, number=number):
            nonlocal seen
            if not _is_write(event, arguments) or not str(arguments[0]).startswith(str(folder)):
                return
            seen += 1
            if seen == number and not full:
                os.kill(os.getpid(), signal.SIGKILL)
            if seen >= number and full and event in ("open", "os.mkdir"):
                raise OSError(errno.ENOSPC, "No space left on device")

        if _child(work, lambda hook=hook: sys.addaudithook(hook)) == 0:
            return
        yield number
        number += 1


def at_sizes(work, sizes, *, full=False):
    """Run `work` with a limit of the size of files; as soon as one is longer it is killed, or the write fails."""

    def limit(size):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN if full else signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    for size in sizes:
        if _child(work, lambda size=size: limit(size)) != 0:
            yield size
