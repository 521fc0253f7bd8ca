"""A packed model of a given shape with random weights: speed and memory do not depend on what a model has learned."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ternarybert import packed
from ternarybert.errors import OptionError, suggest
from ternarybert.families import HeadKind, is_quantized, tensor_shapes
from ternarybert.packed import PackedModel, PackedTensor
from ternarybert.packed.weights_file import write_container
from ternarybert.recipe import PRESETS

VOCABULARY, POSITIONS, LABELS = 30522, 512, 2
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True)
class Shape:
    """Layers, width, heads and the width between up and down."""

    layers: int
    hidden: int
    heads: int
    intermediate: int


SHAPES = {
    "base": Shape(12, 768, 12, 3072),  # BERT-base
    "mini": Shape(6, 384, 12, 1536),  # MiniLM-L6
}


def shape_named(name: str) -> Shape:
    """One of the shapes."""
    if name not in SHAPES:
        raise OptionError(f"unknown shape '{name}'{suggest(name, SHAPES)}")
    return SHAPES[name]


def write_random(
    folder: Path, plain: Path, shape: Shape, kind: HeadKind = HeadKind.SEQUENCE_CLASSIFICATION, seed: int = 0
) -> None:
    """A BERT classifier, or one that answers questions, with random weights: plain in float32 and packed at 2-2-8."""
    config = _config(shape, kind)
    floats = _tensors(config, np.random.default_rng(seed))
    recipe = PRESETS["default"]
    tensors: dict[str, Any] = {name: _ternary(w) if is_quantized(name) else w for name, w in floats.items()}
    packed.write(folder, PackedModel(config, tensors, str(recipe.bits), recipe.to_dict()))
    plain.mkdir()
    words = [*_SPECIAL, *(f"w{i}" for i in range(len(_SPECIAL), VOCABULARY))]
    (plain / "vocab.txt").write_text("\n".join(words))
    (plain / "config.json").write_text(json.dumps(config))
    write_container(plain / "model.safetensors", floats)


def _ternary(w: NDArray[np.float32]) -> PackedTensor:
    """The 0.7 rule, in NumPy; a scale a row for the word embedding."""
    rows = len(w) == VOCABULARY
    size = np.abs(w)
    kept = size > 0.7 * size.mean(-1 if rows else None, keepdims=True)
    scale = (size * kept).sum(-1 if rows else None) / kept.sum(-1 if rows else None)
    return PackedTensor.pack((np.sign(w) * kept).astype(np.int8), np.atleast_1d(scale).astype(np.float32), bits=2)


def _config(shape: Shape, kind: HeadKind) -> dict[str, Any]:
    return {
        "model_type": "bert",
        "architectures": [f"Bert{kind.value}"],
        "vocab_size": VOCABULARY,
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2,
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "intermediate_size": shape.intermediate,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "num_labels": LABELS,
    }


def _tensors(config: dict[str, Any], rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    return {name: _random(name, shape, config["hidden_size"], rng) for name, shape in tensor_shapes(config).items()}


def _random(name: str, shape: tuple[int, ...], hidden: int, rng: np.random.Generator) -> NDArray[np.float32]:
    if "LayerNorm" in name:
        return np.full(shape, name.endswith("weight"), np.float32)
    deviation = 0.02 if name.endswith("bias") else 1 / np.sqrt(hidden)
    return rng.normal(0, deviation, shape).astype(np.float32)


def products(shape: Shape, lengths: list[int]) -> int:
    """Multiply-adds that a classifier needs: in the last layer, only keys and values of all tokens."""
    d, wide = shape.hidden, shape.intermediate
    token, first = 4 * d * d + 2 * d * wide, 2 * d * d + 2 * d * wide
    full = sum(n * token + 2 * n * n * d for n in lengths)
    last = sum(n * 2 * d * d + 2 * n * d + first + d * d for n in lengths)  # with the pooler
    return (shape.layers - 1) * full + last
