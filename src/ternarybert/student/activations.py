"""Quantized activations of a student: what range each of them shares, and the straight-through gradient.

| | linear inputs | Q, K | softmax output P | V |
|---|---|---|---|---|
| TENSOR | the whole batch | same | same | same |
| SAMPLE | a sequence | a sequence, all heads | a sequence | a sequence |
| TOKEN | a token | a token and head | a head and query, over its keys | a sequence and head: V is summed over tokens |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ternarybert.quantize.quantized import dequantize
from ternarybert.quantize.ste import straight_through
from ternarybert.quantize.uniform import minmax_levels, symmetric_levels
from ternarybert.recipe import SAMPLE, TOKEN, ActivationScheme, Granularity


@dataclass
class Padding:
    """Which tokens of the running batch are real, (B, n); None when all are. One object for a whole student."""

    mask: Tensor | None = None

    def __call__(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take the mask of a new batch; a hook, because linear layers are not handed the mask by themselves."""
        self.see(kwargs.get("attention_mask", args[1] if len(args) > 1 else None))

    def see(self, attention_mask: Tensor | None) -> None:
        """Remember which tokens are real."""
        mask = None if attention_mask is None else attention_mask.bool()
        self.mask = None if mask is None or bool(mask.all()) else mask


def fake_quantize(
    x: Tensor, scheme: ActivationScheme, bits: int, granularity: Granularity, mask: Tensor | None = None
) -> Tensor:
    """`x` rounded to its levels; the gradient passes straight through. Equal to quantizing and dequantizing."""
    with torch.no_grad():
        if scheme.scheme == "minmax":
            x_hat = dequantize(*minmax_levels(x, bits, granularity, mask, scheme.clip))
        else:
            x_hat = dequantize(*symmetric_levels(x, bits, granularity, mask, scheme.clip), None)
    return straight_through(x, x_hat.to(x.dtype), clip=scheme.clip)


@dataclass
class ActivationQuantizer:
    """Quantizes what one attention block or linear layer is fed with."""

    scheme: ActivationScheme
    bits: int
    padding: Padding
    _seen: tuple[Tensor, Tensor] | None = field(default=None, repr=False)

    def linear_input(self, x: Tensor) -> Tensor:
        """The input of a linear layer. Layers that share this object and are fed the same tensor quantize it once."""
        if self._seen is not None and self._seen[0] is x:
            return self._seen[1]
        mask = self._mask(x, lambda real: real[:, :, None]) if x.ndim == 3 else None
        x_hat = self._quantize(x, mask)
        self._seen = (x, x_hat)
        return x_hat

    def heads(self, x: Tensor) -> Tensor:
        """Queries or keys, (B, N_H, n, d_h)."""
        return self._quantize(x, self._mask(x, lambda real: real[:, None, :, None]))

    def probabilities(self, p: Tensor) -> Tensor:
        """The softmax output, (B, N_H, n, n).

        Padded keys have probability 0. That must not widen a range, and it must stay 0: the lowest level of a min-max
        range is the smallest probability of a real key.
        """
        real = self.padding.mask if self.scheme.masked else None
        if real is None:
            return self._quantize(p, None)
        keys = real[:, None, None, :]
        mask = keys if self.scheme.granularity == TOKEN else keys & real[:, None, :, None]
        return self._quantize(p, mask) * keys

    def values(self, v: Tensor) -> Tensor:
        """V, (B, N_H, n, d_h)."""
        mask = self._mask(v, lambda real: real[:, None, :, None], always=True)
        if self.scheme.granularity != TOKEN:
            return self._quantize(v, mask)
        flat = None if mask is None else mask.expand(-1, v.shape[1], -1, -1).flatten(0, 1)
        return fake_quantize(v.flatten(0, 1), self.scheme, self.bits, SAMPLE, flat).view(v.shape)

    def _quantize(self, x: Tensor, mask: Tensor | None) -> Tensor:
        return fake_quantize(x, self.scheme, self.bits, self.scheme.granularity, mask)

    def _mask(self, x: Tensor, shape: Any, always: bool = False) -> Tensor | None:
        """The padding mask in the shape of `x`; a token's own range needs none."""
        real = self.padding.mask if self.scheme.masked else None
        if real is None or (self.scheme.granularity == TOKEN and not always):
            return None
        mask: Tensor = shape(real)
        return mask

    def __deepcopy__(self, memo: dict[int, Any]) -> ActivationQuantizer:
        """A copy without the remembered tensors, which belong to a graph."""
        padding = memo.setdefault(id(self.padding), Padding())
        return ActivationQuantizer(self.scheme, self.bits, padding)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_seen": None}
