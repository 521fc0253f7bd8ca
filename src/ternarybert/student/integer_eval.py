"""The student's evaluation in integers, as numerics.py defines it: the same bits as every engine.

Training needs gradients and speed, and uses torch's own operations on the quantized values. Evaluation (no gradients,
not in training mode, float32) multiplies integer codes, which is exact, and computes the functions between the products
as numerics.py does. So the reported score is the score of the model that runs from the packed folder. Each function
here has the name of the one in numerics.py that it equals.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import activations

from ternarybert import numerics
from ternarybert.quantize.uniform import minmax_levels, symmetric_levels
from ternarybert.recipe import ActivationScheme, Granularity
from ternarybert.student import products

_EXACT_INTEGERS = 2**24  # float32 holds every integer up to this one


class TensorCodes(NamedTuple):
    """Activations as `numerics.ActivationCodes`: x_hat = scale * codes + offset. The codes are whole floats from 0."""

    codes: Tensor
    scale: Tensor
    offset: Tensor


def evaluating(module: nn.Module, x: Tensor) -> bool:
    """Whether this forward pass is an evaluation, and not training."""
    return not (
        module.training
        or torch.is_grad_enabled()
        or x.dtype is not torch.float32
        or torch.is_autocast_enabled(x.device.type)
    )


def quantize(
    x: Tensor, scheme: ActivationScheme, bits: int, granularity: Granularity, mask: Tensor | None = None
) -> TensorCodes:
    """`numerics.quantize`, with the ranges of the student's quantizer."""
    if scheme.scheme == "minmax":
        return TensorCodes(*minmax_levels(x, bits, granularity, mask, scheme.clip))
    half = 2 ** (bits - 1)
    codes, scale = symmetric_levels(x, bits, granularity, mask, scheme.clip)
    return TensorCodes(codes + half, scale, scale * -half)


def product(a: Tensor, b: Tensor, largest: int) -> Tensor:
    """Matrix product of integers, rounded once; `largest` is an upper bound of the sums."""
    return a @ b if largest < _EXACT_INTEGERS else (a.double() @ b.double()).float()


@dataclass(frozen=True)
class IntegerWeight:
    """A quantized weight in integers; what only some products need is computed on first use."""

    codes: Tensor  # int8, (N, K)
    scale: Tensor  # (N, 1) or (1, 1)

    @classmethod
    def from_codes(cls, codes: Tensor, scale: Tensor) -> IntegerWeight:
        """The weight with these codes, of any dtype, and scales."""
        return cls(codes.to(torch.int8), scale)

    @cached_property
    def floats(self) -> Tensor:
        """The codes as floats."""
        return self.codes.float()

    @cached_property
    def sums(self) -> Tensor:
        """The sum of the codes of each row."""
        return self.floats.sum(-1)

    @cached_property
    def largest(self) -> int:
        """An upper bound of the sums in a product with 8-bit codes."""
        return 255 * int(self.floats.abs().max()) * self.codes.shape[-1]


def linear(x: TensorCodes, weight: IntegerWeight, bias: Tensor | None) -> Tensor:
    """`numerics.linear`."""
    if products.kernels_apply(x.codes, weight.codes):
        return products.multiply(x, weight.codes, weight.scale, bias)
    dot = product(x.codes, weight.floats.T, weight.largest)
    y = weight.scale.reshape(-1) * (x.scale * dot + x.offset * weight.sums)
    return y if bias is None else y + bias


def scores(q: TensorCodes, k: TensorCodes, scaling: float) -> Tensor:
    """`numerics.scores`."""
    d = q.codes.shape[-1]
    dots = product(q.codes, k.codes.transpose(-1, -2), 255 * 255 * d)
    q_scale, q_offset = q.scale * _f32(scaling), q.offset * _f32(scaling)
    k_total = k.scale * k.codes.sum(-1, keepdim=True) + d * k.offset
    k_scale, k_offset, k_total = (a.transpose(-1, -2) for a in (k.scale, k.offset, k_total))
    q_sums = q.codes.sum(-1, keepdim=True)
    return ((q_scale * dots) * k_scale + (q_scale * q_sums) * k_offset) + q_offset * k_total


