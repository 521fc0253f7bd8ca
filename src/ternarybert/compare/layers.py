"""Layers of the baselines: `nn.Linear` and `nn.Embedding` whose weights pass through a quantizer of `quantizers.py`.

As in our own student, the full-precision weight keeps its name, is quantized again only when it has changed, and gets
the gradient of the quantized weight.

The inputs of linear layers pass through a `MovingRange` where activations are quantized. As in Q8BERT, the range is an
exponential moving average during training and fixed afterwards, so that inference needs no pass over the activations to
find it. Padding is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ternarybert.compare.quantizers import (
    BLOCK,
    CENTROIDS,
    StoredWeight,
    WeightQuantizer,
    add_noise,
    as_blocks,
    assign,
    draw_blocks,
    k_means,
    means,
    product_parts,
    product_quantize,
)
from ternarybert.quantize import straight_through
from ternarybert.quantize.uniform import value_range
from ternarybert.recipe import TENSOR
from ternarybert.student import products
from ternarybert.student.activations import Padding
from ternarybert.student.layers import counted_version
from ternarybert.student.products import Bf16Gradients

DECAY = 0.99  # with 0.9999, as in the released code, a short run would use little but the first batch


class BaselineWeight(nn.Module):
    """Base class of the baselines' linear layers and embeddings."""

    weight: Tensor
    quantize: WeightQuantizer
    noise: Noise | None
    _cache: tuple[tuple[Any, ...], StoredWeight] | None

    def set_quantizer(self, quantize: WeightQuantizer, noise: Noise | None = None) -> None:
        """Set the quantizer; called once, when the layer is created."""
        self.quantize, self.noise, self._cache = quantize, noise, None

    def stored(self) -> StoredWeight:
        """The weight as it would be stored now, cached until it changes."""
        state = (counted_version(self.weight), self.weight.device, self.weight.dtype)
        if self._cache is None or self._cache[0] != state:
            with torch.no_grad():
                self._cache = (state, self.quantize(self.weight.detach()))
        return self._cache[1]

    def w_tilde(self) -> Tensor:
        """The weight that the forward pass uses."""
        if isinstance(self.quantize, ProductQuantizer) and self.quantize.is_frozen:
            return self.quantize.trained(self.weight)
        if self.training and self.noise is not None:
            return self.noise(self)
        return straight_through(self.weight, self.stored().w_hat)


class BaselineLinear(BaselineWeight, Bf16Gradients, nn.Linear):
    """A linear layer."""

    quantize_input: nn.Module | None

    @classmethod
    def from_linear(
        cls, linear: nn.Linear, quantize: WeightQuantizer, quantize_input: nn.Module | None, noise: Noise | None = None
    ) -> BaselineLinear:
        """Wrap a layer; the parameters are shared."""
        layer = cls(linear.in_features, linear.out_features, bias=linear.bias is not None, device="meta")
        layer.weight, layer.bias = linear.weight, linear.bias
        layer.quantize_input = quantize_input
        layer.set_quantizer(quantize, noise)
        return layer.train(linear.training)

    def forward(self, x: Tensor) -> Tensor:
        """Q_a(x) Q_w(W)ᵀ + b."""
        x = x if self.quantize_input is None else self.quantize_input(x)
        return products.float_linear(x, self.w_tilde(), self.bias, self.gradient_dtype)


class BaselineEmbedding(BaselineWeight, nn.Embedding):
    """A word embedding."""

    @classmethod
    def from_embedding(
        cls, table: nn.Embedding, quantize: WeightQuantizer, noise: Noise | None = None
    ) -> BaselineEmbedding:
        """Wrap an embedding; the table is shared."""
        layer = cls(table.num_embeddings, table.embedding_dim, padding_idx=table.padding_idx, device="meta")
        layer.weight = table.weight
        layer.set_quantizer(quantize, noise)
        return layer.train(table.training)

    def forward(self, ids: Tensor) -> Tensor:
        """Look up the quantized rows of `ids`."""
        return nn.functional.embedding(ids, self.w_tilde(), self.padding_idx)


Noise = Callable[[BaselineWeight], Tensor]


