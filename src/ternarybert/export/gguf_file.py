"""A packed model as a GGUF file of the architecture `bert`, for llama.cpp and what is built on it.

Ternary matrices are stored as one of two types of ggml, both exact but for the scale, which becomes float16:

    q2_0     64 weights: the scale, then our own bytes of plain packing; fits widths such as 384. The newer of the two
    tq2_0    256 weights: fields in another order, then the scale; widths such as 768

llama.cpp rounds activations to 8 bits in blocks of 32 or 256 and takes GELU from a table, so answers differ a little
from ours. It splits texts into lower-case word pieces itself, gives one vector or one row of logits per text, and has
no heads on tokens: other tokenizers and heads are refused here by name.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from ternarybert.errors import OptionError, UnsupportedModelError, suggest
from ternarybert.packed import PackedTensor
from ternarybert.packed.codec import Coding, pack
from ternarybert.packed.embedder_modules import EmbedderModules, UnitLength
from ternarybert.runtime.network import Function, Linear, Matrix, Network, Output
from ternarybert.runtime.text import TextEncoder

BLOCKS = {"q2_0": 64, "tq2_0": 256}  # weights that share a scale
_TYPES = {"f32": 0, "tq2_0": 35, "q2_0": 42}  # ggml_type
_POOLINGS = {"none": 0, "mean": 1, "cls": 2, "rank": 4}
_ALIGNMENT = 32
_U32, _F32, _BOOL, _STRING, _ARRAY, _I32 = 4, 6, 7, 8, 9, 5  # gguf_metadata_value_type
_SPECIAL = {
    "padding_token_id": "[PAD]",
    "unknown_token_id": "[UNK]",
    "bos_token_id": "[CLS]",
    "eos_token_id": "[SEP]",
    "seperator_token_id": "[SEP]",  # spelled so in the format
    "cls_token_id": "[CLS]",
    "mask_token_id": "[MASK]",
}
_NORMAL, _CONTROL = 1, 3  # kinds of tokens

Tensor = tuple[str, tuple[int, ...], npt.NDArray[np.uint8]]  # type, shape and bytes


def default_type(network: Network) -> str:
    """The type that fits every matrix: q2_0, or an error that says why none does."""
    return checked_type(network, "q2_0")


def checked_type(network: Network, name: str) -> str:
    """The type, if every matrix is ternary and has rows of whole blocks."""
    if name not in BLOCKS:
        raise OptionError(f"unknown GGUF type '{name}'{suggest(name, BLOCKS)}")
    for matrix in (part for part in _matrices(network) if isinstance(part, PackedTensor)):
        if matrix.bits != 2:
            raise UnsupportedModelError(f"weights of {matrix.bits} bits cannot be exported to GGUF, only ternary ones")
        if matrix.shape[1] % BLOCKS[name]:
            raise UnsupportedModelError(f"{name} has blocks of {BLOCKS[name]}; the model is {matrix.shape[1]} wide")
    return name


def _matrices(network: Network) -> Iterator[Matrix]:
    yield network.word
    for layer in network.layers:
        for linear in (layer.query, layer.key, layer.value, layer.attention_output, layer.up, layer.down):
            yield linear.weight
    if network.dense is not None:
        yield network.dense.weight


def write_gguf(
    path: Path,
    network: Network,
    text: TextEncoder,
    *,
    name: str,
    type: str,
    output: Output,
    modules: EmbedderModules | None = None,
    labels: tuple[str, ...] = (),
) -> None:
    """Write a network, its tokenizer and how its vectors are pooled; `output` is logits or hidden."""
    pooling = _pooling(network, output, modules)
    values = {**_sizes(network, name, pooling), **_tokenizer(text, network.sizes.vocabulary)}
    if pooling == "rank":
        values["bert.classifier.output_labels"] = list(labels)
    with path.open("wb") as file:
        _write(file, values, dict(_tensors(network, checked_type(network, type), head=pooling == "rank")))


def _pooling(network: Network, output: Output, modules: EmbedderModules | None) -> str:
    if network.function not in (Function.GELU, Function.GELU_TANH):
        raise UnsupportedModelError("llama.cpp's bert has GELU; this model has another activation function")
    if output == Output.LOGITS:
        if network.dense is None or network.dense_function != Function.TANH:
            raise UnsupportedModelError("llama.cpp has only BERT's classifier, a pooler with tanh and a linear layer")
        return "rank"
    if output != Output.HIDDEN:
        raise UnsupportedModelError("llama.cpp has no heads on tokens: entities and answers cannot be exported to GGUF")
    if modules is None:
        return "none"
    if any(not isinstance(step, UnitLength) for step in modules.steps) or modules.pooling not in ("mean", "cls"):
        raise UnsupportedModelError("llama.cpp pools by mean or cls, without a Dense layer behind it")
    return modules.pooling


def _sizes(network: Network, name: str, pooling: str) -> dict[str, Any]:
    sizes = network.sizes
    return {
        "general.architecture": "bert",
        "general.name": name,
        "general.quantization_version": 2,
        "bert.context_length": sizes.max_tokens,
        "bert.embedding_length": sizes.hidden,
        "bert.feed_forward_length": sizes.intermediate,
        "bert.block_count": sizes.layers,
        "bert.attention.head_count": sizes.heads,
        "bert.attention.layer_norm_epsilon": float(network.norm_eps),
        "bert.attention.causal": False,
        "bert.pooling_type": _POOLINGS[pooling],
    }


def _tokenizer(text: TextEncoder, vocabulary: int) -> dict[str, Any]:
    described = json.loads(text.tokenizer.to_str())
    normalizer = described.get("normalizer") or {}
    if (described.get("model") or {}).get("type") != "WordPiece" or not normalizer.get("lowercase"):
        raise UnsupportedModelError("only lower-case WordPiece tokenizers can be exported to GGUF")
    ids = text.tokenizer.get_vocab(with_added_tokens=True)
    words = [f"[unused{i}]" for i in range(vocabulary)]  # rows of the embedding that the tokenizer does not use
    for word, index in ids.items():
        words[index] = word
    special = {index for index, word in enumerate(words) if word.startswith("[") and word.endswith("]")}
    return {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [word if i in special else _piece(word) for i, word in enumerate(words)],
        "tokenizer.ggml.token_type": [_CONTROL if i in special else _NORMAL for i in range(len(words))],
        "tokenizer.ggml.token_type_count": 2,
        **{f"tokenizer.ggml.{key}": ids[word] for key, word in _SPECIAL.items() if word in ids},
    }


def _piece(word: str) -> str:
    """llama.cpp marks the starts of words, where BERT marks what continues one."""
    return word.removeprefix("##") if word.startswith("##") else f"\u2581{word}"


def _tensors(network: Network, type: str, *, head: bool) -> Iterator[tuple[str, Tensor]]:
    first = network.sizes.first_position
    yield "token_embd.weight", _tensor(network.word, type)
    yield "position_embd.weight", _tensor(network.position[first:], type)
    if network.type is not None:
        yield "token_types.weight", _tensor(network.type, type)
    yield from _norm("token_embd_norm", network.embedding_norm)
    for index, layer in enumerate(network.layers):
        start = f"blk.{index}"
        yield from _linear(f"{start}.attn_q", layer.query, type)
        yield from _linear(f"{start}.attn_k", layer.key, type)
        yield from _linear(f"{start}.attn_v", layer.value, type)
        yield from _linear(f"{start}.attn_output", layer.attention_output, type)
        yield from _norm(f"{start}.attn_output_norm", layer.attention_norm)
        yield from _linear(f"{start}.ffn_up", layer.up, type)
        yield from _linear(f"{start}.ffn_down", layer.down, type)
        yield from _norm(f"{start}.layer_output_norm", layer.output_norm)
    if head and network.dense is not None and network.head is not None:
        yield from _linear("cls", network.dense, type)
        yield from _linear("cls.output", network.head, type)


def _linear(name: str, linear: Linear, type: str) -> Iterator[tuple[str, Tensor]]:
    yield f"{name}.weight", _tensor(linear.weight, type)
    if linear.bias is not None:
        yield f"{name}.bias", _tensor(linear.bias, type)


def _norm(name: str, norm: Any) -> Iterator[tuple[str, Tensor]]:
    yield f"{name}.weight", _tensor(norm.weight, "f32")
    yield f"{name}.bias", _tensor(norm.bias, "f32")


def _tensor(values: Matrix, type: str) -> Tensor:
    if not isinstance(values, PackedTensor):
        return "f32", values.shape, np.ascontiguousarray(values, "<f4").reshape(-1).view(np.uint8)
    return type, values.shape, (_q2_0 if type == "q2_0" else _tq2_0)(values)


def _scales(matrix: PackedTensor, blocks: int) -> npt.NDArray[np.uint8]:
    """The scale before or behind every block, as the two bytes of a float16."""
    rows = np.broadcast_to(matrix.scale, matrix.shape[0]).astype("<f2")
    return np.asarray(np.repeat(rows[:, None], blocks, axis=1)[..., None].copy().view(np.uint8))


def _q2_0(matrix: PackedTensor) -> npt.NDArray[np.uint8]:
    blocks = matrix.shape[1] // BLOCKS["q2_0"]
    codes = matrix.codes if matrix.packing == "plain" else pack(matrix.unpack(), Coding(2))
    payload = codes.view(np.uint8).reshape(matrix.shape[0], blocks, 16)
    return np.concatenate([_scales(matrix, blocks), payload], axis=-1).reshape(-1)


def _tq2_0(matrix: PackedTensor) -> npt.NDArray[np.uint8]:
    blocks = matrix.shape[1] // BLOCKS["tq2_0"]
    # A byte holds weights that are 32 apart: two runs of 128 weights, four fields of 32 each.
    fields = (matrix.unpack() + 1).view(np.uint8).reshape(matrix.shape[0], blocks, 2, 4, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    payload = np.bitwise_or.reduce(fields << shifts, axis=-2).reshape(matrix.shape[0], blocks, 64)
    return np.concatenate([payload, _scales(matrix, blocks)], axis=-1).reshape(-1)


# --- the container ---


def _write(file: BinaryIO, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Header, metadata, list of tensors, then their bytes, each at the next multiple of 32."""
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values))
    header += b"".join(_string(key) + _value(value) for key, value in values.items())
    offset = 0
    for name, (type, shape, data) in tensors.items():
        sizes = struct.pack(f"<{len(shape)}Q", *reversed(shape))
        header += _string(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", _TYPES[type], offset)
        offset += data.size + -data.size % _ALIGNMENT
    file.write(header + bytes(-len(header) % _ALIGNMENT))
    for _, _, data in tensors.values():
        file.write(data.tobytes() + bytes(-data.size % _ALIGNMENT))


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", _U32, value)
    if isinstance(value, float):
        return struct.pack("<If", _F32, value)
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _string(value)
    if value and isinstance(value[0], int):
        return struct.pack(f"<IIQ{len(value)}i", _ARRAY, _I32, len(value), *value)
    return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + b"".join(map(_string, value))
