"""Weight quantizers of the baselines. Each returns the quantized values and counts the bits that storing them takes.

Methods differ in what they store beside the codes (scales, offsets, codebooks, outliers and their positions), so each
quantizer counts its own bits. A size is a sum, never an estimate from the number of bits in a method's name.

Uniform levels. Q8BERT (Zafrir et al., 2019) maps the range ±max|w| to ±(2^(b-1) - 1), with one scale per matrix. Q2BERT
is what TernaryBERT's authors made of it for two bits: the same formula, whose only levels are then -1, 0 and 1. A
weight is nonzero only if it exceeds half of the largest, and few do. Q-BERT (Shen et al., 2020) splits the output
neurons of a matrix into 128 groups, each with its own range [min w, max w] and 2^b levels. Plain min-max is the same
with one group.

GOBO (Zadeh et al., 2020). Most weights of a matrix are Gaussian and share a few values; the others are kept. A weight
is an outlier where the logarithm of the Gaussian density, fitted to the matrix, is below -4: about one in a thousand.
Outliers stay in float32. The others are split into 2^b bins of equal count; a centroid is the mean of its bin, and
then, as in k-means, each weight moves to its nearest centroid and centroids become means again. GOBO stops where the
sum of |w - centroid| is smallest, many rounds before k-means would end. All rounds work on the sorted weights: a bin is
then an interval, and its sum a difference of two prefix sums.

Product quantization. A matrix is cut into blocks of neighboring weights, each replaced by one of K centroids. k-means
finds the centroids from a sample of the blocks (256 per centroid, as usual); all blocks then take the nearest one. A
block of 8 with 256 centroids costs one bit per weight, plus the codebook.

Quant-Noise (Fan et al., 2021). In each training step only a random share of the blocks is quantized. Quantizing
everything in every step makes every gradient an approximation, by the straight-through estimator. Here the blocks that
were not drawn have the true gradient, and over time every block is drawn. For product quantization the noise is the
paper's proxy: a drawn block becomes zero, which works as well as k-means in every step and costs nothing.
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
GROUPS = 128  # per matrix, in Q-BERT

LOG_DENSITY = -4.0  # below it a weight is an outlier, in GOBO
POSITION = 32  # bits of an outlier's position
_MAX_ROUNDS = 100

BLOCK = 8
CENTROIDS = 256
ROUNDS = 10
_SAMPLE = 256  # blocks per centroid
_CHUNK = 1 << 14  # blocks compared with all centroids at a time

NOISE_RATE = 0.1  # share of blocks that Quant-Noise quantizes in a step


@dataclass(frozen=True)
class StoredWeight:
    """A quantized weight and the bits that storing it takes."""

    w_hat: Tensor  # same shape and dtype as the weight
    parts: Mapping[str, int]  # bits of codes, scales, ...

    @property
    def bits(self) -> int:
        """The sum of all parts."""
        return sum(self.parts.values())


WeightQuantizer: TypeAlias = Callable[[Tensor], StoredWeight]


def unquantized(w: Tensor) -> StoredWeight:
    """Return the weight unchanged."""
    return StoredWeight(w, {"float32": w.numel() * FLOAT})


def symmetric(w: Tensor, bits: int) -> StoredWeight:
    """round(w / s) s with s = max|w| / (2^(bits-1) - 1): Q8BERT at 8 bits, Q2BERT's min-max ternarization at 2."""
    quantized = quantize_symmetric(w, bits, LAYER)
    return StoredWeight(quantized.dequantize(), {"codes": w.numel() * bits, "scales": FLOAT})


def minmax(w: Tensor, bits: int) -> StoredWeight:
    """round((w - min w) / s) s + min w, with one range for the matrix."""
    return grouped(w, bits, 1)


