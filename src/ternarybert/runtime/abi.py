"""The engine's part of ternarybert.h for ctypes: the structures, and what each function takes and gives."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_uint32, c_uint64
from functools import cache

from ternarybert import _native
from ternarybert._native import CError, check

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
    "library",
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
def library() -> ctypes.CDLL:
    """The native library with the signatures of the engine declared, on a handle that nobody else declares on."""
    lib = ctypes.CDLL(_native.library()._name)
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
