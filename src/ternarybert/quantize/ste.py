"""Straight-through estimators: rounding has no useful gradient, so the backward pass goes around it.

Algorithm 1 computes the gradient of the loss with respect to the quantized weight and applies it to the
full-precision weight. The released code also clips weights and activations to ±2.5 and passes no gradient where it has
clipped; that is the `clip` here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, x_hat: Tensor, clip: float | None) -> Tensor:
        ctx.clip = clip
        if clip is not None:
            ctx.save_for_backward(x)
        return x_hat.view_as(x_hat)  # a new tensor object: a returned input would keep its own history

    @staticmethod
    def backward(ctx: FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = gradients
        clip = ctx.clip  # type: ignore[attr-defined]
        if clip is not None:
            (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
            gradient = gradient.masked_fill(x.abs() >= clip, 0.0)
        return gradient, None, None


def straight_through(x: Tensor, x_hat: Tensor, *, clip: float | None = None) -> Tensor:
    """`x_hat` in the forward pass; backward, its gradient goes to `x` unchanged, or zeroed where |x| ≥ clip."""
    x_tilde: Tensor = _StraightThrough.apply(x, x_hat.detach(), clip)  # type: ignore[no-untyped-call]
    return x_tilde
