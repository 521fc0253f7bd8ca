"""Finds and loads the native library, and asks it what this CPU can do.

The library is plain C behind ctypes. In a wheel it lies in the package folder; in an editable install it lies in
site-packages while the Python files stay in the source tree. The installed file list is asked last: that is slow.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache
from pathlib import Path

import ternarybert
from ternarybert.errors import (
    InputError,
    KernelError,
    NativeLibraryError,
    NonFiniteError,
    OutOfMemoryError,
    TernaryBertError,
    UnsupportedModelError,
)

KERNEL_VARIABLE = "TERNARYBERT_KERNEL"
_FILE_NAME = {"win32": "ternarybert.dll", "darwin": "libternarybert.dylib"}.get(sys.platform, "libternarybert.so")

# The bits of tb_cpu_features(), lowest first; the order of `enum tb_cpu_feature` in ternarybert.h.
_FEATURES = ("avx2", "avx_vnni", "avx512bw", "avx512vnni", "neon", "dotprod")

# `enum tb_status`; what is not here would be a mistake of ours.
_ERRORS: dict[int, type[TernaryBertError]] = {
    2: UnsupportedModelError,
    3: InputError,
    4: OutOfMemoryError,
    5: KernelError,
    6: NonFiniteError,
}


class CError(ctypes.Structure):
    """`tb_error`."""

    _fields_ = [("message", ctypes.c_char * 256)]


def check(status: int, error: CError) -> None:
    """Raise what a status stands for."""
    if status:
        message = error.message.decode(errors="replace")
        raise _ERRORS.get(status, NativeLibraryError)(message or f"the native library failed with status {status}")


def library_path() -> Path:
    """Where the native library is, or a `NativeLibraryError` that says how to get it."""
    for folder in (Path(__file__).parent, *(Path(entry, "ternarybert") for entry in sys.path)):
        if (folder / _FILE_NAME).is_file():
            return folder / _FILE_NAME
    from importlib import metadata  # late: it takes longer to import than a model to load

    for file in metadata.files("ternarybert") or ():
        if file.name == _FILE_NAME:
            return Path(str(file.locate()))
    raise NativeLibraryError(f"the native library {_FILE_NAME} is not installed; run: pip install --force-reinstall .")


@cache
def library() -> ctypes.CDLL:
    """The loaded library, with its signatures declared; refused when it was built for another version."""
    path = library_path()
    try:
        lib = ctypes.CDLL(str(path))
    except OSError as error:
        raise NativeLibraryError(f"cannot load {path.name}: {error}; run: pip install --force-reinstall .") from error
    lib.tb_version.restype = ctypes.c_char_p
    lib.tb_cpu_features.restype = ctypes.c_uint32
    lib.tb_kernels.restype = ctypes.POINTER(ctypes.c_char_p)
    built, installed = lib.tb_version().decode(), ternarybert.__version__
    if built != installed:
        raise NativeLibraryError(
            f"the native library is version {built}, the package {installed}; run: pip install --force-reinstall ."
        )
    return lib


def asked_kernel() -> bytes | None:
    """The kernel that the environment asks for, as C takes it; None for the best."""
    return os.environ.get(KERNEL_VARIABLE, "").encode() or None


def fast_kernel() -> bool:
    """Whether the kernel to be used has instructions of its own: the portable one defines, and is slow."""
    return (asked_kernel() or _best_kernel()) != b"portable"


@cache
def _best_kernel() -> bytes | None:
    best: bytes | None = library().tb_kernels()[0]
    return best


def version() -> str:
    """The native library's version."""
    return str(library().tb_version().decode())


def cpu_features() -> frozenset[str]:
    """Names of the instruction sets that this CPU has and the operating system lets programs use."""
    bits = library().tb_cpu_features()
    return frozenset(name for i, name in enumerate(_FEATURES) if bits >> i & 1)


def cpu_name() -> str:
    """What the CPU is called, where the system tells; else its kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return next(named, "") or platform.processor() or platform.machine()
