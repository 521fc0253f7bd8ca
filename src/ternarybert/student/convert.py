"""A Hugging Face encoder becomes a student by swapping layers; no model code is copied.

What is quantized: every linear layer inside the Transformer layers, the pooler if the recipe says so, the word
embedding, and what all of them and attention are fed with. The task head keeps full precision, input and weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from ternarybert.errors import UnsupportedModelError
from ternarybert.recipe import Recipe
from ternarybert.student.activations import ActivationQuantizer, Padding
from ternarybert.student.attention import NAME, QUANTIZER
from ternarybert.student.integer_eval import evaluate_exactly
from ternarybert.student.layers import QuantizedWeight, TernaryEmbedding, TernaryLinear


@dataclass(frozen=True)
class Family:
    """Where a model family keeps its parts; names are relative to the encoder."""

    layers: str
    attention: str  # the submodule of a layer that computes attention
    pooler: str | None = None
    word_embedding: str = "embeddings.word_embeddings"


_BERT = Family("encoder.layer", "attention.self", "pooler.dense")
FAMILIES = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "camembert": _BERT,
    "electra": _BERT,
    "distilbert": Family("transformer.layer", "attention"),
}


def family_of(model: PreTrainedModel) -> Family:
    """The model's family, or an error that names it."""
    kind = model.config.model_type
    if kind not in FAMILIES:
        raise UnsupportedModelError(f"cannot ternarize a model of type '{kind}'; supported: {', '.join(FAMILIES)}")
    return FAMILIES[kind]


def expose_scores(model: PreTrainedModel) -> PreTrainedModel:
    """Let `output_attentions` give the scores before the softmax, as the distillation loss wants of a teacher."""
    family_of(model)
    model.set_attn_implementation(NAME)
    return model


def make_student(model: PreTrainedModel, recipe: Recipe) -> PreTrainedModel:
    """Turn `model` itself into a student; its parameters keep their names and values."""
    family = family_of(model)
    expose_scores(model)
    encoder = model.base_model
    padding = Padding()
    encoder.register_forward_pre_hook(padding, with_kwargs=True)

    def quantizer() -> ActivationQuantizer | None:
        return None if recipe.bits.a == 32 else ActivationQuantizer(recipe.activation, recipe.bits.a, padding)

    for layer in encoder.get_submodule(family.layers):
        # Query, key and value are fed the same tensor and share a quantizer, which then works once for the three.
        attention, shared = layer.get_submodule(family.attention), quantizer()
        if shared is not None:
            setattr(attention, QUANTIZER, shared)
        for name, linear in _linears(layer):
            feeds_attention = name.startswith(f"{family.attention}.") and "out" not in name.rpartition(".")[2]
            used = shared if feeds_attention else quantizer()
            layer.set_submodule(name, TernaryLinear.from_linear(linear, recipe.weight, recipe.bits.w, used))
    _swap_pooler(encoder, family, recipe, quantizer())
    _swap_embedding(encoder, family, recipe)
    if recipe.bits.a != 32:  # without quantized activations there is nothing that a last bit could upset
        evaluate_exactly(encoder)
    return model


def quantized_layers(model: nn.Module) -> Iterator[tuple[str, QuantizedWeight]]:
    """The layers with a quantized weight and their names, in the model's order."""
    for name, module in model.named_modules():
        if isinstance(module, QuantizedWeight) and module.bits != 32:
            yield name, module


def _linears(module: nn.Module) -> list[tuple[str, nn.Linear]]:
    return [(name, child) for name, child in module.named_modules() if isinstance(child, nn.Linear)]


def _swap_pooler(encoder: Any, family: Family, recipe: Recipe, quantizer: ActivationQuantizer | None) -> None:
    if not recipe.pooler or family.pooler is None or getattr(encoder, "pooler", None) is None:
        return
    dense = encoder.get_submodule(family.pooler)
    encoder.set_submodule(family.pooler, TernaryLinear.from_linear(dense, recipe.weight, recipe.bits.w, quantizer))


def _swap_embedding(encoder: Any, family: Family, recipe: Recipe) -> None:
    if recipe.bits.e == 32:
        return
    table = encoder.get_submodule(family.word_embedding)
    swapped = TernaryEmbedding.from_embedding(table, recipe.embedding, recipe.bits.e)
    encoder.set_submodule(family.word_embedding, swapped)
