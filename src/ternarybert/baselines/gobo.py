"""GOBO (Zadeh et al., 2020): most weights of a matrix are Gaussian and share a few values; the others are kept.

A weight is an outlier where the logarithm of the Gaussian density, fitted to the matrix, lies below -4: about one in a
thousand. Outliers stay in float32. The others are cut into 2^b bins with equally many weights, a centroid is the mean
of its bin, and then, as in k-means, each weight goes to its nearest centroid and centroids become means again. GOBO
stops where the sum of |w - centroid| is smallest, which is many rounds before k-means would end.

All rounds work on the sorted weights: a bin is then an interval, its sum a difference of two prefix sums.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ternarybert.baselines.stored import FLOAT, Stored
from ternarybert.quantize.quantized import require_finite

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
