"""Uniform quantization: equidistant levels over a range, for activations and for 8-bit weights.

Min-max spans [min x, max x] with a float offset, so that skewed activations waste no levels: the paper's choice.
Symmetric spans ±max|x| and keeps zero exact: what the released code uses, and the form of 8-bit weights.

With a mask, ranges ignore padding; padded values are still quantized, clipped to the range. NaN and infinity are
errors, in padding too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ternarybert.errors import QuantizationError
from ternarybert.quantize.quantized import Quantized, as_units, per_unit, require_finite
from ternarybert.recipe import TENSOR, Granularity


def quantize_minmax(
    x: Tensor,
    bits: int = 8,
    granularity: Granularity = TENSOR,
    *,
    mask: Tensor | None = None,
    clip: float | None = None,
) -> Quantized:
    """Q_a(x) = round((x − x_min) / s) · s + x_min with s = (x_max − x_min) / (2^bits − 1); codes are uint8.

    `mask` is boolean and broadcasts against `x`: False is padding. `clip` clips the values to ±clip first.
    """
    codes, scale, offset = minmax_levels(x, bits, granularity, mask, clip)
    return Quantized(codes.to(torch.uint8), scale, offset, x.dtype)


def quantize_symmetric(
    x: Tensor,
    bits: int = 8,
    granularity: Granularity = TENSOR,
    *,
    mask: Tensor | None = None,
    clip: float | None = None,
) -> Quantized:
    """round(x / s) · s with s = max|x| / (2^(bits−1) − 1); codes are int8, zero stays zero."""
    codes, scale = symmetric_levels(x, bits, granularity, mask, clip)
    return Quantized(codes.to(torch.int8), scale, None, x.dtype)


def minmax_levels(
    x: Tensor, bits: int, granularity: Granularity, mask: Tensor | None, clip: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Codes (still floats), scale and offset of min-max quantization."""
    units = as_units(x, granularity)
    levels = 2 ** _checked(bits, mask, clip) - 1
    x_min, x_max = value_range(x, granularity, mask)
    if clip is not None:
        x_min, x_max = x_min.clamp(-clip, clip), x_max.clamp(-clip, clip)
    scale = (x_max - x_min) / levels
    codes = (units - x_min).mul_(_inverse(scale)).round_()
    if mask is not None or clip is not None:  # otherwise no value is outside the range
        codes.clamp_(0, levels)
    return codes.reshape(x.shape), per_unit(scale, x, granularity), per_unit(x_min, x, granularity)


def symmetric_levels(
    x: Tensor, bits: int, granularity: Granularity, mask: Tensor | None, clip: float | None
) -> tuple[Tensor, Tensor]:
    """Codes (still floats) and scale of symmetric quantization."""
    units = as_units(x, granularity)
    largest = 2 ** (_checked(bits, mask, clip) - 1) - 1
    x_min, x_max = value_range(x, granularity, mask)
    magnitude = torch.maximum(x_max, -x_min)
    if clip is not None:
        magnitude = magnitude.clamp(max=clip)
    scale = magnitude / largest
    codes = (units * _inverse(scale)).round_()
    if mask is not None or clip is not None:
        codes.clamp_(-largest, largest)
    return codes.reshape(x.shape), per_unit(scale, x, granularity)


def value_range(x: Tensor, granularity: Granularity, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Smallest and largest real value of each unit, (units, 1); 0 and 0 if everything is padding.

    Two reductions and an addition: torch's joint reduction and its masked copies are many times slower.
    """
    if mask is None:
        units = as_units(x, granularity)
        x_min, x_max = units.amin(1, keepdim=True), units.amax(1, keepdim=True)
    else:
        away = torch.where(mask, 0.0, torch.inf).to(x.device)
        x_min = as_units(x + away, granularity).amin(1, keepdim=True)
        x_max = as_units(x - away, granularity).amax(1, keepdim=True)
        empty = x_min == torch.inf
        x_min, x_max = torch.where(empty, 0.0, x_min), torch.where(empty, 0.0, x_max)
    require_finite(x_max - x_min, "activations")
    return x_min, x_max


def _inverse(scale: Tensor) -> Tensor:
    """1/scale, or 0 for a unit so narrow, or constant, that the inverse would overflow: its codes are then 0."""
    return torch.where(scale >= torch.finfo(scale.dtype).tiny, 1 / scale, 0.0)


def _checked(bits: int, mask: Tensor | None, clip: float | None) -> int:
    if bits not in range(2, 9):
        raise QuantizationError(f"uniform quantization supports 2 to 8 bits, got {bits}")
    if clip is not None and not 0 < clip < torch.inf:
        raise QuantizationError(f"clip must be a positive number, got {clip}")
    if mask is not None and mask.dtype is not torch.bool:
        raise QuantizationError(f"a mask must be boolean, True where values are real; got {mask.dtype}")
    return bits
