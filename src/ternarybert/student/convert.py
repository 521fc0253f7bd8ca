"""A Hugging Face encoder becomes a student by swapping layers; no model code is copied.

Quantized are the matrices that the family's record names (families.py): the linear layers of every Transformer layer,
the word embedding and, if the recipe says so, the pooler, together with the activations that linear layers and
attention take as input. The task head keeps full precision, input and weight.

Teacher and student share one attention function, which is registered with transformers. It computes what eager
attention computes and returns the scores before the softmax, which L_trm compares. If the attention module has an
`ActivationQuantizer`, as in a student, then Q, K, the softmax output and V are quantized.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

from ternarybert.errors import UnsupportedModelError
from ternarybert.families import LAYER_MATRICES, Family, family_of
from ternarybert.recipe import Recipe
from ternarybert.student import integer_eval
from ternarybert.student.activations import ActivationQuantizer, Padding
from ternarybert.student.integer_eval import use_integer_evaluation
from ternarybert.student.layers import QuantizedWeight, TernaryEmbedding, TernaryLinear

NAME = "ternarybert"
QUANTIZER = "activation_quantizer"  # the attribute of a student's attention modules that holds it


def expose_scores(model: PreTrainedModel) -> PreTrainedModel:
    """Make `output_attentions` return the scores before the softmax, which the distillation loss compares."""
    family_of(model.config)
    model.set_attn_implementation(NAME)
    if model.config._attn_implementation != NAME:  # transformers only warns, and attention would not be quantized
        raise UnsupportedModelError(f"{type(model).__name__} does not use transformers' attention interface")
    return model


def make_student(model: PreTrainedModel, recipe: Recipe) -> PreTrainedModel:
    """Turn `model` itself into a student; its parameters keep their names and values."""
    family = family_of(model.config)
    expose_scores(model)
    encoder = model.base_model
    padding = Padding()
    encoder.register_forward_pre_hook(padding, with_kwargs=True)

    def quantizer() -> ActivationQuantizer | None:
        return None if recipe.bits.a == 32 else ActivationQuantizer(recipe.activation, recipe.bits.a, padding)

    for layer in encoder.get_submodule(family.layers):
        # Query, key and value have the same input and share a quantizer, which then quantizes it once for all three.
        attention, shared = layer.get_submodule(family.attention), quantizer()
        if shared is not None:
            setattr(attention, QUANTIZER, shared)
        for symbol in LAYER_MATRICES:
            used = shared if symbol in ("w_q", "w_k", "w_v") else quantizer()
            _swap_linear(layer, getattr(family, symbol), recipe, used)
    if recipe.pooler and family.w_p is not None and getattr(encoder, family.w_p.partition(".")[0], None) is not None:
        _swap_linear(encoder, family.w_p, recipe, quantizer())
    if recipe.bits.e != 32:
        _swap_embedding(encoder, family, recipe)
    if recipe.bits.a != 32:  # without quantized activations a difference in the last bit does not grow
        use_integer_evaluation(encoder)
    return model


def quantized_layers(model: nn.Module) -> Iterator[tuple[str, QuantizedWeight]]:
    """The layers with a quantized weight and their names, in the model's order."""
    for name, module in model.named_modules():
        if isinstance(module, QuantizedWeight) and module.bits != 32:
            yield name, module


def _swap_linear(parent: Any, name: str, recipe: Recipe, quantizer: ActivationQuantizer | None) -> None:
    linear = parent.get_submodule(name)
    parent.set_submodule(name, TernaryLinear.from_linear(linear, recipe.weight, recipe.bits.w, quantizer))


def _swap_embedding(encoder: Any, family: Family, recipe: Recipe) -> None:
    table = encoder.get_submodule(family.w_e)
    encoder.set_submodule(family.w_e, TernaryEmbedding.from_embedding(table, recipe.embedding, recipe.bits.e))


def scored_attention(
    module: nn.Module,
    query: Tensor,  # (B, N_H, n, d_h), as key and value
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Context (B, n, N_H, d_h) and the scaled scores without the mask, (B, N_H, n, n)."""
    quantizer: ActivationQuantizer | None = getattr(module, QUANTIZER, None)
    # 1/sqrt(d_h), as every BERT computes it; the paper's text has 1/sqrt(d).
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if quantizer is not None and integer_eval.evaluating(module, query):
        return _integer_attention(quantizer, query, key, value, attention_mask, scale)
    if quantizer is not None:
        query, key, value = quantizer.heads(query), quantizer.heads(key), quantizer.values(value)
    scores = torch.matmul(query * scale, key.transpose(2, 3))  # cheaper than scaling the scores
    masked = scores if attention_mask is None else scores + attention_mask
    probabilities = nn.functional.dropout(masked.softmax(-1), p=dropout, training=module.training)
    if quantizer is not None:
        probabilities = quantizer.probabilities(probabilities)
    context = torch.matmul(probabilities, value).transpose(1, 2).contiguous()
    return context, scores


def _integer_attention(
    quantizer: ActivationQuantizer, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """The student's attention in evaluation, from integer codes."""
    scores = integer_eval.scores(quantizer.heads_codes(query), quantizer.heads_codes(key), scale)
    probabilities = quantizer.probabilities_codes(integer_eval.softmax(scores, mask))
    context = integer_eval.context(probabilities, quantizer.values_codes(value), quantizer.real_keys())
    return context.transpose(1, 2).contiguous(), scores


AttentionInterface.register(NAME, scored_attention)
# Without a mask function of the same name, transformers passes no mask and padding is attended to.
AttentionMaskInterface.register(NAME, eager_mask)