def block_noise(rate: float, block: int, *, proxy: bool) -> Noise:
    """Quant-Noise: quantize a share of the blocks, or zero them (proxy), and leave the others unchanged."""

    def noise(layer: BaselineWeight) -> Tensor:
        w_hat = None if proxy else layer.stored().w_hat
        return add_noise(layer.weight, w_hat, draw_blocks(layer.weight, rate, block))

    return noise


class ProductQuantizer(nn.Module):
    """Product quantization in two phases: k-means on every call and, once frozen, fixed codes with trained centroids.

    A trained centroid is the mean of the weights that share it, so its gradient is the mean of theirs, and the
    optimizer moves centroids by moving weights.
    """

    codes: Tensor
    frozen: Tensor

    def __init__(self, weight: Tensor, centroids: int = CENTROIDS, block: int = BLOCK) -> None:
        super().__init__()
        self.block = block
        self.centroids = min(centroids, weight.numel() // block)
        self.register_buffer("codes", torch.zeros(weight.numel() // block, dtype=torch.int16))
        self.register_buffer("frozen", torch.zeros((), dtype=torch.bool))

    @property
    def is_frozen(self) -> bool:
        """Whether the codes are fixed."""
        return bool(self.frozen)

    def forward(self, w: Tensor) -> StoredWeight:
        """Replace every block by its centroid."""
        if not self.is_frozen:
            return product_quantize(w, self.centroids, self.block)
        return StoredWeight(self.trained(w), product_parts(len(self.codes), self.centroids, self.block))

    def freeze(self, w: Tensor) -> None:
        """Fix the codes at their current values."""
        blocks = as_blocks(w, self.block)
        self.codes.copy_(assign(blocks, k_means(blocks, self.centroids)))
        self.frozen.fill_(True)

    def trained(self, w: Tensor) -> Tensor:
        """Replace each block by the mean of all blocks with its code; differentiable."""
        blocks, codes = w.reshape(-1, self.block), self.codes.long()
        return means(blocks, codes, blocks.new_zeros(self.centroids, self.block))[codes].view_as(w)


def freeze_codes(model: nn.Module) -> None:
    """Fix the codes of all layers; from now on centroids are trained."""
    for layer in model.modules():
        quantize = layer.quantize if isinstance(layer, BaselineWeight) else None
        if isinstance(layer, BaselineWeight) and isinstance(quantize, ProductQuantizer) and not quantize.is_frozen:
            quantize.freeze(layer.weight)
            layer.set_quantizer(quantize, layer.noise)


class MovingRange(nn.Module):
    """Quantizes activations to `bits` within a moving-average range, symmetric around zero or min-max."""

    low: Tensor
    high: Tensor
    seen: Tensor

    def __init__(self, bits: int, padding: Padding, *, symmetric: bool, decay: float = DECAY) -> None:
        super().__init__()
        self.bits, self.symmetric, self.decay = bits, symmetric, decay
        self._padding = padding
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("high", torch.zeros(()))
        self.register_buffer("seen", torch.zeros((), dtype=torch.bool))

    def forward(self, x: Tensor) -> Tensor:
        """Clip `x` to the range and round it to the nearest level, with a straight-through gradient.

        Before the first training batch there is no range, and `x` is returned unchanged.
        """
        if self.training:
            self._observe(x)
        if not bool(self.seen):
            return x
        low, high = self.low, self.high
        with torch.no_grad():
            step = (high - low) / (2**self.bits - (2 if self.symmetric else 1))
            inverse = torch.where(step > 0, 1 / step, 0.0)
            x_hat = ((x.clamp(low, high) - low) * inverse).round() * step + low
        return straight_through(x, x_hat.to(x.dtype))

    def _observe(self, x: Tensor) -> None:
        real = self._padding.mask
        mask = real[:, :, None] if real is not None and x.ndim == 3 else None
        with torch.no_grad():
            low, high = (bound.view(()).to(self.low) for bound in value_range(x.detach(), TENSOR, mask))
            if self.symmetric:
                high = torch.maximum(high, -low)
                low = -high
            if bool(self.seen):
                self.low.lerp_(low, 1 - self.decay)
                self.high.lerp_(high, 1 - self.decay)
            else:
                self.low.copy_(low)
                self.high.copy_(high)
                self.seen.fill_(True)
