"""Equidistant levels: Q8BERT and Q2BERT (symmetric), Q-BERT (min-max in groups), and plain post-training min-max.

Q8BERT (Zafrir et al., 2019) maps ±max|w| to ±(2^(b-1) - 1), one scale for a matrix. Q2BERT is what TernaryBERT's
authors made of it for two bits: the same formula, whose only levels are then -1, 0 and 1. A weight must be larger than
half of the largest to be anything but zero, and few are.

Q-BERT (Shen et al., 2020) cuts the output neurons of a matrix into groups, 128 of them, and gives each its own range
[min w, max w] with 2^b levels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ternarybert.baselines.stored import FLOAT, Stored
from ternarybert.quantize import quantize_minmax, quantize_symmetric
from ternarybert.recipe import LAYER, Granularity

GROUPS = 128  # Q-BERT's, of every matrix


def symmetric(w: Tensor, bits: int) -> Stored:
    """round(w / s) s with s = max|w| / (2^(bits-1) - 1): Q8BERT at 8 bits, Q2BERT's min-max ternarization at 2."""
    quantized = quantize_symmetric(w, bits, LAYER)
    return Stored(quantized.dequantize(), {"codes": w.numel() * bits, "scales": FLOAT})


def minmax(w: Tensor, bits: int) -> Stored:
    """round((w - min w) / s) s + min w, one range for the matrix."""
    return grouped(w, bits, 1)


def grouped(w: Tensor, bits: int, groups: int = GROUPS) -> Stored:
    """Min-max with one range for each group of neighbouring rows; where rows do not divide, the last group is smaller.

    A matrix with fewer rows than `groups` has a group a row.
    """
    rows = len(w)
    size = -(-rows // groups)
    missing = -rows % size
    whole = torch.cat([w, w[-1:].expand(missing, *w.shape[1:])]) if missing else w  # a copy widens no range
    quantized = quantize_minmax(whole, bits, Granularity.group(size))
    used = -(-rows // size)
    return Stored(
        quantized.dequantize()[:rows], {"codes": w.numel() * bits, "scales": used * FLOAT, "offsets": used * FLOAT}
    )
