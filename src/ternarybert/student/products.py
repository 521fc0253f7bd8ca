"""Products of linear layers in training on a CPU: forward in integers, gradients in bfloat16 if wanted.

The forward pass of a quantized layer multiplies integer codes with the native kernels, more than twice as fast as torch
multiplies floats. The result equals `numerics.linear` bit for bit, so evaluation uses it too. The two products of the
backward pass are products of floats, with the quantized weights and with the quantized inputs. They tolerate bfloat16,
which takes less than half the time on a CPU that multiplies it; autocast would instead round the activations before
they are quantized.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ternarybert import native
from ternarybert.quantize.quantized import dequantize

MAX_SIZE = 65536  # inputs or outputs of a layer that the kernels accept


class Bf16Gradients(nn.Module):
    """A layer whose gradients can be computed in bfloat16 while its forward pass stays as it is."""

    gradient_dtype = torch.float32  # set to bfloat16 to use it

    @property
    def supports_bf16_gradients(self) -> bool:
        """Whether the layer uses `gradient_dtype`."""
        return True


def kernels_apply(x: Tensor, weight: Tensor) -> bool:
    """Whether the native kernels can multiply this input and weight, and do so faster than torch."""
    return (
        not torch.compiler.is_compiling()
        and x.device.type == weight.device.type == "cpu"
        and x.dtype is torch.float32
        and not torch.is_autocast_enabled("cpu")
        and x.numel() > 0
        and max(weight.shape) <= MAX_SIZE
        and native.has_fast_kernel()
    )


def multiply(x: tuple[Tensor, Tensor, Tensor], weight: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """`numerics.linear`: x are float codes (.., K) with their scale and offset, the weight is int8 codes (N, K)."""
    *rows, inputs = x[0].shape
    codes = x[0].contiguous()
    x_scale, x_offset = (one.expand(*rows, 1).contiguous() for one in x[1:])
    weight, scale = weight.contiguous(), scale.reshape(-1).float().contiguous()
    bias = None if bias is None else bias.float().contiguous()
    y = codes.new_empty(*rows, len(weight))
    pointers = [None if a is None else a.data_ptr() for a in (codes, x_scale, x_offset, weight, scale, bias, y)]
    product = native.CProduct(codes.numel() // inputs, inputs, len(weight), len(scale), *pointers)
    error, kernel = native.CError(), native.choose_kernel().encode()
    native.check(native.library().tb_multiply(product, kernel, torch.get_num_threads(), error), error)
    return y


def integer_linear(
    x: tuple[Tensor, Tensor, Tensor],
    w_hat: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None,
    gradient_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """`multiply` with the gradients of x_hat `w_hat`^T + bias; the gradient of x_hat is returned for the codes."""
    y: Tensor = _IntegerLinear.apply(*x, w_hat, weight, scale, bias, gradient_dtype)  # type: ignore[no-untyped-call]
    return y


def float_linear(x: Tensor, w: Tensor, bias: Tensor | None, gradient_dtype: torch.dtype) -> Tensor:
    """`nn.functional.linear` with its gradients computed in `gradient_dtype`."""
    if gradient_dtype is torch.float32:
        return nn.functional.linear(x, w, bias)
    y: Tensor = _FloatLinear.apply(x, w, bias, gradient_dtype)  # type: ignore[no-untyped-call]
    return y


class _IntegerLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        codes: Tensor,
        x_scale: Tensor,
        x_offset: Tensor,
        w_hat: Tensor,
        weight: Tensor,
        scale: Tensor,
        bias: Tensor | None,
        gradient_dtype: torch.dtype,
    ) -> Tensor:
        ctx.save_for_backward(codes, x_scale, x_offset, w_hat)
        ctx.gradient_dtype = gradient_dtype
        return multiply((codes, x_scale, x_offset), weight, scale, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        codes, x_scale, x_offset, w_hat = ctx.saved_tensors
        flat = gradient.reshape(-1, gradient.shape[-1])
        narrow = flat.to(ctx.gradient_dtype)
        of_x = of_w = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = _input_gradient(narrow, w_hat).view(codes.shape)
        if ctx.needs_input_grad[3]:
            x_hat = dequantize(codes, x_scale, x_offset).view(-1, codes.shape[-1])
            of_w = _weight_gradient(narrow, x_hat)
        if ctx.needs_input_grad[6]:
            of_bias = flat.sum(0)
        return of_x, None, None, of_w, None, None, of_bias, None


class _FloatLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, bias: Tensor | None, gradient_dtype: torch.dtype) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.gradient_dtype = gradient_dtype
        return nn.functional.linear(x, w, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, w = ctx.saved_tensors
        flat = gradient.reshape(-1, gradient.shape[-1])
        narrow = flat.to(ctx.gradient_dtype)
        of_x = _input_gradient(narrow, w).view(x.shape) if ctx.needs_input_grad[0] else None
        of_w = _weight_gradient(narrow, x.reshape(-1, x.shape[-1])) if ctx.needs_input_grad[1] else None
        of_bias = flat.sum(0) if ctx.needs_input_grad[2] else None
        return of_x, of_w, of_bias, None


def _input_gradient(gradient: Tensor, w: Tensor) -> Tensor:
    """The gradient of the inputs from that of the outputs, (M, N), multiplied in the latter's dtype."""
    return (gradient @ w.to(gradient.dtype)).float()


def _weight_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    """The gradient of the weights from that of the outputs, (M, N), multiplied in the latter's dtype."""
    return (gradient.T @ x.to(gradient.dtype)).float()
