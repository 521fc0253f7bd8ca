"""The engine's part of ternarybert.h for ctypes: the structures, and what each function takes and gives.

MERGED-DOCS:
Finds and loads the native library, and asks it what this CPU can do.

The library is plain C behind ctypes. In a wheel it lies in the package folder; in an editable install it lies in
site-packages while the Python files stay in the source tree. The installed file list is asked last: that is slow.

"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint32, c_uint64
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


__all__ = [
    "CBatch",
    "CConfig",
    "CError",
    "CLayer",
    "CLinear",
    "CMatrix",
    "CNorm",
    "FloatPointer",
    "IntPointer",
    "check",
    "engine_library",
]

FloatPointer = POINTER(c_float)
IntPointer = POINTER(c_int32)


class CMatrix(Structure):
    """`tb_matrix`."""

    _fields_ = [
        ("rows", c_int32),
        ("columns", c_int32),
        ("bits", c_int32),
        ("log", c_int32),
        ("dense", c_int32),
        ("scales", c_int32),
        ("codes", ctypes.c_void_p),
        ("scale", FloatPointer),
    ]


class CLinear(Structure):
    """`tb_linear`."""

    _fields_ = [("weight", CMatrix), ("bias", FloatPointer)]


class CNorm(Structure):
    """`tb_norm`."""

    _fields_ = [("weight", FloatPointer), ("bias", FloatPointer)]


class CLayer(Structure):
    """`tb_layer`."""

    _fields_ = [
        ("query", CLinear),
        ("key", CLinear),
        ("value", CLinear),
        ("attention_output", CLinear),
        ("up", CLinear),
        ("down", CLinear),
        ("attention_norm", CNorm),
        ("output_norm", CNorm),
    ]


class CConfig(Structure):
    """`tb_config`."""

    _fields_ = [
        ("size", c_uint32),
        ("hidden", c_int32),
        ("heads", c_int32),
        ("intermediate", c_int32),
        ("layers", c_int32),
        ("positions", c_int32),
        ("first_position", c_int32),
        ("types", c_int32),
        ("function", c_int32),
        ("norm_eps", c_double),
        ("activation_bits", c_int32),
        ("range", c_int32),
        ("symmetric", c_int32),
        ("clip", c_float),
        ("word", CMatrix),
        ("position", FloatPointer),
        ("type", FloatPointer),
        ("embedding_norm", CNorm),
        ("layer", POINTER(CLayer)),
        ("dense", CLinear),
        ("dense_function", c_int32),
        ("dense_quantized", c_int32),
        ("head", CLinear),
    ]


class CBatch(Structure):
    """`tb_batch`."""

    _fields_ = [("sequences", c_int32), ("lengths", IntPointer), ("ids", IntPointer), ("types", IntPointer)]


@cache
def engine_library() -> ctypes.CDLL:
    """The native library with the signatures of the engine declared, on a separate handle."""
    lib = ctypes.CDLL(library()._name)
    handle = ctypes.c_void_p
    lib.tb_model_create.argtypes = [POINTER(CConfig), c_char_p, c_int32, POINTER(handle), POINTER(CError)]
    lib.tb_model_create.restype = c_int
    lib.tb_model_free.argtypes = [handle]
    lib.tb_model_free.restype = None
    lib.tb_model_kernel.argtypes = [handle]
    lib.tb_model_kernel.restype = c_char_p
    lib.tb_model_memory.argtypes = [handle]
    lib.tb_model_memory.restype = c_uint64
    lib.tb_peak.argtypes = [c_char_p]
    lib.tb_peak.restype = c_double
    lib.tb_kernels.argtypes = []
    lib.tb_kernels.restype = POINTER(c_char_p)
    lib.tb_run.argtypes = [handle, POINTER(CBatch), c_int32, FloatPointer, c_size_t, POINTER(CError)]
    lib.tb_run.restype = c_int
    return lib
