"""Product quantization: a matrix is cut into blocks of a few neighbouring weights, and each becomes one of K centroids.

k-means finds the centroids, from a sample of the blocks as is usual (256 of them for each centroid); all blocks then
take their nearest. A block of 8 with 256 centroids costs one bit a weight, and the codebook on top.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ternarybert.baselines.stored import FLOAT, Stored
from ternarybert.errors import QuantizationError
from ternarybert.quantize.quantized import require_finite

BLOCK = 8
CENTROIDS = 256
ROUNDS = 10
_SAMPLE = 256  # blocks for each centroid
_CHUNK = 1 << 14  # blocks compared with all centroids at a time


def product_quantize(w: Tensor, centroids: int = CENTROIDS, block: int = BLOCK, seed: int = 0) -> Stored:
    """Every block of the matrix as its nearest centroid."""
    blocks = as_blocks(w, block)
    codebook = k_means(blocks, centroids, seed)
    codes = assign(blocks, codebook)
    return Stored(codebook[codes].to(w.dtype).view_as(w), product_parts(len(blocks), len(codebook), block))


def product_parts(blocks: int, centroids: int, block: int) -> dict[str, int]:
    """Bits of codes and codebook."""
    return {"codes": blocks * math.ceil(math.log2(max(2, centroids))), "codebooks": centroids * block * FLOAT}


def as_blocks(w: Tensor, block: int) -> Tensor:
    """The matrix as rows of `block` weights."""
    if w.shape[-1] % block:
        raise QuantizationError(f"rows of {w.shape[-1]} weights do not divide into blocks of {block}")
    return w.detach().reshape(-1, block).float()


def k_means(blocks: Tensor, centroids: int, seed: int = 0, rounds: int = ROUNDS) -> Tensor:
    """A codebook (K, block) that lowers the squared error in every round; K is at most the number of blocks."""
    require_finite(blocks.sum(), "weights")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(blocks), generator=generator).to(blocks.device)
    sample = blocks[order[: centroids * _SAMPLE]]
    codebook = sample[:centroids].clone()
    for _ in range(rounds):
        codebook = means(sample, assign(sample, codebook), codebook)
    return codebook


def assign(blocks: Tensor, codebook: Tensor) -> Tensor:
    """The nearest centroid of each block: argmin |b - c|² = argmin |c|²/2 - b·c."""
    half = codebook.square().sum(1) / 2
    return torch.cat([(half - chunk @ codebook.T).argmin(1) for chunk in torch.split(blocks, _CHUNK)])


def means(blocks: Tensor, codes: Tensor, before: Tensor) -> Tensor:
    """The mean of each centroid's blocks; one without any stays where it was. Gradients flow from means to blocks."""
    counts = torch.bincount(codes, minlength=len(before))[:, None]
    sums = torch.zeros_like(before).index_add(0, codes, blocks)
    return torch.where(counts > 0, sums / counts.clamp(min=1), before)
