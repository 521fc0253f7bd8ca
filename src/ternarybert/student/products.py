"""Gradients of a bf16_linear layer multiplied in bfloat16, the forward pass untouched.

Autocast would round what a quantizer has just made; the gradients need less. On a CPU that multiplies bfloat16 the two
products take less than half of their time.

MERGED-DOCS:
Linear layers of integer codes on a CPU, multiplied by the native kernels: more than twice as fast as floats.

The result is `numerics.linear`'s to the bit, so evaluations may use it as they like. Training uses it for the forward
pass; the gradients are products of floats as ever, with the quantized weights and with the quantized inputs. On a CPU
that multiplies bfloat16 these two products may be asked for in it, which takes less than half of their time.

"""

from __future__ import annotations

import ctypes
from ctypes import Structure, c_int32, c_void_p
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ternarybert import native
from ternarybert.quantize.quantized import dequantize

LARGEST = 65536  # inputs or outputs that the kernels take


class CProduct(Structure):
    """`tb_product`."""

    _fields_ = [
        *((name, c_int32) for name in ("rows", "inputs", "outputs", "scales")),
        *((name, c_void_p) for name in ("codes", "x_scale", "x_offset", "weight", "scale", "bias", "y")),
    ]


def fits(x: Tensor, weight: Tensor) -> bool:
    """Whether the kernels can multiply such an input and weight, and faster than torch."""
    return (
        not torch.compiler.is_compiling()
        and x.device.type == weight.device.type == "cpu"
        and x.dtype is torch.float32
        and not torch.is_autocast_enabled("cpu")
        and x.numel() > 0
        and max(weight.shape) <= LARGEST
        and native.fast_kernel()
    )


def multiply(x: tuple[Tensor, Tensor, Tensor], weight: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    """`numerics.linear`: x are float codes (.., K) with their scale and offset, the weight int8 codes (N, K)."""
    *rows, inputs = x[0].shape
    codes = x[0].contiguous()
    x_scale, x_offset = (one.expand(*rows, 1).contiguous() for one in x[1:])
    weight, scale = weight.contiguous(), scale.reshape(-1).float().contiguous()
    bias = None if bias is None else bias.float().contiguous()
    y = codes.new_empty(*rows, len(weight))
    places = [None if a is None else a.data_ptr() for a in (codes, x_scale, x_offset, weight, scale, bias, y)]
    product = CProduct(codes.numel() // inputs, inputs, len(weight), len(scale), *places)
    error = native.CError()
    status = _library().tb_multiply(product, native.asked_kernel(), torch.get_num_threads(), error)
    native.check(status, error)
    return y


def integer_linear(
    x: tuple[Tensor, Tensor, Tensor],
    w_hat: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None,
    gradients: torch.dtype = torch.float32,
) -> Tensor:
    """`multiply` with the gradients of x_hat `w_hat`^T + bias, computed in `gradients`; the codes get that of x_hat."""
    y: Tensor = _IntegerLinear.apply(*x, w_hat, weight, scale, bias, gradients)  # type: ignore[no-untyped-call]
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
        gradients: torch.dtype,
    ) -> Tensor:
        ctx.save_for_backward(codes, x_scale, x_offset, w_hat)
        ctx.gradients = gradients
        return multiply((codes, x_scale, x_offset), weight, scale, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        codes, x_scale, x_offset, w_hat = ctx.saved_tensors
        flat = gradient.reshape(-1, gradient.shape[-1])
        short = flat.to(ctx.gradients)
        of_x = of_w = of_bias = None
        if ctx.needs_input_grad[0]:
            of_x = of_inputs(short, w_hat).view(codes.shape)
        if ctx.needs_input_grad[3]:
            x_hat = dequantize(codes, x_scale, x_offset).view(-1, codes.shape[-1])
            of_w = of_weights(short, x_hat)
        if ctx.needs_input_grad[6]:
            of_bias = flat.sum(0)
        return of_x, None, None, of_w, None, None, of_bias, None


@cache
def _library() -> ctypes.CDLL:
    lib = ctypes.CDLL(native.library()._name)
    lib.tb_multiply.argtypes = [ctypes.POINTER(CProduct), ctypes.c_char_p, c_int32, ctypes.POINTER(native.CError)]
    lib.tb_multiply.restype = ctypes.c_int
    return lib


class ShortGradients(nn.Module):
    """A layer that can be told in which type to multiply its gradients."""

    gradients = torch.float32

    @property
    def shortens(self) -> bool:
        """Whether it would heed that."""
        return True


def bf16_linear(x: Tensor, w: Tensor, bias: Tensor | None, gradients: torch.dtype) -> Tensor:
    """`nn.functional.linear` with its gradients computed in `gradients`."""
    if gradients is torch.float32:
        return nn.functional.linear(x, w, bias)
    y: Tensor = _Bf16Linear.apply(x, w, bias, gradients)  # type: ignore[no-untyped-call]
    return y


def of_inputs(gradient: Tensor, w: Tensor) -> Tensor:
    """The gradient (M, N) of the outputs as that of the inputs, multiplied in its type."""
    return (gradient @ w.to(gradient.dtype)).float()


def of_weights(gradient: Tensor, x: Tensor) -> Tensor:
    """The gradient (M, N) of the outputs as that of the weights, multiplied in its type."""
    return (gradient.T @ x.to(gradient.dtype)).float()


class _Bf16Linear(torch.autograd.Function):
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
