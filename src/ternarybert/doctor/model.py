"""A BERT with random ternary weights as a packed model, so that the self-test needs no file and no download."""

from __future__ import annotations

from typing import Any

import numpy as np

from ternarybert.packed import PackedModel, PackedTensor
from ternarybert.packed.names import is_quantized
from ternarybert.recipe import PRESETS

SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2}
MINILM = {"hidden_size": 384, "intermediate_size": 1536, "num_attention_heads": 12, "num_hidden_layers": 6}
VOCABULARY, POSITIONS = 300, 128
_CODES = np.array([-1, 0, 1], np.int8)


def random_model(sizes: dict[str, int], packing: str = "plain", seed: int = 0) -> PackedModel:
    """What `packed.read` would give of a classifier of these sizes."""
    rng, recipe = np.random.default_rng(seed), PRESETS["default"]
    config: dict[str, Any] = sizes | {
        "architectures": ["BertForSequenceClassification"],
        "model_type": "bert",
        "vocab_size": VOCABULARY,
        "max_position_embeddings": POSITIONS,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
    }
    tensors: dict[str, Any] = {}
    for name, shape in _shapes(config).items():
        if is_quantized(name, pooler=True):
            rows = shape[0] if "word_embeddings" in name else 1
            codes, scale = rng.choice(_CODES, shape), 0.05 + 0.1 * rng.random(rows)
            tensors[name] = PackedTensor.pack(codes, scale, bits=2, packing=packing)
        else:
            middle = 1.0 if name.endswith("LayerNorm.weight") else 0.0
            tensors[name] = (middle + 0.1 * rng.standard_normal(shape)).astype(np.float32)
    model = PackedModel(config, tensors, str(recipe.bits), recipe.to_dict())
    model.check()
    return model


def _shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor of a BERT classifier, as Hugging Face calls them."""
    d, up = config["hidden_size"], config["intermediate_size"]
    linear = {"attention.self.query": (d, d), "attention.self.key": (d, d), "attention.self.value": (d, d)}
    linear |= {"attention.output.dense": (d, d), "intermediate.dense": (up, d), "output.dense": (d, up)}
    matrices = {"bert.pooler.dense": (d, d), "classifier": (2, d)}
    norms = ["bert.embeddings.LayerNorm"]
    for i in range(config["num_hidden_layers"]):
        layer = f"bert.encoder.layer.{i}"
        matrices |= {f"{layer}.{name}": shape for name, shape in linear.items()}
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    tables = {"word": config["vocab_size"], "position": config["max_position_embeddings"], "token_type": 2}
    shapes: dict[str, tuple[int, ...]] = {f"bert.embeddings.{t}_embeddings.weight": (n, d) for t, n in tables.items()}
    for name, (rows, columns) in matrices.items():
        shapes |= {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}
    for name in norms:
        shapes |= {f"{name}.weight": (d,), f"{name}.bias": (d,)}
    return shapes