def grouped(w: Tensor, bits: int, groups: int = GROUPS) -> StoredWeight:
    """Min-max with one range per group of neighboring rows; the last group may be smaller.

    A matrix with fewer rows than `groups` has one group per row.
    """
    rows = len(w)
    size = -(-rows // groups)
    missing = -rows % size
    whole = (
        torch.cat([w, w[-1:].expand(missing, *w.shape[1:])]) if missing else w
    )  # copies of the last row widen no range
    quantized = quantize_minmax(whole, bits, Granularity.group(size))
    used = -(-rows // size)
    return StoredWeight(
        quantized.dequantize()[:rows], {"codes": w.numel() * bits, "scales": used * FLOAT, "offsets": used * FLOAT}
    )


def gobo(w: Tensor, bits: int) -> StoredWeight:
    """Keep outliers exactly and replace the other weights by one of 2^bits centroids."""
    flat = w.detach().reshape(-1).double()
    outliers = is_outlier(flat)
    inliers = flat[~outliers]
    w_hat = flat.clone()
    codebook = centroids(inliers, bits) if inliers.numel() else flat.new_zeros(0)
    if inliers.numel():
        w_hat[~outliers] = codebook[nearest(inliers, codebook)]
    count = int(outliers.sum())
    parts = {
        "codes": inliers.numel() * bits,
        "codebooks": codebook.numel() * FLOAT,
        "outliers": count * (FLOAT + POSITION),
    }
    return StoredWeight(w_hat.to(w.dtype).view_as(w), parts)


def is_outlier(w: Tensor, log_density: float = LOG_DENSITY) -> Tensor:
    """Whether log N(w; mean, standard deviation) is below the threshold; never in a constant tensor."""
    mean, deviation = w.mean(), w.std(correction=0)
    require_finite(deviation, "weights")
    if float(deviation) == 0.0:
        return torch.zeros_like(w, dtype=torch.bool)
    z = (w - mean) / deviation
    return -0.5 * z * z - torch.log(deviation * math.sqrt(2 * math.pi)) < log_density


def centroids(w: Tensor, bits: int) -> Tensor:
    """The 2^bits sorted values with the smallest sum of distances of all rounds."""
    values = w.sort().values
    sums = torch.cat([values.new_zeros(1), values.cumsum(0)])
    edges = torch.linspace(0, len(values), 2**bits + 1, dtype=torch.float64, device=values.device).round().long()
    best, least = _means(values, sums, edges), math.inf
    current = best
    for _ in range(_MAX_ROUNDS):
        edges = _edges(values, current)
        distance = float(_distances(values, sums, edges, current))
        if distance >= least:
            break
        best, least = current, distance
        current = _means(values, sums, edges, current)
    return best


def nearest(w: Tensor, centroids: Tensor) -> Tensor:
    """The index of the nearest centroid of each weight."""
    return torch.bucketize(w, (centroids[1:] + centroids[:-1]) / 2)


def _edges(values: Tensor, centroids: Tensor) -> Tensor:
    """Where the sorted values change from one nearest centroid to the next, (2^bits + 1,)."""
    inner = torch.searchsorted(values, (centroids[1:] + centroids[:-1]) / 2, right=True)
    return torch.cat([inner.new_zeros(1), inner, inner.new_full((1,), len(values))])


def _means(values: Tensor, sums: Tensor, edges: Tensor, before: Tensor | None = None) -> Tensor:
    """The mean of each interval; an empty one keeps its centroid or, at the start, takes the value at its edge."""
    counts = edges[1:] - edges[:-1]
    fallback = values[edges[:-1].clamp(max=len(values) - 1)] if before is None else before
    return torch.where(counts > 0, (sums[edges[1:]] - sums[edges[:-1]]) / counts.clamp(min=1), fallback)


def _distances(values: Tensor, sums: Tensor, edges: Tensor, centroids: Tensor) -> Tensor:
    """Σ |w - centroid|: count * centroid - sum below the centroid, sum - count * centroid above it."""
    low, high = edges[:-1], edges[1:]
    middle = torch.searchsorted(values, centroids).clamp(low, high)
    below = (middle - low) * centroids - (sums[middle] - sums[low])
    above = (sums[high] - sums[middle]) - (high - middle) * centroids
    return (below + above).sum()


def product_quantize(w: Tensor, centroids: int = CENTROIDS, block: int = BLOCK, seed: int = 0) -> StoredWeight:
    """Replace every block of the matrix by its nearest centroid."""
    blocks = as_blocks(w, block)
    codebook = k_means(blocks, centroids, seed)
    codes = assign(blocks, codebook)
    return StoredWeight(codebook[codes].to(w.dtype).view_as(w), product_parts(len(blocks), len(codebook), block))


def product_parts(blocks: int, centroids: int, block: int) -> dict[str, int]:
    """Bits of codes and codebook."""
    return {"codes": blocks * math.ceil(math.log2(max(2, centroids))), "codebooks": centroids * block * FLOAT}


def as_blocks(w: Tensor, block: int) -> Tensor:
    """Reshape the matrix to rows of `block` weights."""
    if w.shape[-1] % block:
        raise QuantizationError(f"rows of {w.shape[-1]} weights do not divide into blocks of {block}")
    return w.detach().reshape(-1, block).float()


def k_means(blocks: Tensor, centroids: int, seed: int = 0, rounds: int = ROUNDS) -> Tensor:
    """Return a codebook (K, block); the squared error falls in every round, and K is at most the number of blocks."""
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
    """The mean of the blocks of each centroid; centroids without blocks do not move. Differentiable in `blocks`."""
    counts = torch.bincount(codes, minlength=len(before))[:, None]
    sums = torch.zeros_like(before).index_add(0, codes, blocks)
    return torch.where(counts > 0, sums / counts.clamp(min=1), before)


def draw_blocks(w: Tensor, rate: float, block: int) -> Tensor:
    """Draw the weights to quantize in a step, as whole blocks; a boolean tensor of the matrix's shape."""
    blocks = torch.rand((*w.shape[:-1], w.shape[-1] // block), device=w.device) < rate
    return blocks.repeat_interleave(block, dim=-1)


def add_noise(w: Tensor, w_hat: Tensor | None, drawn: Tensor) -> Tensor:
    """Return `w` with the drawn weights quantized (zero without `w_hat`), with a straight-through gradient."""
    quantized = torch.zeros_like(w) if w_hat is None else w_hat
    return straight_through(w, torch.where(drawn, quantized, w.detach()))
