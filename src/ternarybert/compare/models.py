"""Models of the baselines, made of a Hugging Face encoder by swapping its layers.

What is quantized is what our student quantizes: the linear layers inside the Transformer layers, the pooler and the
word embedding; activations at the inputs of those linear layers. The two products inside attention stay in float, which
is in the baselines' favour.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ternarybert.compare.layers import BaselineEmbedding, BaselineLinear, MovingRange, Noise
from ternarybert.compare.quantizers import WeightQuantizer
from ternarybert.errors import UnsupportedModelError
from ternarybert.families import family_of
from ternarybert.student.activations import Padding


@dataclass(frozen=True)
class Place:
    """Where a weight is that is to be quantized."""

    name: str  # of the module, below the encoder
    module: nn.Linear | nn.Embedding
    layer: int | None  # the number of its Transformer layer

    @property
    def is_embedding(self) -> bool:
        """Whether it is the word embedding."""
        return isinstance(self.module, nn.Embedding)


def places(model: PreTrainedModel) -> list[Place]:
    """All weights that are quantized, in the model's order."""
    family, encoder = family_of(model.config), model.base_model
    found = [Place(family.w_e, encoder.get_submodule(family.w_e), None)]
    for number, layer in enumerate(encoder.get_submodule(family.layers)):
        for name, module in layer.named_modules():
            if isinstance(module, nn.Linear):
                found.append(Place(f"{family.layers}.{number}.{name}", module, number))
    if family.w_p is not None and getattr(encoder, "pooler", None) is not None:
        found.append(Place(family.w_p, encoder.get_submodule(family.w_p), None))
    return found


def quantize_model(
    model: PreTrainedModel,
    quantizer: Callable[[Place], WeightQuantizer],
    *,
    activation_bits: int = 32,
    symmetric: bool = False,
    noise: Noise | None = None,
) -> PreTrainedModel:
    """Swap the layers of `model` itself for ones that quantize."""
    padding, encoder = Padding(), model.base_model
    encoder.register_forward_pre_hook(padding, with_kwargs=True)
    layer: nn.Module
    for place in places(model):
        if isinstance(place.module, nn.Embedding):
            layer = BaselineEmbedding.from_embedding(place.module, quantizer(place), noise)
        else:
            moving = None if activation_bits == 32 else MovingRange(activation_bits, padding, symmetric=symmetric)
            layer = BaselineLinear.from_linear(place.module, quantizer(place), moving, noise)
        encoder.set_submodule(place.name, layer)
    return model


def calibrate(model: PreTrainedModel, batches: list[dict[str, Tensor]]) -> None:
    """Let the ranges see some batches, with everything else as in evaluation: post-training quantization."""
    ranges = [module for module in model.modules() if isinstance(module, MovingRange)]
    model.eval()
    for module in ranges:
        module.train()
    with torch.no_grad():
        for batch in batches if ranges else []:
            model(**{name: value for name, value in batch.items() if name != "labels"})
    model.eval()


class Droppable(nn.Module):
    """A Transformer layer that is skipped at random in training and, unless it is kept, always afterwards."""

    def __init__(self, layer: nn.Module, rate: float, *, kept: bool) -> None:
        super().__init__()
        self.layer, self.rate, self.kept = layer, rate, kept

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        """The layer, or what it is fed with."""
        # Not torch's generator: a draw more or less there would change all dropout after it.
        skipped = random.random() < self.rate if self.training else not self.kept
        return hidden_states if skipped else self.layer(hidden_states, *args, **kwargs)


def layer_drop(model: PreTrainedModel, keep_every: int = 2) -> PreTrainedModel:
    """LayerDrop (Fan et al., 2020): train with random depth, then keep every second layer.

    The rate is the one the authors advise for a target depth: the share of layers that will go.
    """
    layers = model.base_model.get_submodule(family_of(model.config).layers)
    kept = set(range(keep_every - 1, len(layers), keep_every))
    rate = 1 - len(kept) / len(layers)
    for number, layer in enumerate(list(layers)):
        layers[number] = Droppable(layer, rate, kept=number in kept)
    return model


def dropped_parameters(model: nn.Module) -> int:
    """How many parameters of a model with dropped layers are never used again."""
    dropped = [module for module in model.modules() if isinstance(module, Droppable) and not module.kept]
    return sum(parameter.numel() for module in dropped for parameter in module.parameters())


def shallower(model: PreTrainedModel, keep_every: int = 2) -> PreTrainedModel:
    """A student with every second layer of the teacher, as TinyBERT's layer map pairs them."""
    name, depth = family_of(model.config).layers, model.config.num_hidden_layers
    if depth % keep_every:
        raise UnsupportedModelError(f"{depth} layers cannot be halved; TinyBERT needs an even number")
    student = copy.deepcopy(model)
    kept = list(student.base_model.get_submodule(name))[keep_every - 1 :: keep_every]
    student.base_model.set_submodule(name, nn.ModuleList(kept))
    for attribute in family_of(model.config).config_keys["layers"]:
        if attribute in student.config.to_dict():
            setattr(student.config, attribute, len(kept))
    return student
