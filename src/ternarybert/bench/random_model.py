"""A BERT of a given shape with random weights, as floats and packed, without torch.

Speed, memory and bit-exactness do not depend on what a model has learned. `bench` times such a model, `doctor` tests
the kernels with one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ternarybert import packed
from ternarybert.errors import OptionError, suggest
from ternarybert.families import HeadKind, is_quantized, is_word_embedding, tensor_shapes
from ternarybert.packed import PackedModel, PackedTensor
from ternarybert.packed.weights_file import write_container
from ternarybert.recipe import PRESETS

VOCABULARY, POSITIONS, LABELS = 30522, 512, 2
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

Weights: TypeAlias = dict[str, NDArray[np.float32]]


@dataclass(frozen=True)
class ModelShape:
    """The sizes of a BERT."""

    layers: int
    hidden: int
    heads: int
    intermediate: int
    vocabulary: int = VOCABULARY
    positions: int = POSITIONS


SHAPES = {
    "base": ModelShape(12, 768, 12, 3072),  # BERT-base
    "mini": ModelShape(6, 384, 12, 1536),  # MiniLM-L6
}


def shape_named(name: str) -> ModelShape:
    """Return a shape of `SHAPES`."""
    if name not in SHAPES:
        raise OptionError(f"unknown shape '{name}'{suggest(name, SHAPES)}")
    return SHAPES[name]


def write_random(
    folder: Path, plain: Path, shape: ModelShape, kind: HeadKind = HeadKind.SEQUENCE_CLASSIFICATION, seed: int = 0
) -> None:
    """Write a classifier or a question answering model: packed at 2-2-8 to `folder`, in float32 to `plain`."""
    weights = random_weights(shape, kind, seed)
    model = packed_model(shape, weights, kind)
    packed.write(folder, model)
    plain.mkdir()
    words = [*_SPECIAL, *(f"w{i}" for i in range(len(_SPECIAL), shape.vocabulary))]
    (plain / "vocab.txt").write_text("\n".join(words))
    (plain / "config.json").write_text(json.dumps(model.config))
    write_container(plain / "model.safetensors", weights)


def random_weights(
    shape: ModelShape, kind: HeadKind = HeadKind.SEQUENCE_CLASSIFICATION, seed: int = 0, *, norm_deviation: float = 0.0
) -> Weights:
    """Float weights under Hugging Face's names; LayerNorms deviate from identity by `norm_deviation`."""
    rng, deviation = np.random.default_rng(seed), 1 / np.sqrt(shape.hidden)
    weights = {}
    for name, size in tensor_shapes(_config(shape, kind)).items():
        if "LayerNorm" in name:
            values = float(name.endswith("weight")) + norm_deviation * rng.standard_normal(size)
        else:
            values = rng.normal(0, 0.02 if name.endswith("bias") else deviation, size)
        weights[name] = values.astype(np.float32)
    return weights


def packed_model(
    shape: ModelShape, weights: Weights, kind: HeadKind = HeadKind.SEQUENCE_CLASSIFICATION, packing: str = "plain"
) -> PackedModel:
    """Ternarize and pack weights as the default recipe does; checked like a model read from disk."""
    recipe = PRESETS["default"]
    tensors: dict[str, Any] = {
        name: _ternary(w, by_row=is_word_embedding(name), packing=packing) if is_quantized(name) else w
        for name, w in weights.items()
    }
    model = PackedModel(_config(shape, kind), tensors, str(recipe.bits), recipe.to_dict())
    model.check()
    return model


def multiply_adds(shape: ModelShape, lengths: list[int]) -> int:
    """Multiply-adds that a classifier needs: in the last layer, all tokens need only keys and values."""
    d, wide = shape.hidden, shape.intermediate
    token, first = 4 * d * d + 2 * d * wide, 2 * d * d + 2 * d * wide
    full = sum(n * token + 2 * n * n * d for n in lengths)
    last = sum(n * 2 * d * d + 2 * n * d + first + d * d for n in lengths)  # with the pooler
    return (shape.layers - 1) * full + last


def _ternary(w: NDArray[np.float32], *, by_row: bool, packing: str) -> PackedTensor:
    """TWN's 0.7 rule in NumPy, with one scale or a scale per row."""
    axis = -1 if by_row else None
    size = np.abs(w)
    nonzero = size > 0.7 * size.mean(axis, keepdims=True)
    scale = (size * nonzero).sum(axis) / nonzero.sum(axis)
    codes, scale = (np.sign(w) * nonzero).astype(np.int8), np.atleast_1d(scale).astype(np.float32)
    return PackedTensor.pack(codes, scale, bits=2, packing=packing)


def _config(shape: ModelShape, kind: HeadKind) -> dict[str, Any]:
    return {
        "model_type": "bert",
        "architectures": [f"Bert{kind.value}"],
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.positions,
        "type_vocab_size": 2,
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.intermediate,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "num_labels": LABELS,
    }
