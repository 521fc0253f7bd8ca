"""From student to packed model, through the very quantizer that the forward pass uses.

Nothing is derived anew: each layer is asked for its codes and scales (LAT with the optimizer's second moments of this
moment), so the packed model is the one that was evaluated.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import PreTrainedModel

from ternarybert.packed import PackedModel, PackedTensor
from ternarybert.packed.tensor import as_float32
from ternarybert.recipe import Recipe
from ternarybert.student import quantized_layers
from ternarybert.student.layers import QuantizedWeight


def packed_model(student: PreTrainedModel, recipe: Recipe, metrics: dict[str, Any] | None = None) -> PackedModel:
    """The student as it is now."""
    layers = {f"{name}.weight": layer for name, layer in quantized_layers(student)}
    tensors: dict[str, Any] = {}
    for name, value in student.state_dict().items():
        tensors[name] = packed_tensor(name, layers[name]) if name in layers else _float32(name, value)
    config = student.config.to_dict()
    config.pop("quantization_config", None)
    config["architectures"] = [type(student).__name__]  # a model that was never saved has none in its config
    return PackedModel(config, tensors, str(recipe.bits), recipe.to_dict(), metrics or {})


def packed_tensor(name: str, layer: QuantizedWeight) -> PackedTensor:
    """A layer's codes and scales; groups of rows are written as one scale a row."""
    quantized = layer.quantized()
    scale = _float32(name, quantized.scale).reshape(-1)
    codes = np.ascontiguousarray(quantized.codes.cpu().numpy())
    return PackedTensor.pack(codes, scale, bits=layer.bits, levels=layer.scheme.levels)


def _float32(name: str, value: Tensor) -> npt.NDArray[np.float32]:
    """As an array: half precision is widened, double precision refused unless nothing is lost."""
    wide = value if value.dtype is torch.float64 else value.float()
    return as_float32(name, wide.detach().cpu().numpy())
