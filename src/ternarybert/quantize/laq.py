"""Loss-aware quantization with m bits: LAT's problem with more levels.

min Σ dᵢ(wᵢ − αbᵢ)² where b takes 2k+1 levels, k = 2^(m-1) − 1: equidistant ones {0, ±1/k, ..., ±1}, or powers of two
{0, ±2^-(k-1), ..., ±1/2, ±1}. Alternating as in LAT: nearest levels for α, then α for the levels. With m = 2 both
are LAT; with m = 1, b = sign(w), the solution is closed and both kinds of level agree.

The authors compute α = Σ d|b||w| / Σ d|b| for every m. That minimizes the objective only where |b| is 0 or 1; the
minimizer in general is Σ dbw / Σ db². Theirs is the default, `alpha="least_squares"` the other. The difference is
large: on Gaussian weights the relative squared error at 3 bits is 0.125 with theirs and 0.047 with the minimizer.
Theirs also shrinks weights that are already quantized, so quantizing twice differs from quantizing once.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from ternarybert.errors import QuantizationError
from ternarybert.quantize.quantized import Quantized, as_units, per_unit
from ternarybert.quantize.ternary import alternate, curvature, optimal_scale, start
from ternarybert.recipe import LAYER, Granularity

# Rounding log₂ at the middle of two exponents would cut at the geometric mean of two levels; shifted by this, it cuts
# at the arithmetic mean, the true nearest level: log₂(3/4) + 1/2.
_LOG_SHIFT = math.log2(0.75) + 0.5
_MAX_BITS = {"linear": 8, "log": 4}  # codes fit int8: at most 127, and at most 2^6


def quantize_laq(
    w: Tensor,
    second_moment: Tensor,
    bits: int,
    granularity: Granularity = LAYER,
    *,
    levels: str = "linear",
    alpha: str = "l1",
    previous: Tensor | None = None,
) -> Quantized:
    """Weights on m-bit levels. Codes are whole multiples of the smallest level; `scale` is that level's value."""
    if levels not in _MAX_BITS or not 1 <= bits <= _MAX_BITS[levels]:
        raise QuantizationError(
            f"LAQ supports 1 to 8 linear or 1 to 4 log bits; got {bits} bits with levels '{levels}'"
        )
    if alpha not in _SCALES:
        raise QuantizationError(f"unknown alpha '{alpha}'; allowed: {', '.join(_SCALES)}")
    units = as_units(w, granularity)
    d = curvature(second_moment, w, granularity)
    magnitude = units.abs()
    b = start(magnitude, w, granularity, previous)
    if bits == 1:  # b = sign(w): the one case without a zero level, solved in one step
        step = optimal_scale(torch.ones_like(b), d, d * magnitude)
        codes = torch.ones_like(b)
    else:
        k = 2 ** (bits - 1) - 1
        largest = k if levels == "linear" else 2 ** (k - 1)  # the code of level 1
        nearest = partial(_linear_codes if levels == "linear" else _log_codes, magnitude, k)
        best = alternate(magnitude, d, b * largest, nearest, partial(_SCALES[alpha], largest=largest))
        codes, step = nearest(best), best / largest
    signed = codes.copysign_(units).to(torch.int8).reshape(w.shape)
    return Quantized(signed, per_unit(step, w, granularity), None, w.dtype)


def _l1_scale(codes: Tensor, d: Tensor, dw: Tensor, *, largest: int) -> Tensor:
    """α = Σ d|b||w| / Σ d|b|: the unit of |b| cancels."""
    return optimal_scale(codes, d, dw)


def least_squares_scale(codes: Tensor, d: Tensor, dw: Tensor, *, largest: int) -> Tensor:
    """α = Σ d|b||w| / Σ db² with |b| = codes / largest, (units, 1); 0 where b is all zero."""
    total = (codes * codes * d).sum(1, keepdim=True)
    return torch.where(total > 0, largest * (codes * dw).sum(1, keepdim=True) / total, 0.0)


_SCALES = {"l1": _l1_scale, "least_squares": least_squares_scale}


def _relative(magnitude: Tensor, alpha: Tensor) -> Tensor:
    """|w|/α, at most 1; 0 where α is 0."""
    return (magnitude * torch.where(alpha > 0, 1 / alpha, 0.0)).clamp_(max=1)


def _linear_codes(magnitude: Tensor, k: int, alpha: Tensor) -> Tensor:
    return _relative(magnitude, alpha).mul_(k).round_()


def _log_codes(magnitude: Tensor, k: int, alpha: Tensor) -> Tensor:
    u = _relative(magnitude, alpha)
    exponent = (u.log2() - _LOG_SHIFT).round_().clamp_(1 - k, 0) + (k - 1)
    return torch.where(u < 2.0**-k, 0.0, exponent.exp2())
