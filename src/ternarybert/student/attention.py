"""One attention function for teacher and student, registered with transformers.

It computes what eager attention computes and returns the scores before the softmax, which L_trm compares. If the
attention module has an `ActivationQuantizer`, as in a student, then Q, K, the softmax output and V are quantized.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from ternarybert.student import integer_eval
from ternarybert.student.activations import ActivationQuantizer

NAME = "ternarybert"
QUANTIZER = "activation_quantizer"  # the attribute of a student's attention modules that holds it


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
