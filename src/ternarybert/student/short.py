"""Gradients of a linear layer multiplied in bfloat16, the forward pass untouched.

Autocast would round what a quantizer has just made; the gradients need less. On a CPU that multiplies bfloat16 the two
products take less than half of their time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


class ShortGradients(nn.Module):
    """A layer that can be told in which type to multiply its gradients."""

    gradients = torch.float32

    @property
    def shortens(self) -> bool:
        """Whether it would heed that."""
        return True


def linear(x: Tensor, w: Tensor, bias: Tensor | None, gradients: torch.dtype) -> Tensor:
    """`nn.functional.linear` with its gradients computed in `gradients`."""
    if gradients is torch.float32:
        return nn.functional.linear(x, w, bias)
    y: Tensor = _Linear.apply(x, w, bias, gradients)  # type: ignore[no-untyped-call]
    return y


def of_inputs(gradient: Tensor, w: Tensor) -> Tensor:
    """The gradient (M, N) of the outputs as that of the inputs, multiplied in its type."""
    return (gradient @ w.to(gradient.dtype)).float()


def of_weights(gradient: Tensor, x: Tensor) -> Tensor:
    """The gradient (M, N) of the outputs as that of the weights, multiplied in its type."""
    return (gradient.T @ x.to(gradient.dtype)).float()


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, gradients: torch.dtype) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.gradients = gradients
        return nn.functional.linear(x, w, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        flat = gradient.reshape(-1, gradient.shape[-1])
        short = flat.to(ctx.gradients)
        of_x = of_inputs(short, w).view(x.shape) if ctx.needs_input_grad[0] else None
        of_w = of_weights(short, x.reshape(-1, x.shape[-1])) if ctx.needs_input_grad[1] else None
        of_bias = flat.sum(0) if ctx.needs_input_grad[2] else None
        return of_x, of_w, of_bias, None