def context(p: TensorCodes, v: TensorCodes, real: Tensor | None) -> Tensor:
    """`numerics.context`; keys that are not `real`, (B, 1, 1, m), are left out."""
    p_codes, v_codes = p.codes, v.codes
    count: Tensor | int = v_codes.shape[-2]
    if real is not None:
        p_codes, v_codes, count = p_codes * real, v_codes * real.transpose(-1, -2), real.sum(-1, keepdim=True)
    dots = product(p_codes, v_codes, 255 * 255 * v_codes.shape[-2])
    v_total = v.scale * v_codes.sum(-2, keepdim=True) + count * v.offset
    return ((p.scale * v.scale) * dots + (p.scale * v.offset) * p_codes.sum(-1, keepdim=True)) + p.offset * v_total


def softmax(x: Tensor, attention_mask: Tensor | None) -> Tensor:
    """`numerics.softmax`; masked keys, which transformers marks with the smallest float, get exactly 0."""
    if attention_mask is None:
        e = exp(x - x.amax(-1, keepdim=True))
    else:
        real = attention_mask > torch.finfo(x.dtype).min / 2
        e = exp(x - torch.where(real, x, -torch.inf).amax(-1, keepdim=True).clamp(min=torch.finfo(x.dtype).min)) * real
    return e * (1 / e.double().sum(-1, keepdim=True)).float()


def exp(x: Tensor) -> Tensor:
    """`numerics.exp`; inputs above 0 belong to masked keys, and their results are not used."""
    x = x.clamp(float(numerics.EXP_LOWEST), 0)
    n = (x * _f32(numerics.EXP_LOG2E)).round_()
    r = (x - n * _f32(numerics.EXP_LN2_HIGH)) - n * _f32(numerics.EXP_LN2_LOW)
    q = torch.full_like(r, float(numerics.EXP_POWERS[4]))
    for k in range(3, -1, -1):
        q = q * r + float(numerics.EXP_POWERS[k])
    y = ((q * r) * r + r) + 1
    return (y.view(torch.int32) + (n.int() << 23)).view(torch.float32)


def gelu(x: Tensor, kind: str) -> Tensor:
    """`numerics.gelu`."""
    u = x.abs().clamp_(max=float(numerics.GELU_LAST)) * _f32(1 / numerics.GELU_WIDTH)
    piece = u.int().long()
    f = u - piece
    powers = torch.from_numpy(numerics.GELU_PIECES[kind]).to(x.device).T.contiguous()
    h = powers[6].take(piece)
    for k in range(5, -1, -1):
        h = h.mul_(f).add_(powers[k].take(piece))
    return x.clamp(min=0) - h


class EvalLayerNorm(nn.LayerNorm):
    """LayerNorm that computes `numerics.layer_norm` in evaluation."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalize over the last axis."""
        if not evaluating(self, x):
            return super().forward(x)
        n = x.shape[-1]
        d = x - (x.double().sum(-1, keepdim=True) / n).float()
        variance = d.double().square().sum(-1, keepdim=True) / n
        return (d * (1 / (variance + self.eps).sqrt()).float()) * self.weight + self.bias


class EvalGelu(nn.Module):
    """GELU that computes `numerics.gelu` in evaluation."""

    def __init__(self, function: nn.Module, kind: str) -> None:
        super().__init__()
        self.function, self.kind = function, kind

    def forward(self, x: Tensor) -> Tensor:
        """The activation, elementwise."""
        return gelu(x, self.kind) if evaluating(self, x) else self.function(x)


_GELUS: dict[type, str] = {
    activations.GELUActivation: "gelu",
    activations.NewGELUActivation: "gelu_tanh",
    activations.GELUTanh: "gelu_tanh",
}


def use_integer_evaluation(encoder: nn.Module) -> None:
    """Make the LayerNorms and GELUs of an encoder evaluate as numerics.py does; quantized layers already do."""
    for name, module in list(encoder.named_modules()):
        if type(module) is nn.LayerNorm:
            module.__class__ = EvalLayerNorm
        elif type(module) in _GELUS:
            encoder.set_submodule(name, EvalGelu(module, _GELUS[type(module)]))


def _f32(value: float | np.float32) -> float:
    """A constant rounded to float32, as a Python number: torch rounds some constants and not others."""
    return float(np.float32(value))
