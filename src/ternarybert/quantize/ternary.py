"""Ternary weights: w ≈ αb with α > 0 and b in {-1, 0, +1}ⁿ, one α for each layer, row or group of rows.

TWN takes the nearest such point, min ‖w − αb‖². For any b the best scale is α = ‖b ⊙ w‖₁ / ‖b‖₁, and the best b
keeps the entries above a threshold: b = I_Δ(w). The exact Δ maximizes (Σ_{|wᵢ|>Δ} |wᵢ|)² / #{|wᵢ|>Δ}, which takes a
sort; the usual shortcut is Δ = 0.7 mean|w|.

LAT takes the point that increases the loss least, min Σ dᵢ(wᵢ − αbᵢ)² with d = √v, where v is Adam's second moment
of the gradient. The same two facts hold with weighted sums, and now the threshold is α/2. Solved by alternating
between α and b (what the paper uses), or exactly by one sort.

Beware of the exact solutions: if a layer has a few huge outliers, the optimum keeps only those and sets everything else
to zero, which is the smaller error and a useless matrix. The shortcut and the alternation start from a dense b and
avoid it; the exact forms are safe row by row or on clipped weights.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ternarybert.errors import QuantizationError
from ternarybert.quantize.quantized import Quantized, as_units, per_unit, require_finite
from ternarybert.recipe import LAYER, Granularity

TWN_FACTOR = 0.7  # Δ = 0.7 mean|w|
MAX_ITERATIONS = 10  # of the alternation, as in the authors' LAT code
TOLERANCE = 1e-6  # the alternation stops when α moves by less than this share of itself
CURVATURE_FLOOR = 1e-8  # keeps d positive where there was no gradient yet
CACHE_BLOCK = 3 << 18  # elements processed at a time, so that they stay in the cache


def ternarize_twn(w: Tensor, granularity: Granularity = LAYER, *, exact: bool = False) -> Quantized:
    """The nearest ternary weights, by the 0.7 rule or exactly."""
    units = as_units(w, granularity)
    if exact:
        alpha = _exact_scale(units, torch.ones_like(units))
        return _quantized(w, granularity, threshold(units, alpha / 2), alpha)
    codes = torch.empty_like(units, dtype=torch.int8)
    alpha = units.new_empty(len(units), 1)
    rows = len(units) if w.is_cuda else max(1, CACHE_BLOCK // units.shape[1])
    for block in range(0, len(units), rows):
        part = slice(block, block + rows)
        _twn(units[part], codes[part], alpha[part])
    return _quantized(w, granularity, codes, alpha)


def ternarize_lat(
    w: Tensor,
    second_moment: Tensor,
    granularity: Granularity = LAYER,
    *,
    exact: bool = False,
    previous: Tensor | None = None,
) -> Quantized:
    """The ternary weights that minimize the loss's diagonal second-order model.

    The alternation starts from the signs of `previous`, the weights or codes of the previous step, or else from TWN.
    """
    units = as_units(w, granularity)
    d = curvature(second_moment, w, granularity)
    if exact:
        alpha = _exact_scale(units, d)
    else:
        magnitude = units.abs()
        alpha = alternate(magnitude, d, start(magnitude, w, granularity, previous), lambda a: kept(magnitude, a / 2))
    return _quantized(w, granularity, threshold(units, alpha / 2), alpha)


def threshold(x: Tensor, delta: Tensor) -> Tensor:
    """I_Δ(x): +1 above Δ, -1 below -Δ, else 0, as int8. `delta` broadcasts against `x`."""
    return kept(x.abs(), delta).copysign_(x).to(torch.int8)


def kept(magnitude: Tensor, delta: Tensor) -> Tensor:
    """1.0 where |x| > Δ, else 0.0. The sign of a difference is exact, and much faster than torch's comparison."""
    return (magnitude - delta).clamp_(min=0).sign_()


def twn_threshold(magnitude: Tensor) -> Tensor:
    """Δ = 0.7 ‖w‖₁ / n for each unit, (units, 1)."""
    delta = magnitude.sum(1, keepdim=True).mul_(TWN_FACTOR / magnitude.shape[1])
    require_finite(delta, "weights")
    return delta


