"""Quantized activations of a student: what range each of them shares, and the straight-through gradient.

| | linear inputs | Q, K | softmax output P | V |
|---|---|---|---|---|
| TENSOR | the whole batch | same | same | same |
| SAMPLE | a sequence | a sequence, all heads | a sequence | a sequence |
| TOKEN | a token | a token and head | a head and query, over its keys | a sequence and head: V is summed over tokens |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ternarybert.quantize.ste import straight_through
from ternarybert.quantize.uniform import minmax_levels, symmetric_levels
from ternarybert.recipe import SAMPLE, TOKEN, ActivationScheme, Granularity
from ternarybert.student.integer_eval import Codes, quantize


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
    x: Tensor,
    scheme: ActivationScheme,
    bits: int,
    granularity: Granularity,
    mask: Tensor | None = None,
    *,
    kept: Tensor | None = None,
) -> Tensor:
    """`x` rounded to its levels, and to 0 where not `kept`; the gradient passes straight through, everywhere.

    Equal to quantizing and dequantizing.
    """
    with torch.no_grad():
        if scheme.scheme == "minmax":
            codes, scale, offset = minmax_levels(x, bits, granularity, mask, scheme.clip)
            x_hat = codes.mul_(scale).add_(offset)  # in place: nobody else has the codes
        else:
            codes, scale = symmetric_levels(x, bits, granularity, mask, scheme.clip)
            x_hat = codes.mul_(scale)
        if kept is not None:
            x_hat.mul_(kept)
    return straight_through(x, x_hat.to(x.dtype), clip=scheme.clip)


def quantize_through(
    x: Tensor, scheme: ActivationScheme, bits: int, granularity: Granularity, mask: Tensor | None = None
) -> Codes:
    """Codes of `x`, through which the gradient passes straight."""
    codes, scale, offset = quantize(x, scheme, bits, granularity, mask)
    return Codes(straight_through(x, codes, clip=scheme.clip), scale, offset)


@dataclass
class ActivationQuantizer:
    """Quantizes what one attention block or linear layer is fed with.

    Each kind of activation comes in two forms: as quantized values with a gradient, for training, and as integer codes
    for evaluation, with the same ranges.
    """

    scheme: ActivationScheme
    bits: int
    padding: Padding
    _seen: tuple[Tensor, Any] | None = field(default=None, repr=False)

    def linear_input(self, x: Tensor) -> Tensor:
        """The input of a linear layer. Layers that share this object and are fed the same tensor quantize it once."""
        x_hat: Tensor = self._once(x, fake_quantize)
        return x_hat

    def linear_input_codes(self, x: Tensor) -> Codes:
        """The same as codes. A gradient that they are given is taken for that of x_hat, and goes where that goes."""
        codes: Codes = self._once(x, quantize_through)
        return codes

    def heads(self, x: Tensor) -> Tensor:
        """Queries or keys, (B, N_H, n, d_h)."""
        return fake_quantize(x, *self._ranges(self._tokens()))

    def heads_codes(self, x: Tensor) -> Codes:
        """The same as codes."""
        return quantize(x, *self._ranges(self._tokens()))

    def probabilities(self, p: Tensor) -> Tensor:
        """The softmax output, (B, N_H, n, n).

        Padded keys have probability 0. That must not widen a range, and it must stay 0: the lowest level of a min-max
        range is the smallest probability of a real key.
        """
        return fake_quantize(p, *self._ranges(self._keys_and_queries()), kept=self.real_keys())

    def probabilities_codes(self, p: Tensor) -> Codes:
        """The same as codes; those of padded keys mean nothing."""
        return quantize(p, *self._ranges(self._keys_and_queries()))

    def values(self, v: Tensor) -> Tensor:
        """V, (B, N_H, n, d_h)."""
        if self.scheme.granularity != TOKEN:
            return fake_quantize(v, *self._ranges(self._tokens()))
        return fake_quantize(v.flatten(0, 1), *self._head_ranges(v)).view(v.shape)

    def values_codes(self, v: Tensor) -> Codes:
        """The same as codes."""
        if self.scheme.granularity != TOKEN:
            return quantize(v, *self._ranges(self._tokens()))
        codes, scale, offset = quantize(v.flatten(0, 1), *self._head_ranges(v))
        return Codes(codes.view(v.shape), *(one.view(*v.shape[:2], 1, 1) for one in (scale, offset)))

    def real_keys(self) -> Tensor | None:
        """Which keys count, (B, 1, 1, n); None when all do."""
        real = self._real()
        return None if real is None else real[:, None, None, :]

    def _once(self, x: Tensor, how: Callable[..., Any]) -> Any:
        if self._seen is None or self._seen[0] is not x:
            real = self._real() if x.ndim == 3 else None
            mask = None if real is None or self.scheme.granularity == TOKEN else real[:, :, None]
            self._seen = (x, how(x, *self._ranges(mask)))
        return self._seen[1]

    def _ranges(self, mask: Tensor | None) -> tuple[ActivationScheme, int, Granularity, Tensor | None]:
        return self.scheme, self.bits, self.scheme.granularity, mask

    def _head_ranges(self, v: Tensor) -> tuple[ActivationScheme, int, Granularity, Tensor | None]:
        """One range a sequence and head, for V with the two in one axis."""
        real = self._real()
        mask = None if real is None else real[:, None, :, None].expand(-1, v.shape[1], -1, -1).flatten(0, 1)
        return self.scheme, self.bits, SAMPLE, mask

    def _tokens(self) -> Tensor | None:
        """Which tokens count for the range of Q, K or V; a token's own range needs no mask."""
        real = self._real()
        return None if real is None or self.scheme.granularity == TOKEN else real[:, None, :, None]

    def _keys_and_queries(self) -> Tensor | None:
        keys, real = self.real_keys(), self._real()
        return (
            keys if keys is None or real is None or self.scheme.granularity == TOKEN else keys & real[:, None, :, None]
        )

    def _real(self) -> Tensor | None:
        return self.padding.mask if self.scheme.masked else None

    def __deepcopy__(self, memo: dict[int, Any]) -> ActivationQuantizer:
        """A copy without the remembered tensors, which belong to a graph."""
        padding = memo.setdefault(id(self.padding), Padding())
        return ActivationQuantizer(self.scheme, self.bits, padding)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_seen": None}
