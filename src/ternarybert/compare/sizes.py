"""The size of a student: all the bits that it stores, counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from ternarybert.compare.layers import BaselineWeight, MovingRange
from ternarybert.compare.models import dropped_parameters
from ternarybert.compare.quantizers import FLOAT
from ternarybert.packed.inspect import inspect_model
from ternarybert.recipe import Recipe
from ternarybert.student import quantized_layers
from ternarybert.training.export import packed_model


@dataclass(frozen=True)
class StudentSize:
    """Stored bits by purpose."""

    parts: Mapping[str, int]

    @property
    def bytes(self) -> int:
        """Whole bytes."""
        return -(-sum(self.parts.values()) // 8)

    @property
    def mib(self) -> float:
        """Size in MiB, which the paper calls MB."""
        return self.bytes / 2**20

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"bytes": self.bytes, "mib": self.mib, "bits": dict(self.parts)}


def float_size(model: nn.Module) -> StudentSize:
    """The size of all parameters in float32."""
    return StudentSize({"float32": sum(parameter.numel() for parameter in model.parameters()) * FLOAT})


def size_of(model: PreTrainedModel, recipe: Recipe) -> StudentSize:
    """The size of a student: ours as in the packed folder, a baseline's as counted by its quantizers."""
    if any(True for _ in quantized_layers(model)):
        tensors = inspect_model(packed_model(model, recipe)).tensors
        floats = 8 * sum(tensor.bytes for tensor in tensors if tensor.bits == FLOAT)
        return StudentSize(
            {"codes and scales": 8 * sum(tensor.bytes for tensor in tensors) - floats, "float32": floats}
        )
    parts: Counter[str] = Counter()
    rest = sum(parameter.numel() for parameter in model.parameters()) - dropped_parameters(model)
    for module in model.modules():
        if isinstance(module, BaselineWeight):
            parts.update(module.stored().parts)
            rest -= module.weight.numel()
        elif isinstance(module, MovingRange):
            parts["ranges"] += (1 if module.symmetric else 2) * FLOAT
    parts["float32"] += rest * FLOAT
    return StudentSize(dict(parts))
