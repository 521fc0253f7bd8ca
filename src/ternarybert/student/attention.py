"""One attention function for teacher and student, registered with transformers.

It computes what eager attention computes and hands out the scores before the softmax, which L_trm compares. Where the
attention module carries an `ActivationQuantizer`, Q, K, the softmax output and V are quantized: that is the student.
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
QUANTIZER = "activation_quantizer"  # attribute of a student's attention modules


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
        return _evaluated(quantizer, query, key, value, attention_mask, scale)
    if quantizer is not None:
        query, key, value = quantizer.heads(query), quantizer.heads(key), quantizer.values(value)
    scores = torch.matmul(query * scale, key.transpose(2, 3))  # scaling the scores would take longer
    masked = scores if attention_mask is None else scores + attention_mask
    probabilities = nn.functional.dropout(masked.softmax(-1), p=dropout, training=module.training)
    if quantizer is not None:
        probabilities = quantizer.probabilities(probabilities)
    context = torch.matmul(probabilities, value).transpose(1, 2).contiguous()
    return context, scores


def _evaluated(
    quantizer: ActivationQuantizer, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """The student's attention from integer codes."""
    scores = integer_eval.scores(quantizer.heads_codes(query), quantizer.heads_codes(key), scale)
    probabilities = quantizer.probabilities_codes(integer_eval.softmax(scores, mask))
    context = integer_eval.context(probabilities, quantizer.values_codes(value), quantizer.real_keys())
    return context.transpose(1, 2).contiguous(), scores


AttentionInterface.register(NAME, scored_attention)
# Without a mask function of the same name transformers passes no mask at all, and padding is attended to.
AttentionMaskInterface.register(NAME, eager_mask)
