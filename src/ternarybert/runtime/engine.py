"""The native engine: a network handed to C once, then run on ragged batches.

The arrays of the packed folder, often views of the mapped file, are passed as pointers, and the library copies what it
keeps. ctypes releases the interpreter lock during a call, so several Python threads may use one engine at a time.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

import numpy as np

from ternarybert.errors import InputError, NativeLibraryError, OptionError
from ternarybert.native import (
    CBatch,
    CConfig,
    CError,
    CLayer,
    CLinear,
    CMatrix,
    CNorm,
    FloatPointer,
    IntPointer,
    check,
    choose_kernel,
    library,
)
from ternarybert.packed import PackedTensor
from ternarybert.runtime.network import Batch, Floats, Ints, Layer, Linear, Matrix, Network, Norm, Output

THREADS_VARIABLE = "TERNARYBERT_THREADS"
_MAX_THREADS = 1024


def thread_count(num_threads: int | None = None) -> int:
    """How many threads a call may use: `num_threads`, else TERNARYBERT_THREADS, else one per usable core."""
    value = num_threads if num_threads is not None else os.environ.get(THREADS_VARIABLE)
    if value is None:
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return usable or 1
    try:
        count = int(value)
    except ValueError:
        count = 0
    if not 1 <= count <= _MAX_THREADS or isinstance(value, float):
        source = THREADS_VARIABLE if num_threads is None else "num_threads"
        raise OptionError(f"{source} is {value!r:.40}; it must be a number of threads from 1 to {_MAX_THREADS}")
    return count


class Engine:
    """Runs a network; freed by `close`, at the end of a `with` block, or with the last reference."""

    def __init__(self, network: Network, *, num_threads: int | None = None, kernel: str | None = None) -> None:
        self.sizes, self.num_threads = network.sizes, thread_count(num_threads)
        self._model: _NativeModel | None = _NativeModel(network, self.num_threads, choose_kernel(kernel))

    @property
    def kernel(self) -> str:
        """The name of the kernel that runs."""
        return str(library().tb_model_kernel(self._open().handle).decode())

    @property
    def memory(self) -> int:
        """Bytes of the model, without working memory."""
        return int(library().tb_model_memory(self._open().handle))

    def run(self, batch: Batch, output: Output, *, alone: bool = False) -> Floats:
        """Run the model; `Output` defines the rows. `alone` uses the calling thread only."""
        model = self._open()  # a reference during the call: `close` in another thread frees the model only afterwards
        batch.check()
        result = np.empty(self.sizes.shape(batch, output), np.float32)
        types = None if batch.types is None else _ints(batch.types)
        c_batch = CBatch(len(batch.lengths), _ints(batch.lengths), _ints(batch.ids), types)
        error = CError()
        function = library().tb_run_alone if alone else library().tb_run
        status = function(model.handle, c_batch, output, _floats(result), result.size, error)
        check(status, error)
        return result

    def close(self) -> None:
        """Free the model as soon as no call is running. Closing twice does nothing."""
        self._model = None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> _NativeModel:
        if self._model is None:
            raise InputError("the model is closed; load it again")
        return self._model


class _NativeModel:
    """Owns the C model and frees it with the last reference."""

    def __init__(self, network: Network, threads: int, kernel: str) -> None:
        layers = (CLayer * len(network.layers))(*map(_layer, network.layers))
        config = _config(network, layers)
        self.handle, error = ctypes.c_void_p(), CError()
        check(library().tb_model_create(config, kernel.encode(), threads, self.handle, error), error)
        free = weakref.finalize(self, library().tb_model_free, self.handle)
        free.atexit = False  # at exit a thread may still be in a call, and the system frees the memory anyway


def _config(network: Network, layers: Any) -> CConfig:
    sizes = network.sizes
    return CConfig(
        size=ctypes.sizeof(CConfig),
        hidden=sizes.hidden,
        heads=sizes.heads,
        intermediate=sizes.intermediate,
        layers=sizes.layers,
        positions=sizes.positions,
        first_position=sizes.first_position,
        types=sizes.types,
        function=network.function,
        norm_eps=network.norm_eps,
        activation_bits=network.activation_bits,
        range=network.range,
        symmetric=network.symmetric,
        clip=network.clip or 0.0,
        word=_matrix(network.word),
        position=_floats(network.position),
        type=None if network.type is None else _floats(network.type),
        embedding_norm=_norm(network.embedding_norm),
        layer=layers,
        dense=_linear(network.dense),
        dense_function=network.dense_function,
        dense_quantized=network.dense_quantized,
        head=_linear(network.head),
    )


def _layer(layer: Layer) -> CLayer:
    return CLayer(
        *(_linear(one) for one in (layer.query, layer.key, layer.value, layer.attention_output, layer.up, layer.down)),
        _norm(layer.attention_norm),
        _norm(layer.output_norm),
    )


def _linear(linear: Linear | None) -> CLinear:
    if linear is None:
        return CLinear()  # no rows: the model has no such layer
    return CLinear(_matrix(linear.weight), None if linear.bias is None else _floats(linear.bias))


def _matrix(matrix: Matrix) -> CMatrix:
    rows, columns = matrix.shape
    if not isinstance(matrix, PackedTensor):
        return CMatrix(rows, columns, bits=32, codes=matrix.ctypes.data)
    return CMatrix(
        rows,
        columns,
        bits=matrix.bits,
        log=matrix.levels == "log",
        dense=matrix.packing == "dense",
        scales=matrix.scale.size,
        codes=matrix.codes.ctypes.data,
        scale=_floats(matrix.scale),
    )


def _norm(norm: Norm) -> CNorm:
    return CNorm(_floats(norm.weight), _floats(norm.bias))


def _floats(array: Floats) -> Any:
    if array.dtype != np.float32 or not (array.flags.c_contiguous and array.flags.aligned):
        raise NativeLibraryError(f"an array of {array.dtype} cannot be passed to C; it must be contiguous float32")
    return array.ctypes.data_as(FloatPointer)


def _ints(array: Ints) -> Any:
    if array.dtype != np.int32 or not (array.flags.c_contiguous and array.flags.aligned):
        raise NativeLibraryError(f"an array of {array.dtype} cannot be passed to C; it must be contiguous int32")
    return array.ctypes.data_as(IntPointer)
