"""Quant-Noise (Fan et al., 2021): in each step only a random share of a matrix's blocks is quantized.

Quantizing everything at every step (QAT) makes every gradient an approximation, by the straight-through estimator.
Here the blocks that were not drawn see the true gradient, and in the long run every block is drawn. For product
quantization the noise is the paper's proxy: a drawn block becomes zero, which works as well as k-means in every step
and costs nothing.

MERGED-DOCS:
What every baseline's quantizer returns: the values that a weight then has, and what storing them takes.

Methods differ in what they keep beside the codes (scales, offsets, codebooks, outliers with their places), so each
quantizer counts its own bits. A size is then a sum, and never a guess from the number of bits in a method's name.

---
Equidistant levels: Q8BERT and Q2BERT (symmetric), Q-BERT (min-max in groups), and plain post-training min-max.

Q8BERT (Zafrir et al., 2019) maps ±max|w| to ±(2^(b-1) - 1), one scale for a matrix. Q2BERT is what TernaryBERT's
authors made of it for two bits: the same formula, whose only levels are then -1, 0 and 1. A weight must be larger than
half of the largest to be anything but zero, and few are.

Q-BERT (Shen et al., 2020) cuts the output neurons of a matrix into groups, 128 of them, and gives each its own range
[min w, max w] with 2^b levels.

---
GOBO (Zadeh et al., 2020): most weights of a matrix are Gaussian and share a few values; the others are kept.

A weight is an outlier where the logarithm of the Gaussian density, fitted to the matrix, lies below -4: about one in a
thousand. Outliers stay in float32. The others are cut into 2^b bins with equally many weights, a centroid is the mean
of its bin, and then, as in k-means, each weight goes to its nearest centroid and centroids become means again. GOBO
stops where the sum of |w - centroid| is smallest, which is many rounds before k-means would end.

All rounds work on the sorted weights: a bin is then an interval, its sum a difference of two prefix sums.

---
Product quantization: a matrix is cut into blocks of a few neighbouring weights, and each becomes one of K centroids.

k-means finds the centroids, from a sample of the blocks as is usual (256 of them for each centroid); all blocks then
take their nearest. A block of 8 with 256 centroids costs one bit a weight, and the codebook on top.

"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from ternarybert.errors import QuantizationError
from ternarybert.quantize import quantize_minmax, quantize_symmetric, straight_through
from ternarybert.quantize.quantized import require_finite
from ternarybert.recipe import LAYER, Granularity

FLOAT = 32  # bits


@dataclass(frozen=True)
class Stored:
    """A weight as a method stores it."""

    w_hat: Tensor  # of the weight's shape and dtype
    parts: Mapping[str, int]  # bits of the codes, the scales, ...

    @property
    def bits(self) -> int:
        """All of them together."""
        return sum(self.parts.values())


WeightQuantizer: TypeAlias = Callable[[Tensor], Stored]


def keep(w: Tensor) -> Stored:
    """The weight as it is."""
    return Stored(w, {"float32": w.numel() * FLOAT})


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


LOG_DENSITY = -4.0
POSITION = 32  # bits that say where an outlier stands
_MOST_ROUNDS = 100


def gobo(w: Tensor, bits: int) -> Stored:
    """Outliers exactly, the other weights as one of 2^bits centroids."""
    flat = w.detach().reshape(-1).double()
    outliers = is_outlier(flat)
    inliers = flat[~outliers]
    w_hat = flat.clone()
    found = centroids(inliers, bits) if inliers.numel() else flat.new_zeros(0)
    if inliers.numel():
        w_hat[~outliers] = found[nearest(inliers, found)]
    count = int(outliers.sum())
    parts = {
        "codes": inliers.numel() * bits,
        "codebooks": found.numel() * FLOAT,
        "outliers": count * (FLOAT + POSITION),
    }
    return Stored(w_hat.to(w.dtype).view_as(w), parts)


def is_outlier(w: Tensor, log_density: float = LOG_DENSITY) -> Tensor:
    """Whether log N(w; mean, standard deviation) lies below the threshold; in a constant tensor nothing does."""
    mean, deviation = w.mean(), w.std(correction=0)
    require_finite(deviation, "weights")
    if float(deviation) == 0.0:
        return torch.zeros_like(w, dtype=torch.bool)
    z = (w - mean) / deviation
    return -0.5 * z * z - torch.log(deviation * math.sqrt(2 * math.pi)) < log_density


def centroids(w: Tensor, bits: int) -> Tensor:
    """The 2^bits values, in order, whose sum of distances was the smallest of all rounds."""
    values = w.sort().values
    sums = torch.cat([values.new_zeros(1), values.cumsum(0)])
    edges = torch.linspace(0, len(values), 2**bits + 1, dtype=torch.float64, device=values.device).round().long()
    best, least = _means(values, sums, edges), math.inf
    found = best
    for _ in range(_MOST_ROUNDS):
        edges = _edges(values, found)
        distance = float(_distances(values, sums, edges, found))
        if distance >= least:
            break
        best, least = found, distance
        found = _means(values, sums, edges, found)
    return best


def nearest(w: Tensor, centroids: Tensor) -> Tensor:
    """The number of each weight's nearest centroid."""
    return torch.bucketize(w, (centroids[1:] + centroids[:-1]) / 2)


def _edges(values: Tensor, centroids: Tensor) -> Tensor:
    """Where the sorted values change from one nearest centroid to the next, (2^bits + 1,)."""
    inner = torch.searchsorted(values, (centroids[1:] + centroids[:-1]) / 2, right=True)
    return torch.cat([inner.new_zeros(1), inner, inner.new_full((1,), len(values))])


def _means(values: Tensor, sums: Tensor, edges: Tensor, before: Tensor | None = None) -> Tensor:
    """The mean of each interval; an empty one keeps its centroid, or at the start takes the value at its edge."""
    counts = edges[1:] - edges[:-1]
    kept = values[edges[:-1].clamp(max=len(values) - 1)] if before is None else before
    return torch.where(counts > 0, (sums[edges[1:]] - sums[edges[:-1]]) / counts.clamp(min=1), kept)


def _distances(values: Tensor, sums: Tensor, edges: Tensor, centroids: Tensor) -> Tensor:
    """Σ |w - centroid|: below the centroid it is count * centroid - sum, above it the other way round."""
    low, high = edges[:-1], edges[1:]
    middle = torch.searchsorted(values, centroids).clamp(low, high)
    below = (middle - low) * centroids - (sums[middle] - sums[low])
    above = (sums[high] - sums[middle]) - (high - middle) * centroids
    return (below + above).sum()


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


RATE = 0.1


def draw(w: Tensor, rate: float, block: int) -> Tensor:
    """Which weights are quantized in this step, whole blocks at a time; boolean, of the matrix's shape."""
    blocks = torch.rand((*w.shape[:-1], w.shape[-1] // block), device=w.device) < rate
    return blocks.repeat_interleave(block, dim=-1)


def noisy(w: Tensor, w_hat: Tensor | None, drawn: Tensor) -> Tensor:
    """`w` with the drawn weights quantized (zero where there is no `w_hat`); the gradient passes straight through."""
    quantized = torch.zeros_like(w) if w_hat is None else w_hat
    return straight_through(w, torch.where(drawn, quantized, w.detach()))
