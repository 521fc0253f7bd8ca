"""A packed model as an ONNX file, made from the same `Network` that the engines run; torch is not needed.

Two variants, named as transformers.js looks for them:

    onnx/model_q2.onnx      weights in 2 bits: MatMulNBits, GatherBlockQuantized for the word embedding; the smallest
    onnx/model_int8.onnx    codes as int8 for MatMulInteger, activations quantized as they come; the fastest today

Both hold our codes and scales exactly. What differs from our engine is the activations: MatMulNBits rounds blocks of
them to 8 bits, DynamicQuantizeLinear the whole batch with one range, ours each token by itself. The word embedding has
2 bits in both. Codes of -1, 0 and 1 cannot saturate the 16-bit sums of CPUs without VNNI, unlike usual int8 models.

Models with 3, 4 or 8 bits are written with 4 or 8, and the file is then `model_q4.onnx` or `model_quantized.onnx`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import ternarybert
from ternarybert.errors import OptionError, suggest
from ternarybert.packed import PackedTensor
from ternarybert.packed.embedder_modules import DenseLayer, EmbedderModules, UnitLength
from ternarybert.runtime.network import Floats, Function, Layer, Linear, Matrix, Network, Norm

Array = npt.NDArray[Any]

VARIANTS = ("q2", "int8")
FOLDER = "onnx"
_OPSET, _IR = 20, 10  # Gelu is an operator since opset 20; older runtimes refuse newer files
_CONTRIB = "com.microsoft"
_ENDINGS = {2: "q2", 4: "q4", 8: "quantized"}  # transformers.js: q2, q4 and q8
_INT8_LEVEL = 4  # accuracy_level: activations as int8; without it MatMulNBits takes a slow way
_TINY = np.finfo(np.float32).tiny
_FUNCTIONS = {Function.RELU: "Relu", Function.TANH: "Tanh", "relu": "Relu", "tanh": "Tanh"}


def write_onnx(path: Path, network: Network, variant: str, output: str, modules: EmbedderModules | None = None) -> None:
    """Write a network with this output: logits, token_logits, span_logits or hidden."""
    import onnx

    if variant not in VARIANTS:
        raise OptionError(f"unknown variant '{variant}'{suggest(variant, VARIANTS)}")
    onnx.save(_Exporter(network, variant).model(output, modules), str(path))


def file_name(network: Network, variant: str) -> str:
    """The name under which transformers.js looks for a variant."""
    ending = variant if variant == "int8" else _ENDINGS[max(_bits(matrix) for matrix in _packed(network))]
    return f"model_{ending}.onnx"


def _packed(network: Network) -> list[PackedTensor]:
    layers = [
        linear.weight
        for layer in network.layers
        for linear in (layer.query, layer.key, layer.value, layer.attention_output, layer.up, layer.down)
    ]
    found = [matrix for matrix in (network.word, *layers) if isinstance(matrix, PackedTensor)]
    if not found:
        raise OptionError("the model has no quantized weights; export a full-precision model with its own library")
    return found


def _bits(matrix: PackedTensor) -> int:
    """2, 4 or 8: the fewest that hold its codes; powers of two as levels need more than their index."""
    largest = int(np.abs(matrix.coding.alphabet.astype(np.int16)).max())
    return next(bits for bits in (2, 4, 8) if largest < 2 ** (bits - 1))


class _Exporter:
    """Collects nodes and constants; every method takes and returns names of values."""

    def __init__(self, network: Network, variant: str) -> None:
        self.network, self.variant = network, variant
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}
        self._count = 0

    # --- building blocks ---

    def node(self, kind: str, *inputs: str, domain: str = "", outputs: int = 1, **attributes: Any) -> Any:
        """Add an operator; returns the name of its output, or a list of them."""
        from onnx import helper

        self._count += 1
        name = f"{kind}_{self._count}"
        made = [name] if outputs == 1 else [f"{name}_{i}" for i in range(outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), made, name, domain=domain, **attributes))
        return name if outputs == 1 else made

    def constant(self, name: str, value: Array) -> str:
        """Add an array under its name."""
        from onnx import numpy_helper

        if name not in self._constants:
            self._constants[name] = numpy_helper.from_array(np.array(value, order="C"), name)
        return name

    def numbers(self, *values: int) -> str:
        """A list of whole numbers, such as axes."""
        return self.constant(f"numbers_{'_'.join(map(str, values))}", np.array(values, np.int64))

    def floats(self, name: str, values: Floats) -> str:
        """An array of floats; in half the bytes where nothing is lost, as in a folder packed with --half."""
        with np.errstate(over="ignore"):
            half = values.astype(np.float16)
        if values.size > 4096 and np.array_equal(half.astype(np.float32), values):
            return str(self.node("Cast", self.constant(name, half), to=1))
        return self.constant(name, values.astype(np.float32))

    # --- layers ---

    def linear(self, name: str, x: str, *parts: Linear) -> str:
        """One or more linear layers of the same input, their outputs side by side."""
        bias = np.concatenate(
            [np.zeros(part.weight.shape[0], np.float32) if part.bias is None else part.bias for part in parts]
        )
        matrices = [part.weight for part in parts]
        if not all(isinstance(matrix, PackedTensor) for matrix in matrices):
            return self._float_linear(name, x, [_dequantized(matrix) for matrix in matrices], bias)
        packed = [matrix for matrix in matrices if isinstance(matrix, PackedTensor)]
        whole = np.concatenate([matrix.unpack() for matrix in packed])
        scale = np.concatenate([np.broadcast_to(matrix.scale, len(matrix.codes)) for matrix in packed])
        if self.variant == "int8":
            return self._int8_linear(name, x, whole, scale, bias)
        return self._block_linear(name, x, whole, scale, bias, max(map(_bits, packed)))

    def _float_linear(self, name: str, x: str, weights: Sequence[Floats], bias: Floats) -> str:
        weight = self.constant(f"{name}.weight", np.concatenate(weights).T)
        return str(self.node("Add", self.node("MatMul", x, weight), self.constant(f"{name}.bias", bias)))

    def _block_linear(self, name: str, x: str, codes: Array, scale: Floats, bias: Floats, bits: int) -> str:
        (rows, columns), block = codes.shape, _block(codes.shape[1])
        blocks = -(-columns // block)
        filled = np.zeros((rows, blocks * block), np.int8)
        filled[:, :columns] = codes
        return str(
            self.node(
                "MatMulNBits",
                x,
                self.constant(f"{name}.codes", _fields(filled, bits).reshape(rows, blocks, block * bits // 8)),
                self.constant(f"{name}.scale", np.repeat(scale[:, None], blocks, axis=1).astype(np.float32)),
                "",
                "",
                self.constant(f"{name}.bias", bias),
                domain=_CONTRIB,
                K=columns,
                N=rows,
                bits=bits,
                block_size=block,
                accuracy_level=_INT8_LEVEL,
            )
        )

    def _int8_linear(self, name: str, x: str, codes: Array, scale: Floats, bias: Floats) -> str:
        quantized, step, zero = self.node("DynamicQuantizeLinear", x, outputs=3)
        product = self.node("MatMulInteger", quantized, self.constant(f"{name}.codes", codes.T), zero)
        scales = self.node("Mul", step, self.constant(f"{name}.scale", scale.astype(np.float32)))
        wide = self.node("Mul", self.node("Cast", product, to=1), scales)
        return str(self.node("Add", wide, self.constant(f"{name}.bias", bias)))

    def norm(self, name: str, x: str, norm: Norm) -> str:
        """LayerNorm."""
        weight, bias = self.constant(f"{name}.weight", norm.weight), self.constant(f"{name}.bias", norm.bias)
        return str(self.node("LayerNormalization", x, weight, bias, epsilon=self.network.norm_eps, axis=-1))

    def apply(self, function: Function | str, x: str) -> str:
        """An activation function."""
        if function in (Function.IDENTITY, "identity"):
            return x
        if function in (Function.GELU, Function.GELU_TANH):
            return str(self.node("Gelu", x, approximate="tanh" if function == Function.GELU_TANH else "none"))
        return str(self.node(_FUNCTIONS[function], x))

    # --- the model ---

    def words(self) -> str:
        """The word embedding of the ids."""
        word = self.network.word
        if not isinstance(word, PackedTensor):
            return str(self.node("Gather", self.constant("word.weight", word), "input_ids"))
        bits, block = _bits(word), _block(word.shape[1])
        blocks = -(-word.shape[1] // block)
        scale = np.repeat(np.broadcast_to(word.scale, word.shape[0])[:, None], blocks, axis=1)
        return str(
            self.node(
                "GatherBlockQuantized",
                self.constant("word.codes", _fields(word.unpack(), bits)),
                "input_ids",
                self.constant("word.scale", scale.astype(np.float32)),
                domain=_CONTRIB,
                bits=bits,
                block_size=block,
                gather_axis=0,
                quantize_axis=1,
            )
        )

    def encoder(self) -> str:
        """The last hidden states, (texts, tokens, width)."""
        network = self.network
        x = self.words()
        if network.type is not None:
            x = self.node("Add", x, self.node("Gather", self.constant("type.weight", network.type), "token_type_ids"))
        length = self.node("Slice", self.node("Shape", "input_ids"), self.numbers(1), self.numbers(2))
        first = self.numbers(network.sizes.first_position)
        table = self.floats("position.weight", network.position)
        x = self.node("Add", x, self.node("Slice", table, first, self.node("Add", length, first), self.numbers(0)))
        x = self.norm("embedding_norm", x, network.embedding_norm)
        mask = self.node("Cast", "attention_mask", to=6)
        for index, layer in enumerate(network.layers):
            x = self.layer(f"layer.{index}", x, layer, mask)
        return str(x)

    def layer(self, name: str, x: str, layer: Layer, mask: str) -> str:
        """One Transformer layer."""
        joined = self.linear(f"{name}.qkv", x, layer.query, layer.key, layer.value)
        width = self.network.sizes.hidden
        q, k, v = self.node("Split", joined, self.numbers(width, width, width), outputs=3, axis=-1)
        heads = self.network.sizes.heads
        context = self.node("MultiHeadAttention", q, k, v, "", mask, domain=_CONTRIB, num_heads=heads)
        attended = self.linear(f"{name}.attention_output", context, layer.attention_output)
        x = self.norm(f"{name}.attention_norm", self.node("Add", attended, x), layer.attention_norm)
        middle = self.apply(self.network.function, self.linear(f"{name}.up", x, layer.up))
        down = self.linear(f"{name}.down", middle, layer.down)
        return self.norm(f"{name}.output_norm", self.node("Add", down, x), layer.output_norm)

    def model(self, output: str, modules: EmbedderModules | None) -> Any:
        """The whole file."""
        from onnx import TensorProto, helper

        hidden = self.encoder()
        axes: dict[str, list[Any]]
        if output == "logits":
            axes = {self._named("logits", self._pooled_logits(hidden)): ["batch", self.network.sizes.head]}
        elif output == "token_logits":
            axes = {self._named("logits", self._token_logits(hidden)): ["batch", "sequence", self.network.sizes.head]}
        elif output == "span_logits":
            parts = self.node("Split", self._token_logits(hidden), self.numbers(1, 1), outputs=2, axis=-1)
            ends = [self.node("Squeeze", part, self.numbers(-1)) for part in parts]
            names = [self._named(f"{end}_logits", value) for end, value in zip(("start", "end"), ends, strict=True)]
            axes = {name: ["batch", "sequence"] for name in names}
        else:
            axes = {self._named("last_hidden_state", hidden): ["batch", "sequence", self.network.sizes.hidden]}
            if modules is not None and modules.include_prompt:
                vector = self._named("sentence_embedding", self._vector(hidden, modules))
                axes[vector] = ["batch", modules.width(self.network.sizes.hidden)]
        names = ["input_ids", "attention_mask", *(["token_type_ids"] if self.network.type is not None else [])]
        inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"]) for name in names]
        outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in axes.items()]
        graph = helper.make_graph(self._nodes, "ternarybert", inputs, outputs, list(self._constants.values()))
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid(_CONTRIB, 1)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=_IR, producer_name="ternarybert")
        made.producer_version = ternarybert.__version__
        return made

    def _named(self, name: str, value: str) -> str:
        """Give a value the name of an output."""
        from onnx import helper

        self._nodes.append(helper.make_node("Identity", [value], [name], name))
        return name

    def _pooled_logits(self, hidden: str) -> str:
        network = self.network
        first = str(self.node("Gather", hidden, self.constant("zero", np.array(0, np.int64)), axis=1))
        if network.dense is not None:
            first = self.apply(network.dense_function, self.linear("dense", first, network.dense))
        assert network.head is not None
        return self.linear("head", first, network.head)

    def _token_logits(self, hidden: str) -> str:
        assert self.network.head is not None
        return self.linear("head", hidden, self.network.head)

    def _vector(self, hidden: str, modules: EmbedderModules) -> str:
        x = self._pooled(hidden, modules.pooling)
        for index, step in enumerate(modules.steps):
            if isinstance(step, DenseLayer):
                bias = np.zeros(len(step.weight), np.float32) if step.bias is None else step.bias
                x = self.apply(step.activation, self._float_linear(f"module.{index}", x, [step.weight], bias))
            elif isinstance(step, UnitLength):
                length = self.node("ReduceL2", x, self.numbers(-1), keepdims=1)
                x = self.node("Div", x, self.node("Max", length, self.constant("tiny", np.array(_TINY, np.float32))))
        return x

    def _pooled(self, hidden: str, pooling: str) -> str:
        if pooling == "cls":
            return str(self.node("Gather", hidden, self.constant("zero", np.array(0, np.int64)), axis=1))
        mask = self.node("Unsqueeze", self.node("Cast", "attention_mask", to=1), self.numbers(-1))
        if pooling == "max":
            lowest = self.constant("lowest", np.array(np.finfo(np.float32).min, np.float32))
            kept = self.node("Where", self.node("Cast", mask, to=9), hidden, lowest)
            return str(self.node("ReduceMax", kept, self.numbers(1), keepdims=0))
        total = self.node("ReduceSum", self.node("Mul", hidden, mask), self.numbers(1), keepdims=0)
        return str(self.node("Div", total, self.node("ReduceSum", mask, self.numbers(1), keepdims=0)))


def _dequantized(matrix: Matrix) -> Floats:
    return matrix.dequantize() if isinstance(matrix, PackedTensor) else matrix


def _block(columns: int) -> int:
    """How many weights share a scale: as many as the fast kernels take, and the columns are a multiple of."""
    return next((block for block in (128, 64, 32) if columns % block == 0), 16)


def _fields(codes: Array, bits: int) -> npt.NDArray[np.uint8]:
    """Codes as fields of 2, 4 or 8 bits, the lowest first; zero is the middle of what a field can hold."""
    fields = (codes.astype(np.int16) + 2 ** (bits - 1)).astype(np.uint8)
    per_byte = 8 // bits
    fields = fields.reshape(len(fields), -1, per_byte)
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(bits)
    return np.asarray(np.bitwise_or.reduce(fields << shifts, axis=-1), np.uint8)
