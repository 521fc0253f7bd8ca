"""Linear layers of integer codes on a CPU, multiplied by the native kernels: more than twice as fast as floats.

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
from torch import Tensor
from torch.autograd.function import once_differentiable

from ternarybert import _native
from ternarybert.quantize.quantized import dequantize
from ternarybert.student.short import of_inputs, of_weights

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
        and _native.fast_kernel()
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
    error = _native.CError()
    status = _library().tb_multiply(product, _native.asked_kernel(), torch.get_num_threads(), error)
    _native.check(status, error)
    return y


def linear(
    x: tuple[Tensor, Tensor, Tensor],
    w_hat: Tensor,
    weight: Tensor,
    scale: Tensor,
    bias: Tensor | None,
    gradients: torch.dtype = torch.float32,
) -> Tensor:
    """`multiply` with the gradients of x_hat `w_hat`^T + bias, computed in `gradients`; the codes get that of x_hat."""
    y: Tensor = _Linear.apply(*x, w_hat, weight, scale, bias, gradients)  # type: ignore[no-untyped-call]
    return y


class _Linear(torch.autograd.Function):
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
    lib = ctypes.CDLL(_native.library()._name)
    lib.tb_multiply.argtypes = [ctypes.POINTER(CProduct), ctypes.c_char_p, c_int32, ctypes.POINTER(_native.CError)]
    lib.tb_multiply.restype = ctypes.c_int
    return lib