def optimal_scale(b: Tensor, d: Tensor, dw: Tensor) -> Tensor:
    """α = Σ d|b||w| / Σ d|b| for each unit, (units, 1), from |b|, d and d|w|; 0 where b is all zero."""
    total = (b * d).sum(1, keepdim=True)
    return torch.where(total > 0, (b * dw).sum(1, keepdim=True) / total, 0.0)


def curvature(second_moment: Tensor, w: Tensor, granularity: Granularity) -> Tensor:
    """D = √v + 1e-8, laid out as the weights' units."""
    if second_moment.shape != w.shape:
        raise QuantizationError(
            f"second moment {tuple(second_moment.shape)} does not match the weights {tuple(w.shape)}"
        )
    d = as_units(second_moment, granularity).sqrt().add_(CURVATURE_FLOOR)
    require_finite(d.sum(), "with this second moment")  # a negative one has become NaN
    return d


def start(magnitude: Tensor, w: Tensor, granularity: Granularity, previous: Tensor | None = None) -> Tensor:
    """The |b| that an alternation starts from: that of `previous`, or of TWN if it is missing or all zero."""
    b = kept(magnitude, twn_threshold(magnitude))
    if previous is None:
        return b
    if previous.shape != w.shape:
        raise QuantizationError(f"previous {tuple(previous.shape)} does not match the weights {tuple(w.shape)}")
    before = as_units(previous.float(), granularity).abs()
    require_finite(before.sum(1), "with this previous")
    return torch.where(before.any(1, keepdim=True), before.sign_().to(b.dtype), b)


def alternate(
    magnitude: Tensor,
    d: Tensor,
    b: Tensor,
    nearest: Callable[[Tensor], Tensor],
    scale: Callable[[Tensor, Tensor, Tensor], Tensor] = optimal_scale,
) -> Tensor:
    """α of every unit, alternating the best α for |b| and the nearest |b| for α; b has the signs of w.

    A unit whose α has converged keeps it, so that the result of a row does not depend on other rows.
    """
    dw = d * magnitude
    alpha = scale(b, d, dw)
    moving = torch.ones_like(alpha, dtype=torch.bool)
    for _ in range(MAX_ITERATIONS):
        new = torch.where(moving, scale(nearest(alpha), d, dw), alpha)
        require_finite(new, "weights")
        moving = (new - alpha).abs() > TOLERANCE * alpha
        alpha = new
        if not bool(moving.any()):
            break
    return alpha


def _twn(units: Tensor, codes: Tensor, alpha: Tensor) -> None:
    """TWN of some units into `codes` and `alpha`. The mean of what exceeds Δ is Δ plus the mean excess."""
    magnitude = units.abs()
    delta = twn_threshold(magnitude)
    excess = magnitude.sub_(delta).clamp_(min=0)
    total = excess.sum(1, keepdim=True)
    b = excess.sign_()
    count = b.sum(1, keepdim=True)
    alpha.copy_(delta + total / count.clamp_(min=1))  # a unit of zeros counts none and stays 0
    codes.copy_(b.copysign_(units))


def _exact_scale(units: Tensor, d: Tensor) -> Tensor:
    """α of the best solution: keep the top j, where j maximizes (Σ d|w|)² / Σ d over the top j; the threshold is α/2.

    No entry lies on the threshold: one with |w| = α/2 costs the same kept or dropped, so α could still be improved.
    """
    magnitude, order = units.abs().sort(dim=1, descending=True)
    weight = d.gather(1, order)
    top_d = weight.cumsum(1, dtype=torch.float64)
    top_dw = magnitude.mul_(weight).cumsum(1, dtype=torch.float64)
    best = (top_dw.square() / top_d).argmax(1, keepdim=True)
    alpha = (top_dw.gather(1, best) / top_d.gather(1, best)).to(units.dtype)
    require_finite(top_dw[:, -1], "weights")
    return alpha


def _quantized(w: Tensor, granularity: Granularity, codes: Tensor, alpha: Tensor) -> Quantized:
    return Quantized(codes.reshape(w.shape), per_unit(alpha, w, granularity), None, w.dtype)
