"""Ternary weights whose scale α is learned by gradient (LSQ): ŵ = α · round(clip(w / α, −1, 1)).

TWN and LAT compute α from the weights, so a scale follows its weights. Here α is a parameter of its own, one for each
layer, row or group of rows, and starts as TWN's. Codes are the nearest ones: the threshold is α/2. With rounding taken
for the identity, the derivative by α is

    ∂ŵᵢ/∂α = bᵢ − wᵢ/α  where |wᵢ| < α,  else bᵢ

A sum of n such terms is about √n times as large as the gradient of one weight, so it is multiplied by 1/√n. (Adam
divides by the gradient's size anyway; the factor matters to its ε and to clipping of the norm.) The gradient of w is
that of every method here, ∂L/∂ŵ (Algorithm 1); LSQ itself stops it where |wᵢ| ≥ α, and half of the weights that are
not 0 would then never move.

An α that gets below 0 counts as 0: all codes are then the signs of the weights, and its gradient can lead it back.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ternarybert.errors import QuantizationError
from ternarybert.quantize.quantized import Quantized, as_units, per_unit, require_finite
from ternarybert.quantize.ternary import ternarize_twn
from ternarybert.recipe import LAYER, Granularity


def start_scale(w: Tensor, granularity: Granularity = LAYER) -> Tensor:
    """TWN's α for each unit, (units, 1): what a learned scale starts from."""
    units = as_units(w, granularity)
    return ternarize_twn(units, Granularity("row")).scale


def ternarize_learned(w: Tensor, alpha: Tensor, granularity: Granularity = LAYER) -> Quantized:
    """The nearest ternary weights for the scales `alpha`, (units, 1)."""
    units = as_units(w, granularity)
    if alpha.shape != (len(units), 1):
        raise QuantizationError(f"{len(units)} units need as many scales; got {tuple(alpha.shape)}")
    require_finite(units.sum(), "weights")
    require_finite(alpha, "with this scale")
    scale = alpha.detach().to(units.dtype).clamp(min=0)
    codes = nearest_codes(units, scale).to(torch.int8).reshape(w.shape)
    return Quantized(codes, per_unit(scale, w, granularity), None, w.dtype)


def nearest_codes(w: Tensor, alpha: Tensor) -> Tensor:
    """The b in {-1, 0, 1} that is nearest to w/α; where α is 0, the sign of w."""
    return (w / alpha).nan_to_num_(nan=0.0).clamp_(-1, 1).round_()


def straight_through_scaled(w: Tensor, alpha: Tensor, w_hat: Tensor, units: int, *, clip: float | None) -> Tensor:
    """`w_hat` in the forward pass; backward, the gradients of w and of α.

    `alpha` broadcasts against `w`; `units` is how many weights share a scale. Where |w| ≥ clip there is no gradient.
    """
    w_tilde: Tensor = _StraightThroughScaled.apply(w, alpha, w_hat.detach(), units, clip)  # type: ignore[no-untyped-call]
    return w_tilde


class _StraightThroughScaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, w: Tensor, alpha: Tensor, w_hat: Tensor, units: int, clip: float | None) -> Tensor:
        ctx.save_for_backward(w, alpha)
        ctx.units, ctx.clip = units, clip
        return w_hat.view_as(w_hat)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        w, alpha = ctx.saved_tensors
        of_w = gradient
        if ctx.clip is not None:
            of_w = gradient.masked_fill(w.abs() >= ctx.clip, 0.0)
            w = w.clamp(-ctx.clip, ctx.clip)
        of_alpha = None
        if ctx.needs_input_grad[1]:
            scale = alpha.clamp(min=0)
            relative = (w / scale).nan_to_num_(nan=0.0)
            codes = relative.clamp(-1, 1).round_()
            slope = torch.where(relative.abs() < 1, codes - relative, codes)
            of_alpha = (gradient * slope).sum_to_size(alpha.shape) * ctx.units**-0.5
        return of_w, of_alpha, None, None, None
