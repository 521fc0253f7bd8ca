"""The native library: the one ctypes binding of ternarybert.h, and the choice of the kernel.

This module finds and loads the library, mirrors the structures of the header, and declares the signature of every
function once, on one handle. `runtime.engine` runs models through it, `student.products` multiplies with it. The rest
are questions about this machine: its CPU features, the kernels it can run, and which of them is used.

The library is a plain C shared library. A wheel has it in the package folder; an editable install has it in
site-packages while the Python files stay in the source tree. The list of installed files is searched last because
reading it is slow.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from ctypes import (
    POINTER,
    Structure,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
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
    suggest,
)

KERNEL_VARIABLE = "TERNARYBERT_KERNEL"
PORTABLE = "portable"  # the kernel in plain C++ that defines what the others compute; slow

_FILE_NAME = {"win32": "ternarybert.dll", "darwin": "libternarybert.dylib"}.get(sys.platform, "libternarybert.so")
_INSTALLED = ("site-packages", "dist-packages")
_REINSTALL = "run: pip install --force-reinstall ."

# The bits of tb_cpu_features(), lowest first: the order of `enum tb_cpu_feature`.
_FEATURES = ("avx2", "avx_vnni", "avx512bw", "avx512vnni", "neon", "dotprod")

# `enum tb_status`; any other status is a bug in this package.
_ERRORS: dict[int, type[TernaryBertError]] = {
    2: UnsupportedModelError,
    3: InputError,
    4: OutOfMemoryError,
    5: KernelError,
    6: NonFiniteError,
}

FloatPointer = POINTER(c_float)
IntPointer = POINTER(c_int32)


class CError(Structure):
    """`tb_error`."""

    _fields_ = [("message", ctypes.c_char * 256)]


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


class CProduct(Structure):
    """`tb_product`."""

    _fields_ = [
        *((name, c_int32) for name in ("rows", "inputs", "outputs", "scales")),
        *((name, c_void_p) for name in ("codes", "x_scale", "x_offset", "weight", "scale", "bias", "y")),
    ]


_SIGNATURES: dict[str, tuple[list[object], object]] = {  # arguments, result
    "tb_version": ([], c_char_p),
    "tb_cpu_features": ([], c_uint32),
    "tb_kernels": ([], POINTER(c_char_p)),
    "tb_peak": ([c_char_p], c_double),
    "tb_model_create": ([POINTER(CConfig), c_char_p, c_int32, POINTER(c_void_p), POINTER(CError)], c_int),
    "tb_model_free": ([c_void_p], None),
    "tb_model_kernel": ([c_void_p], c_char_p),
    "tb_model_memory": ([c_void_p], c_uint64),
    "tb_run": ([c_void_p, POINTER(CBatch), c_int32, FloatPointer, c_size_t, POINTER(CError)], c_int),
    "tb_run_alone": ([c_void_p, POINTER(CBatch), c_int32, FloatPointer, c_size_t, POINTER(CError)], c_int),
    "tb_multiply": ([POINTER(CProduct), c_char_p, c_int32, POINTER(CError)], c_int),
}


@cache
def library() -> ctypes.CDLL:
    """The loaded library with all signatures declared; an error if it was built for another version."""
    path = library_path()
    try:
        lib = ctypes.CDLL(str(path))
    except OSError as error:
        raise NativeLibraryError(f"cannot load {path.name}: {error}; {_REINSTALL}") from error
    lib.tb_version.restype = c_char_p
    built, installed = lib.tb_version().decode(), ternarybert.__version__
    if built != installed:  # before the other functions are looked up: an old library may lack them
        raise NativeLibraryError(f"the native library has version {built}, the package {installed}; {_REINSTALL}")
    for name, (arguments, result) in _SIGNATURES.items():
        function = getattr(lib, name)
        function.argtypes, function.restype = arguments, result
    return lib


def library_path() -> Path:
    """The path of the native library, or a `NativeLibraryError` that tells how to install it."""
    # Of sys.path only what pip installs into: it may begin with the current folder, which may hold anybody's files.
    installed = [Path(entry, "ternarybert") for entry in sys.path if Path(entry).name in _INSTALLED]
    for folder in (Path(__file__).parent, *installed):
        if (folder / _FILE_NAME).is_file():
            return folder / _FILE_NAME
    from importlib import metadata  # late: importing it takes longer than loading a model

    for file in metadata.files("ternarybert") or ():
        if file.name == _FILE_NAME:
            return Path(str(file.locate()))
    raise NativeLibraryError(f"the native library {_FILE_NAME} is not installed; {_REINSTALL}")


def cmake_folder() -> Path:
    """The folder of the CMake package, for C and C++ programs that link the library."""
    folder = library_path().parent / "cmake"
    if not (folder / "ternarybert-config.cmake").is_file():
        raise NativeLibraryError(f"there is no CMake package in '{folder}'; {_REINSTALL}")
    return folder


def check(status: int, error: CError) -> None:
    """Raise the exception for a status that is not 0."""
    if status:
        message = error.message.decode(errors="replace")
        raise _ERRORS.get(status, NativeLibraryError)(message or f"the native library failed with status {status}")


@cache
def kernels() -> tuple[str, ...]:
    """The kernels that this CPU can run, fastest first."""
    listed = library().tb_kernels()  # ends with a null pointer
    names: list[str] = []
    while (name := listed[len(names)]) is not None:
        names.append(name.decode())
    return tuple(names)


def choose_kernel(name: str | None = None) -> str:
    """The kernel to run: `name`, else the one in TERNARYBERT_KERNEL, else the fastest."""
    available, variable = kernels(), os.environ.get(KERNEL_VARIABLE)
    chosen = name or variable or available[0]
    if chosen not in available:
        source = "the kernel" if name else KERNEL_VARIABLE
        raise KernelError(f"{source} is '{chosen}', which this CPU cannot run{suggest(chosen, available)}")
    return chosen


def has_fast_kernel() -> bool:
    """True if a SIMD kernel will run; `portable` is only the slow reference."""
    return choose_kernel() != PORTABLE


def peak_gmacs(kernel: str) -> float:
    """Billions of multiply-adds per second of a kernel's products alone on one core; measured, takes half a second."""
    return float(library().tb_peak(kernel.encode()))


def version() -> str:
    """The native library's version."""
    return str(library().tb_version().decode())


def cpu_features() -> frozenset[str]:
    """The instruction sets of this CPU that kernels use and that the operating system has enabled."""
    bits = library().tb_cpu_features()
    return frozenset(name for i, name in enumerate(_FEATURES) if bits >> i & 1)


def cpu_name() -> str:
    """The name of the CPU if the system tells it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return next(names, "") or platform.processor() or platform.machine()
