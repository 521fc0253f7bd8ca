"""Quant-Noise (Fan et al., 2021): in each step only a random share of a matrix's blocks is quantized.

Quantizing everything at every step (QAT) makes every gradient an approximation, by the straight-through estimator.
Here the blocks that were not drawn see the true gradient, and in the long run every block is drawn. For product
quantization the noise is the paper's proxy: a drawn block becomes zero, which works as well as k-means in every step
and costs nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ternarybert.quantize import straight_through

RATE = 0.1


def draw(w: Tensor, rate: float, block: int) -> Tensor:
    """Which weights are quantized in this step, whole blocks at a time; boolean, of the matrix's shape."""
    blocks = torch.rand((*w.shape[:-1], w.shape[-1] // block), device=w.device) < rate
    return blocks.repeat_interleave(block, dim=-1)


def noisy(w: Tensor, w_hat: Tensor | None, drawn: Tensor) -> Tensor:
    """`w` with the drawn weights quantized (zero where there is no `w_hat`); the gradient passes straight through."""
    quantized = torch.zeros_like(w) if w_hat is None else w_hat
    return straight_through(w, torch.where(drawn, quantized, w.detach()))
