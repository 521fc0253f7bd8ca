"""The native engine: a network handed to C once, then run on ragged batches.

The arrays of the packed folder, often views of the mapped file, are passed as pointers, and the library copies what it
keeps. ctypes releases the interpreter's lock during a call, so several Python threads may use one engine at a time.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from ternarybert import native
from ternarybert.errors import InputError, KernelError, NativeLibraryError, OptionError, suggest
from ternarybert.native import CBatch, CConfig, CError, CLayer, CLinear, CMatrix, CNorm, FloatPointer, IntPointer, check
from ternarybert.native import engine_library as library
from ternarybert.packed import PackedTensor
from ternarybert.runtime.network import Batch, Floats, Ints, Layer, Linear, Matrix, Network, Norm, Output

KERNEL_VARIABLE, THREADS_VARIABLE = native.KERNEL_VARIABLE, "TERNARYBERT_THREADS"
_MOST_THREADS = 1024


def kernels() -> list[str]:
    """The kernels that this CPU can run, best first."""
    return list(_strings(library().tb_kernels()))


def chosen_kernel() -> str:
    """The kernel that engines use if they are not told otherwise: the best, or TERNARYBERT_KERNEL."""
    available, asked = kernels(), os.environ.get(KERNEL_VARIABLE)
    if asked and asked not in available:
        raise KernelError(f"{KERNEL_VARIABLE} is '{asked}', which does not run here{suggest(asked, available)}")
    return asked or available[0]


def peak_gmacs(kernel: str) -> float:
    """Billions of multiply-adds in a second if a core did nothing but a kernel's products; measured, half a second."""
    return float(library().tb_peak(kernel.encode()))


def thread_count(asked: int | None = None) -> int:
    """How many threads a call may use: what was asked, or TERNARYBERT_THREADS, or a thread for every usable core."""
    said = asked if asked is not None else os.environ.get(THREADS_VARIABLE)
    if said is None:
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return usable or 1
    try:
        count = int(said)
    except ValueError:
        count = 0
    if not 1 <= count <= _MOST_THREADS or isinstance(said, float):
        where = f"{THREADS_VARIABLE} is" if asked is None else "num_threads is"
        raise OptionError(f"{where} {said!r:.40}; it must be a number of threads, 1 to {_MOST_THREADS}")
    return count


class Engine:
    """Runs a network; freed by `close`, at the end of a `with`, or when nobody holds it any more."""

    def __init__(self, network: Network, *, num_threads: int | None = None, kernel: str | None = None) -> None:
        self.sizes, self.num_threads = network.sizes, thread_count(num_threads)
        self._model: _Model | None = _Model(network, self.num_threads, kernel or os.environ.get(KERNEL_VARIABLE))

    @property
    def kernel(self) -> str:
        """The name of the kernel that runs."""
        return str(library().tb_model_kernel(self._open().handle).decode())

    @property
    def memory(self) -> int:
        """Bytes that the model holds, without working memory."""
        return int(library().tb_model_memory(self._open().handle))

    def run(self, batch: Batch, output: Output) -> Floats:
        """Run the model; rows as `Output` says."""
        model = self._open()  # held while the call lasts: `close` in another thread frees it only afterwards
        batch.check()
        result = np.empty(self.sizes.shape(batch, output), np.float32)
        types = None if batch.types is None else _ints(batch.types)
        given = CBatch(len(batch.lengths), _ints(batch.lengths), _ints(batch.ids), types)
        error = CError()
        status = library().tb_run(model.handle, given, output, _floats(result), result.size, error)
        check(status, error)
        return result

    def close(self) -> None:
        """Free the model as soon as no call is running. Closing twice does nothing."""
        self._model = None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self) -> _Model:
        if self._model is None:
            raise InputError("the model is closed; load it again")
        return self._model


class _Model:
    """Owns the C model, which goes when the last reference to this goes."""

    def __init__(self, network: Network, threads: int, kernel: str | None) -> None:
        layers = (CLayer * len(network.layers))(*map(_layer, network.layers))
        config = _config(network, layers)
        self.handle, error = ctypes.c_void_p(), CError()
        name = None if not kernel else kernel.encode()
        check(library().tb_model_create(config, name, threads, self.handle, error), error)
        free = weakref.finalize(self, library().tb_model_free, self.handle)
        free.atexit = False  # at exit, threads may still be in a call; the system takes the memory back anyway


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
        return CLinear()  # no rows: the model has none
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
        raise NativeLibraryError(f"an array of {array.dtype} was to be read as plain float32")
    return array.ctypes.data_as(FloatPointer)


def _ints(array: Ints) -> Any:
    if array.dtype != np.int32 or not (array.flags.c_contiguous and array.flags.aligned):
        raise NativeLibraryError(f"an array of {array.dtype} was to be read as plain int32")
    return array.ctypes.data_as(IntPointer)


def _strings(pointers: Any) -> Iterator[str]:
    for pointer in pointers:
        if pointer is None:  # the end of the list
            return
        yield pointer.decode()
