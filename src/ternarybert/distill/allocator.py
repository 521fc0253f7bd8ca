"""Freed memory is kept while training runs, instead of going back to the system.

A training step frees what it allocates, tensors of tens of megabytes among it. The GNU C library returns large ones to
the system at once, which hands them out again page by page, each cleared and faulted in: 6 % of a step or more.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # parameters of mallopt
_USUAL_TRIM_THRESHOLD, _USUAL_MMAP_MAX = 128 * 1024, 65536


@contextmanager
def memory_kept() -> Iterator[None]:
    """Keep freed memory until the end, then return it; nothing where the C library is another one."""
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(_MMAP_MAX, 0)  # no memory that would be unmapped by itself
    libc.mallopt(_TRIM_THRESHOLD, -1)
    try:
        yield
    finally:
        libc.mallopt(_MMAP_MAX, _USUAL_MMAP_MAX)
        libc.mallopt(_TRIM_THRESHOLD, _USUAL_TRIM_THRESHOLD)
        libc.malloc_trim(0)
