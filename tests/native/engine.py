"""The C interface by ctypes, as thin as can be: models as plain dictionaries of arrays."""

import ctypes as c
from contextlib import contextmanager

import numpy as np

from ternarybert import native

FUNCTIONS = ("identity", "gelu", "gelu_tanh", "relu", "tanh")
OUTPUTS = ("hidden", "first", "mean", "dense", "logits", "token_logits")
FLOATS = c.POINTER(c.c_float)


def _struct(name, *fields):
    return type(name, (c.Structure,), {"_fields_": [(n, t) for t, names in fields for n in names.split()]})


Error = _struct("Error", (c.c_char * 256, "message"))
Matrix = _struct("Matrix", (c.c_int32, "rows columns bits log dense scales"), (c.c_void_p, "codes"), (FLOATS, "scale"))
Linear = _struct("Linear", (Matrix, "weight"), (FLOATS, "bias"))
Norm = _struct("Norm", (FLOATS, "weight bias"))
Layer = _struct("Layer", (Linear, "query key value attention_output up down"), (Norm, "attention_norm output_norm"))
Config = _struct(
    "Config",
    (c.c_uint32, "size"),
    (c.c_int32, "hidden heads intermediate layers positions first_position types function"),
    (c.c_double, "norm_eps"),
    (c.c_int32, "activation_bits range symmetric"),
    (c.c_float, "clip"),
    (Matrix, "word"),
    (FLOATS, "position type"),
    (Norm, "embedding_norm"),
    (c.POINTER(Layer), "layer"),
    (Linear, "dense"),
    (c.c_int32, "dense_function dense_quantized"),
    (Linear, "head"),
)
Batch = _struct("Batch", (c.c_int32, "sequences"), (c.POINTER(c.c_int32), "lengths ids types"))


class EngineError(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def library():
    lib = c.CDLL(native.library()._name)  # a handle of its own: signatures are declared differently here
    lib.tb_kernels.restype = c.POINTER(c.c_char_p)
    lib.tb_model_kernel.restype = c.c_char_p
    lib.tb_model_memory.restype = c.c_uint64
    for name in ("tb_model_kernel", "tb_model_memory", "tb_model_free"):
        getattr(lib, name).argtypes = [c.c_void_p]
    lib.tb_run.argtypes = [c.c_void_p, c.c_void_p, c.c_int32, FLOATS, c.c_size_t, c.c_void_p]
    return lib


def kernels():
    names = library().tb_kernels()
    found = []
    while names[len(found)]:
        found.append(names[len(found)].decode())
    return found


def _call(function, *arguments):
    error = Error()
    status = function(*arguments, c.byref(error))
    if status:
        raise EngineError(status, error.message.decode())


class Packer:
    """Turns a model of arrays into a `Config`; keeps alive what it points to."""

    def __init__(self):
        self.kept = []

    def floats(self, x):
        if x is None:
            return None
        x = np.ascontiguousarray(x, np.float32)
        self.kept.append(x)
        return x.ctypes.data_as(FLOATS)

    def matrix(self, m):
        if m is None:
            return Matrix()
        rows, columns = m["codes"].shape
        if m["bits"] == 32:
            packed = np.ascontiguousarray(m["codes"], np.float32)
        elif m["bits"] == 8:
            packed = np.ascontiguousarray(m["codes"], np.int8)
        else:
            packed = pack(m)
        self.kept.append(packed)
        return Matrix(
            rows, columns, m["bits"], int(m.get("log", False)), int(m.get("dense", False)), len(m["scale"]),
            packed.ctypes.data, self.floats(m["scale"]),
        )  # fmt: skip

    def linear(self, m):
        return Linear(self.matrix(m), self.floats(m["bias"])) if m else Linear()

    def norm(self, n):
        return Norm(self.floats(n["weight"]), self.floats(n["bias"]))

    def config(self, model):
        layers = (Layer * len(model["layers"]))()
        for to, layer in zip(layers, model["layers"], strict=True):
            for name, kind in Layer._fields_:
                setattr(to, name, self.linear(layer[name]) if kind is Linear else self.norm(layer[name]))
        self.kept.append(layers)
        settings = {k: v for k, v in model.items() if isinstance(v, int | float)}
        return Config(
            size=c.sizeof(Config), layers=len(layers), layer=layers, function=FUNCTIONS.index(model["function"]),
            word=self.matrix(model["word"]), position=self.floats(model["position"]), type=self.floats(model["type"]),
            embedding_norm=self.norm(model["embedding_norm"]), dense=self.linear(model["dense"]),
            dense_function=FUNCTIONS.index(model["dense_function"]), head=self.linear(model["head"]), **settings,
        )  # fmt: skip


def pack(m):
    """Codes to bytes, as docs/reference/format.md says."""
    bits, codes = m["bits"], m["codes"].astype(np.int64)
    zero = 2 ** (bits - 1) - 1
    if m.get("log"):
        codes = np.sign(codes) * (np.log2(np.maximum(np.abs(codes), 1)).astype(np.int64) + 1) * (codes != 0)
    index = codes + zero
    if m.get("dense"):
        index = np.pad(index, ((0, 0), (0, -index.shape[1] % 5)), constant_values=1)
        digits = index.reshape(len(index), -1, 5)
        return np.ascontiguousarray((digits * [1, 3, 9, 27, 81]).sum(-1).astype(np.uint8))
    index = np.pad(index, ((0, 0), (0, 8)), constant_values=zero)
    stream = (index[:, :, None] >> np.arange(bits)) & 1
    row_bytes = -(-m["codes"].shape[1] * bits // 8)
    return np.packbits(stream.reshape(len(index), -1)[:, : row_bytes * 8].astype(np.uint8), axis=1, bitorder="little")


class Engine:
    """A model in the native library."""

    def __init__(self, model, kernel=None, threads=1):
        self.lib, self.model = library(), model
        packer = Packer()
        self.handle = c.c_void_p()
        config = packer.config(model)
        name = kernel.encode() if kernel else None
        _call(self.lib.tb_model_create, c.byref(config), name, threads, c.byref(self.handle))

    def width(self, output):
        if output == "dense":
            return len(self.model["dense"]["codes"])
        return len(self.model["head"]["codes"]) if "logits" in output else self.model["hidden"]

    def run(self, sequences, output="logits", types=None):
        lengths = np.array([len(s) for s in sequences], np.int32)
        ids = np.concatenate(sequences).astype(np.int32)
        kinds = None if types is None else np.concatenate(types).astype(np.int32)
        pointer = lambda a: None if a is None else a.ctypes.data_as(c.POINTER(c.c_int32))  # noqa: E731
        batch = Batch(len(sequences), pointer(lengths), pointer(ids), pointer(kinds))
        rows = len(ids) if output in ("hidden", "token_logits") else len(sequences)
        result = np.full((rows, self.width(output)), np.nan, np.float32)
        _call(
            self.lib.tb_run, self.handle, c.byref(batch), OUTPUTS.index(output), result.ctypes.data_as(FLOATS),
            result.size,
        )  # fmt: skip
        return result

    def close(self):
        self.lib.tb_model_free(self.handle)
        self.handle = c.c_void_p()


@contextmanager
def engine(model, kernel=None, threads=1):
    made = Engine(model, kernel, threads)
    try:
        yield made
    finally:
        made.close()
