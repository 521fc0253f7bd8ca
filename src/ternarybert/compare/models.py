"""Models of the baselines: a Hugging Face encoder with its layers replaced; and how many bits a student stores.

Baselines quantize the same weights as our student: the linear layers inside the Transformer layers, the pooler and the
word embedding; and activations at the inputs of those linear layers. The two products inside attention stay in float,
which favors the baselines.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ternarybert.compare.layers import BaselineEmbedding, BaselineLinear, BaselineWeight, MovingRange, Noise
from ternarybert.compare.quantizers import FLOAT, WeightQuantizer
from ternarybert.errors import UnsupportedModelError
from ternarybert.families import family_of
from ternarybert.packed.inspect import inspect_model
from ternarybert.recipe import Recipe
from ternarybert.student import quantized_layers
from ternarybert.student.activations import Padding
from ternarybert.training.export import packed_model


@dataclass(frozen=True)
class QuantizableWeight:
    """A layer whose weight is quantized, and its name in the model."""

    name: str  # of the module, relative to the encoder
    module: nn.Linear | nn.Embedding
    layer: int | None  # index of its Transformer layer

    @property
    def is_embedding(self) -> bool:
        """Whether it is the word embedding."""
        return isinstance(self.module, nn.Embedding)


def quantizable_weights(model: PreTrainedModel) -> list[QuantizableWeight]:
    """Return all weights that are quantized, in the order of the model."""
    family, encoder = family_of(model.config), model.base_model
    weights = [QuantizableWeight(family.w_e, encoder.get_submodule(family.w_e), None)]
    for number, layer in enumerate(encoder.get_submodule(family.layers)):
        for name, module in layer.named_modules():
            if isinstance(module, nn.Linear):
                weights.append(QuantizableWeight(f"{family.layers}.{number}.{name}", module, number))
    if family.w_p is not None and getattr(encoder, "pooler", None) is not None:
        weights.append(QuantizableWeight(family.w_p, encoder.get_submodule(family.w_p), None))
    return weights


def quantize_model(
    model: PreTrainedModel,
    quantizer: Callable[[QuantizableWeight], WeightQuantizer],
    *,
    activation_bits: int = 32,
    symmetric: bool = False,
    noise: Noise | None = None,
) -> PreTrainedModel:
    """Replace the layers of `model` in place by quantizing ones."""
    padding, encoder = Padding(), model.base_model
    encoder.register_forward_pre_hook(padding, with_kwargs=True)
    layer: nn.Module
    for weight in quantizable_weights(model):
        if isinstance(weight.module, nn.Embedding):
            layer = BaselineEmbedding.from_embedding(weight.module, quantizer(weight), noise)
        else:
            moving = None if activation_bits == 32 else MovingRange(activation_bits, padding, symmetric=symmetric)
            layer = BaselineLinear.from_linear(weight.module, quantizer(weight), moving, noise)
        encoder.set_submodule(weight.name, layer)
    return model


def calibrate(model: PreTrainedModel, batches: list[dict[str, Tensor]]) -> None:
    """Run batches to set activation ranges, with everything else in evaluation mode: post-training quantization."""
    ranges = [module for module in model.modules() if isinstance(module, MovingRange)]
    model.eval()
    for module in ranges:
        module.train()
    with torch.no_grad():
        for batch in batches if ranges else []:
            model(**{name: value for name, value in batch.items() if name != "labels"})
    model.eval()


class DroppableLayer(nn.Module):
    """A Transformer layer that is skipped at random in training and, unless `kept`, always in evaluation."""

    def __init__(self, layer: nn.Module, rate: float, *, kept: bool) -> None:
        super().__init__()
        self.layer, self.rate, self.kept = layer, rate, kept

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Apply the layer, or return its input."""
        # Not torch's generator: an extra draw there would change all later dropout.
        skipped = random.random() < self.rate if self.training else not self.kept
        return hidden_states if skipped else self.layer(hidden_states, *args, **kwargs)


def layer_drop(model: PreTrainedModel, keep_every: int = 2) -> PreTrainedModel:
    """LayerDrop (Fan et al., 2020): train with random depth, then keep every second layer.

    The drop rate is the one that the authors recommend for a target depth: the share of layers to remove.
    """
    layers = model.base_model.get_submodule(family_of(model.config).layers)
    kept = set(range(keep_every - 1, len(layers), keep_every))
    rate = 1 - len(kept) / len(layers)
    for number, layer in enumerate(list(layers)):
        layers[number] = DroppableLayer(layer, rate, kept=number in kept)
    return model


def dropped_parameters(model: nn.Module) -> int:
    """The number of parameters in layers that evaluation skips."""
    dropped = [module for module in model.modules() if isinstance(module, DroppableLayer) and not module.kept]
    return sum(parameter.numel() for module in dropped for parameter in module.parameters())


def shallower(model: PreTrainedModel, keep_every: int = 2) -> PreTrainedModel:
    """Copy a model with every second layer, as paired by TinyBERT's layer map."""
    name, depth = family_of(model.config).layers, model.config.num_hidden_layers
    if depth % keep_every:
        raise UnsupportedModelError(f"the model has {depth} layers; TinyBERT needs a multiple of {keep_every}")
    student = copy.deepcopy(model)
    kept = list(student.base_model.get_submodule(name))[keep_every - 1 :: keep_every]
    student.base_model.set_submodule(name, nn.ModuleList(kept))
    for attribute in family_of(model.config).config_keys["layers"]:
        if attribute in student.config.to_dict():
            setattr(student.config, attribute, len(kept))
    return student


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
