"""The result of every quantizer, and how a tensor is divided into the units that share one scale.

Every granularity is a view of the tensor as a matrix of units, one per row, each with its own scale. `as_units` makes
that matrix; quantizers work on all of its rows at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ternarybert.errors import NonFiniteError, QuantizationError
from ternarybert.recipe import Granularity


@dataclass(frozen=True)
class Quantized:
    """Integer codes that stand for `scale * codes + offset`.

    `scale` and `offset` (None if there is none) broadcast against `codes`, which has the shape of the input.
    """

    codes: Tensor  # int8; min-max: uint8
    scale: Tensor
    offset: Tensor | None
    dtype: torch.dtype  # of the input

    def dequantize(self) -> Tensor:
        """The quantized tensor, in the input's shape and dtype."""
        return dequantize(self.codes.to(self.scale.dtype), self.scale, self.offset).to(self.dtype)


def dequantize(codes: Tensor, scale: Tensor, offset: Tensor | None) -> Tensor:
    """`scale * codes + offset`, from codes that are already floats."""
    x_hat = codes * scale
    return x_hat if offset is None else x_hat.add_(offset)


def as_units(x: Tensor, granularity: Granularity) -> Tensor:
    """`x` as a matrix (units, elements of a unit), in float32, or in float64 if `x` is.

    Detached: no gradient flows through codes and scales; `straight_through` defines where it goes.
    """
    if x.numel() == 0 or x.ndim == 0:
        raise QuantizationError(f"cannot quantize a tensor of shape {tuple(x.shape)}: it is empty")
    if not x.is_floating_point():
        raise QuantizationError(f"only floating-point tensors can be quantized, got {x.dtype}")
    x = x.detach() if x.dtype is torch.float64 else x.detach().float()
    return x.reshape(_count(x, granularity), -1)


def _count(x: Tensor, granularity: Granularity) -> int:
    """How many units `x` has. A vector is one row."""
    rows = x.numel() // x.shape[-1]
    match granularity.kind:
        case "layer" | "tensor":
            return 1
        case "row" | "token":
            return rows
        case "sample":
            return x.shape[0]
        case _:  # group
            if rows % granularity.rows:
                raise QuantizationError(f"{rows} rows do not divide into groups of {granularity.rows}")
            return rows // granularity.rows


def per_unit(values: Tensor, x: Tensor, granularity: Granularity) -> Tensor:
    """One number per unit, (units, 1), in a shape that broadcasts against `x`."""
    match granularity.kind:
        case "layer" | "tensor":
            return values.reshape([1] * x.ndim)
        case "sample":
            return values.reshape([-1] + [1] * (x.ndim - 1))
        case "group":
            values = values.repeat_interleave(granularity.rows)
    return values.reshape([*x.shape[:-1], 1])


def require_finite(statistic: Tensor, what: str) -> None:
    """Raise if a sum or a range over the data is not finite, which it is not if any of the data is not."""
    if not bool(statistic.isfinite().all()):
        raise NonFiniteError(f"cannot quantize {what}: it contains NaN, infinity or values too large to add up")
