"""Quantized activations of a student: which values share a range, and the straight-through gradient.

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
from ternarybert.student.integer_eval import TensorCodes, quantize


@dataclass
class Padding:
    """Which tokens of the current batch are real, (B, n); None if all are. A student has one such object."""

    mask: Tensor | None = None

    def __call__(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Forward pre-hook of the encoder: takes the mask of a new batch, which linear layers are not passed."""
        self.set_mask(kwargs.get("attention_mask", args[1] if len(args) > 1 else None))

    def of_layers(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Forward pre-hook of the stack of layers: the same from their mask, (B, 1, n, n), 0 where a key is real.

        Some libraries, such as sentence-transformers, call an encoder's `forward` directly, which runs no hook of it.
        """
        given = kwargs.get("attention_mask", args[1] if len(args) > 1 else None)
        if given is None or given.ndim == 4:
            self.set_mask(None if given is None else given[:, 0, 0] == 0)

    def set_mask(self, attention_mask: Tensor | None) -> None:
        """Set which tokens are real, from transformers' attention mask."""
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
    """`x` quantized and dequantized, and 0 where not `kept`; the gradient passes straight through everywhere."""
    with torch.no_grad():
        if scheme.scheme == "minmax":
            codes, scale, offset = minmax_levels(x, bits, granularity, mask, scheme.clip)
            x_hat = codes.mul_(scale).add_(offset)  # in place: the codes are not used again
        else:
            codes, scale = symmetric_levels(x, bits, granularity, mask, scheme.clip)
            x_hat = codes.mul_(scale)
        if kept is not None:
            x_hat.mul_(kept)
    return straight_through(x, x_hat.to(x.dtype), clip=scheme.clip)


def quantize_straight_through(
    x: Tensor, scheme: ActivationScheme, bits: int, granularity: Granularity, mask: Tensor | None = None
) -> TensorCodes:
    """Codes of `x`; the gradient passes straight through them."""
    codes, scale, offset = quantize(x, scheme, bits, granularity, mask)
    return TensorCodes(straight_through(x, codes, clip=scheme.clip), scale, offset)


@dataclass
class ActivationQuantizer:
    """Quantizes the inputs of one attention block or linear layer.

    Each kind of activation has two forms with the same ranges: quantized values with a gradient, for training, and
    integer codes, for evaluation.
    """

    scheme: ActivationScheme
    bits: int
    padding: Padding
    _last: tuple[Tensor, Any] | None = field(default=None, repr=False)

    def linear_input(self, x: Tensor) -> Tensor:
        """The input of a linear layer. Layers that share this object and have the same input quantize it once."""
        x_hat: Tensor = self._once(x, fake_quantize)
        return x_hat

    def linear_input_codes(self, x: Tensor) -> TensorCodes:
        """The same as codes. Their gradient is that of x_hat and is passed on as such."""
        codes: TensorCodes = self._once(x, quantize_straight_through)
        return codes

    def heads(self, x: Tensor) -> Tensor:
        """Queries or keys, (B, N_H, n, d_h)."""
        return fake_quantize(x, *self._ranges(self._tokens()))

    def heads_codes(self, x: Tensor) -> TensorCodes:
        """The same as codes."""
        return quantize(x, *self._ranges(self._tokens()))

    def probabilities(self, p: Tensor) -> Tensor:
        """The softmax output, (B, N_H, n, n).

        Padded keys have probability 0. They must not widen a range, and they must stay 0: the lowest level of a min-max
        range is the smallest probability of a real key.
        """
        return fake_quantize(p, *self._ranges(self._keys_and_queries()), kept=self.real_keys())

    def probabilities_codes(self, p: Tensor) -> TensorCodes:
        """The same as codes; those of padded keys are not used."""
        return quantize(p, *self._ranges(self._keys_and_queries()))

    def values(self, v: Tensor) -> Tensor:
        """V, (B, N_H, n, d_h)."""
        if self.scheme.granularity != TOKEN:
            return fake_quantize(v, *self._ranges(self._tokens()))
        return fake_quantize(v.flatten(0, 1), *self._head_ranges(v)).view(v.shape)

    def values_codes(self, v: Tensor) -> TensorCodes:
        """The same as codes."""
        if self.scheme.granularity != TOKEN:
            return quantize(v, *self._ranges(self._tokens()))
        codes, scale, offset = quantize(v.flatten(0, 1), *self._head_ranges(v))
        return TensorCodes(codes.view(v.shape), *(one.view(*v.shape[:2], 1, 1) for one in (scale, offset)))

    def real_keys(self) -> Tensor | None:
        """Which keys are real, (B, 1, 1, n); None if all are."""
        real = self._real()
        return None if real is None else real[:, None, None, :]

    def _once(self, x: Tensor, how: Callable[..., Any]) -> Any:
        if self._last is None or self._last[0] is not x:
            real = self._real() if x.ndim == 3 else None
            mask = None if real is None or self.scheme.granularity == TOKEN else real[:, :, None]
            self._last = (x, how(x, *self._ranges(mask)))
        return self._last[1]

    def _ranges(self, mask: Tensor | None) -> tuple[ActivationScheme, int, Granularity, Tensor | None]:
        return self.scheme, self.bits, self.scheme.granularity, mask

    def _head_ranges(self, v: Tensor) -> tuple[ActivationScheme, int, Granularity, Tensor | None]:
        """One range per sequence and head, for V with the two in one axis."""
        real = self._real()
        mask = None if real is None else real[:, None, :, None].expand(-1, v.shape[1], -1, -1).flatten(0, 1)
        return self.scheme, self.bits, SAMPLE, mask

    def _tokens(self) -> Tensor | None:
        """Which tokens count for the range of Q, K or V; ranges per token need no mask."""
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
        """A copy without the cached tensors, which belong to a graph."""
        padding = memo.setdefault(id(self.padding), Padding())
        return ActivationQuantizer(self.scheme, self.bits, padding)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}
