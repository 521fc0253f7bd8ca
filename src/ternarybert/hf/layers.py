"""A student's layers loaded from a packed folder.

They are ordinary layers of a student and can be trained further from the weights of the folder. Until then nothing is
quantized again: a quantizer applied to its own result may differ in the last bit or, with more than three levels, in a
code. So a layer keeps the codes and scales that it was loaded from, and returns those as long as its weight has exactly
their values. The weights are compared by value, so copies, moves to another device and weights set from outside work.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ternarybert.packed import PackedTensor
from ternarybert.packed.codec import Coding
from ternarybert.packed.tensor import as_float32
from ternarybert.quantize import Quantized
from ternarybert.student import QuantizedWeight, TernaryEmbedding, TernaryLinear, quantized_layers

CODES, SCALE = "weight.codes", "weight.scale"  # the names of a packed weight in the file


class FromFolder(QuantizedWeight):
    """Mixin of a quantized layer that was loaded from a folder."""

    coding: Coding  # how its codes are stored
    origin: PackedTensor | None  # what it was loaded from; None after training

    def set_origin(self, codes: Tensor, scale: Tensor) -> Tensor:
        """Keep these as the origin, and return the weights that they represent."""
        rows, columns = self.weight.shape
        copies = (tensor.cpu().numpy().copy() for tensor in (codes, scale))  # the file may be overwritten
        self.origin = PackedTensor(self.coding.bits, self.coding.levels, self.coding.packing, (rows, columns), *copies)
        return self._dequantized(self.origin).to(codes.device)

    def use_origin(self) -> None:
        """Make the forward pass use the weight itself, which has the origin's values, without a copy."""
        self._cache = (self._state, self.weight.detach())

    def is_unchanged(self) -> bool:
        """Whether the weight still has the values of its origin; if not, the origin is dropped."""
        if self.origin is not None:
            expected = self._dequantized(self.origin).to(self.weight.device)
            if not torch.equal(self.weight.detach(), expected):
                self.origin = None
        return self.origin is not None

    def quantized(self) -> Quantized:
        """The origin's codes and scales or, after training, the quantizer's."""
        if not self.is_unchanged():
            return super().quantized()
        origin, device = cast(PackedTensor, self.origin), self.weight.device
        codes, scale = torch.from_numpy(origin.unpack()), torch.from_numpy(origin.scale)[:, None]
        return Quantized(codes.to(device), scale.to(device), None, self.weight.dtype)

    def packed(self, name: str) -> PackedTensor:
        """The current weight, packed; groups of rows are stored as one scale per row."""
        if self.is_unchanged():
            return cast(PackedTensor, self.origin)
        quantized, coding = super().quantized(), self.coding
        codes, scale = quantized.codes.cpu().numpy(), float32_array(name, quantized.scale)
        return PackedTensor.pack(codes, scale, bits=coding.bits, levels=coding.levels, packing=coding.packing)

    def _dequantized(self, packed: PackedTensor) -> Tensor:
        return torch.from_numpy(packed.dequantize()).to(self.weight.dtype)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Accept packed weights: Trainer loads its checkpoints, which are packed folders, this way."""
        codes, scale = (state_dict.pop(prefix + name, None) for name in (CODES, SCALE))
        if codes is not None and scale is not None:
            state_dict[prefix + "weight"] = self.set_origin(codes, scale)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def float32_array(name: str, value: Tensor) -> npt.NDArray[np.float32]:
    """A tensor as float32 for a folder: float16 is widened, float64 is refused if it would be rounded."""
    wide = value if value.dtype is torch.float64 else value.float()
    return as_float32(name, wide.detach().cpu().numpy())


class LinearFromFolder(FromFolder, TernaryLinear):
    """A student's linear layer that was loaded from a folder."""


class EmbeddingFromFolder(FromFolder, TernaryEmbedding):
    """A student's word embedding that was loaded from a folder."""

    def forward(self, ids: Tensor) -> Tensor:
        """The quantized rows of `ids`, from the origin if there is one; the base class would quantize them again."""
        if self.origin is not None:
            self.w_hat()
        return super().forward(ids)


def convert_layer(layer: QuantizedWeight, coding: Coding) -> FromFolder:
    """Turn a student's layer, in place, into one that can be loaded from a folder."""
    layer.__class__ = LinearFromFolder if isinstance(layer, TernaryLinear) else EmbeddingFromFolder
    converted = cast(FromFolder, layer)
    converted.coding, converted.origin = coding, None
    return converted


def layers_from_folder(model: nn.Module) -> Iterator[tuple[str, FromFolder]]:
    """The layers that were loaded from a folder, and the names of their weights."""
    for name, layer in quantized_layers(model):
        if isinstance(layer, FromFolder):
            yield f"{name}.weight", layer
