"""A student's layers that came from a packed folder.

They are the student's own layers and train like them: the weights of the folder are where training starts. Until then
nothing is derived anew. A quantizer asked about its own result may answer differently in the last bit, or, with more
than three levels, in a code; so a layer remembers the codes and scales it was made from, and gives those for as long as
its weight holds exactly the values that they stand for. That is looked at by value: copies, moves to another device and
weights set from outside need no special care.
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

CODES, SCALE = "weight.codes", "weight.scale"  # what a packed weight is called in the file


class FromFolder(QuantizedWeight):
    """What makes a quantized layer one that came from a folder."""

    coding: Coding  # how its codes are written
    origin: PackedTensor | None  # what it was made from; None once it was trained

    def take(self, codes: Tensor, scale: Tensor) -> Tensor:
        """Remember these as the origin, and give the weights that they stand for."""
        rows, columns = self.weight.shape
        kept = (tensor.cpu().numpy().copy() for tensor in (codes, scale))  # the file may be overwritten
        self.origin = PackedTensor(self.coding.bits, self.coding.levels, self.coding.packing, (rows, columns), *kept)
        return self._dequantized(self.origin).to(codes.device)

    def use_origin(self) -> None:
        """Let the forward pass use the weight as it is, which holds the origin's values. Nothing is copied."""
        self._cache = (self._state, self.weight.detach())

    def untouched(self) -> bool:
        """Whether the weight still holds the values of its origin; if not, the origin is forgotten."""
        if self.origin is not None:
            expected = self._dequantized(self.origin).to(self.weight.device)
            if not torch.equal(self.weight.detach(), expected):
                self.origin = None
        return self.origin is not None

    def quantized(self) -> Quantized:
        """The origin's codes and scales; after training, the quantizer's."""
        if not self.untouched():
            return super().quantized()
        origin, device = cast(PackedTensor, self.origin), self.weight.device
        codes, scale = torch.from_numpy(origin.unpack()), torch.from_numpy(origin.scale)[:, None]
        return Quantized(codes.to(device), scale.to(device), None, self.weight.dtype)

    def packed(self, name: str) -> PackedTensor:
        """The weight as it is now, for a folder; groups of rows are written as one scale a row."""
        if self.untouched():
            return cast(PackedTensor, self.origin)
        quantized, coding = super().quantized(), self.coding
        codes, scale = quantized.codes.cpu().numpy(), float32_array(name, quantized.scale)
        return PackedTensor.pack(codes, scale, bits=coding.bits, levels=coding.levels, packing=coding.packing)

    def _dequantized(self, packed: PackedTensor) -> Tensor:
        return torch.from_numpy(packed.dequantize()).to(self.weight.dtype)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Accept packed weights: Trainer reads its checkpoints, which are packed folders, in this way."""
        codes, scale = (state_dict.pop(prefix + name, None) for name in (CODES, SCALE))
        if codes is not None and scale is not None:
            state_dict[prefix + "weight"] = self.take(codes, scale)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def float32_array(name: str, value: Tensor) -> npt.NDArray[np.float32]:
    """As it goes into a folder: half precision is widened, double precision refused unless nothing is lost."""
    wide = value if value.dtype is torch.float64 else value.float()
    return as_float32(name, wide.detach().cpu().numpy())


class LinearFromFolder(FromFolder, TernaryLinear):
    """A student's linear layer that came from a folder."""


class EmbeddingFromFolder(FromFolder, TernaryEmbedding):
    """A student's word embedding that came from a folder."""

    def forward(self, ids: Tensor) -> Tensor:
        """The quantized rows of `ids`, from the origin while there is one: the batch's rows alone would not ask it."""
        if self.origin is not None:
            self.w_hat()
        return super().forward(ids)


def adopt(layer: QuantizedWeight, coding: Coding) -> FromFolder:
    """Make a student's layer one that comes from a folder, in place."""
    layer.__class__ = LinearFromFolder if isinstance(layer, TernaryLinear) else EmbeddingFromFolder
    adopted = cast(FromFolder, layer)
    adopted.coding, adopted.origin = coding, None
    return adopted


def layers_from_folder(model: nn.Module) -> Iterator[tuple[str, FromFolder]]:
    """The layers that came from a folder, and the names of their weights."""
    for name, layer in quantized_layers(model):
        if isinstance(layer, FromFolder):
            yield f"{name}.weight", layer
