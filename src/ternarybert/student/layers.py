"""A student's layers: `nn.Linear` and `nn.Embedding` whose weights pass through a quantizer.

They keep the full-precision weight under its Hugging Face name. The weight is quantized again only when it has changed,
which torch counts in the tensor's version: once per optimizer step, however many micro-batches it has, and once for a
whole evaluation. Torch's fused optimizers do not count, so a hook does, from the first quantized layer on. The
gradient with respect to the quantized weight goes to the full-precision one (Algorithm 1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from ternarybert import native
from ternarybert.quantize import (
    Quantized,
    quantize_laq,
    quantize_symmetric,
    straight_through,
    ternarize_lat,
    ternarize_twn,
)
from ternarybert.quantize.quantized import dequantize
from ternarybert.recipe import ROW, WeightScheme
from ternarybert.student import integer_eval, products
from ternarybert.student.activations import ActivationQuantizer
from ternarybert.student.products import Bf16Gradients


@cache
def _count_fused_updates() -> None:
    """Have fused optimizers count updates of our weights, or layers would use stale ones; others count anyway.

    Layers do not know their optimizer, so the hook is for all of this process, and only set when a weight is counted.
    It leaves everybody else's parameters alone.
    """
    register_optimizer_step_post_hook(_count_update)


# The weights whose updates are counted, by id: tensors compare element by element.
_COUNTED: WeakValueDictionary[int, Tensor] = WeakValueDictionary()


def counted_version(weight: Tensor) -> int:
    """How often a weight has changed; from now on updates by fused optimizers are counted too."""
    _count_fused_updates()
    _COUNTED[id(weight)] = weight
    return weight._version


def _count_update(optimizer: Optimizer, *_: Any) -> None:
    for group in optimizer.param_groups:
        if group.get("fused"):
            for parameter in group["params"]:
                counted = _COUNTED.get(id(parameter))
                if counted is not None and counted is parameter:
                    increment_version(counted)


SecondMoment = Callable[[], Tensor | None]  # the optimizer's, for LAT and LAQ; None before the first step


def quantize_weight(w: Tensor, scheme: WeightScheme, bits: int, second_moment: Tensor | None = None) -> Quantized:
    """Q_w: the weight, quantized by the method of the scheme."""
    if scheme.clip is not None:
        w = w.clamp(-scheme.clip, scheme.clip)
    if scheme.method == "twn":
        return ternarize_twn(w, scheme.granularity, exact=scheme.exact)
    if scheme.method == "symmetric":
        return quantize_symmetric(w, bits, scheme.granularity)
    v = torch.zeros_like(w) if second_moment is None else second_moment
    if scheme.method == "lat":
        return ternarize_lat(w, v, scheme.granularity, exact=scheme.exact)
    return quantize_laq(w, v, bits, scheme.granularity, levels=scheme.levels, alpha=scheme.alpha)


class QuantizedWeight(nn.Module):
    """Base of the quantized linear layer and the quantized embedding."""

    weight: Tensor
    scheme: WeightScheme
    bits: int
    second_moment: SecondMoment
    _cache: tuple[tuple[Any, ...], Tensor] | None
    _integers: tuple[tuple[Any, ...], integer_eval.IntegerWeight] | None

    def set_scheme(self, scheme: WeightScheme, bits: int) -> None:
        """Set how the weight is quantized; called once, when the layer is made."""
        self.scheme, self.bits, self._cache, self._integers = scheme, bits, None, None
        self.second_moment = _no_second_moment

    def quantized(self) -> Quantized:
        """Codes and scales of the current weight: what the forward pass uses and what is exported."""
        with torch.no_grad():
            return quantize_weight(self.weight.detach(), self.scheme, self.bits, self.second_moment())

    def w_hat(self) -> Tensor:
        """The quantized weight, cached until the weight changes."""
        if self._cache is None or not self.is_current:
            weight = self.integers()
            w_hat = dequantize(weight.codes.to(weight.scale.dtype), weight.scale, None)
            self._cache = (self._state, w_hat.to(self.weight.dtype))
        return self._cache[1]

    def integers(self) -> integer_eval.IntegerWeight:
        """The weight's codes and scales, cached until it changes."""
        if self._integers is None or self._integers[0] != self._state:
            quantized = self.quantized()
            self._integers = (self._state, integer_eval.IntegerWeight.from_codes(quantized.codes, quantized.scale))
        return self._integers[1]

    @property
    def is_current(self) -> bool:
        """Whether the cached quantized weight is that of the current weight."""
        return self._cache is not None and self._cache[0] == self._state

    @property
    def _state(self) -> tuple[Any, ...]:
        """What the quantized weight depends on; `model.bfloat16()` changes it too."""
        return counted_version(self.weight), self.weight.device, self.weight.dtype


def _no_second_moment() -> None:
    return None


class TernaryLinear(QuantizedWeight, Bf16Gradients, nn.Linear):
    """A linear layer with a quantized weight and, if it has a quantizer, quantized inputs."""

    quantizer: ActivationQuantizer | None

    @classmethod
    def from_linear(
        cls, linear: nn.Linear, scheme: WeightScheme, bits: int, quantizer: ActivationQuantizer | None
    ) -> TernaryLinear:
        """The same layer, sharing its parameters."""
        layer = cls(linear.in_features, linear.out_features, bias=linear.bias is not None, device="meta")
        layer.weight, layer.bias = linear.weight, linear.bias
        layer.quantizer = quantizer
        layer.set_scheme(scheme, bits)
        return layer.train(linear.training)

    @property
    def supports_bf16_gradients(self) -> bool:
        """True if only the weight is quantized, or if native kernels multiply the codes in training."""
        return self.bits != 32 and (self.quantizer is None or native.has_fast_kernel())

    def forward(self, x: Tensor) -> Tensor:
        """Q_a(x) Q_w(W)ᵀ + b."""
        if self.quantizer is not None and self.bits != 32 and integer_eval.evaluating(self, x):
            return integer_eval.linear(self.quantizer.linear_input_codes(x), self.integers(), self.bias)
        if self.bits == 32:
            x = x if self.quantizer is None else self.quantizer.linear_input(x)
            return nn.functional.linear(x, self.weight, self.bias)
        w = straight_through(self.weight, self.w_hat(), clip=self.scheme.clip)
        if self.quantizer is None:
            return products.float_linear(x, w, self.bias, self.gradient_dtype)
        if products.kernels_apply(x, w):
            codes, weight = self.quantizer.linear_input_codes(x), self.integers()
            return products.integer_linear(codes, w, weight.codes, weight.scale, self.bias, self.gradient_dtype)
        return nn.functional.linear(self.quantizer.linear_input(x), w, self.bias)


class TernaryEmbedding(QuantizedWeight, nn.Embedding):
    """A word embedding with quantized rows."""

    @classmethod
    def from_embedding(cls, embedding: nn.Embedding, scheme: WeightScheme, bits: int) -> TernaryEmbedding:
        """The same embedding, sharing its table."""
        layer = cls(embedding.num_embeddings, embedding.embedding_dim, padding_idx=embedding.padding_idx, device="meta")
        layer.weight = embedding.weight
        layer.set_scheme(scheme, bits)
        return layer.train(embedding.training)

    def forward(self, ids: Tensor) -> Tensor:
        """The quantized rows of `ids`. With one scale per row, only the rows in the batch are quantized."""
        rows = nn.functional.embedding(ids, self.weight, self.padding_idx)
        if self.is_current or self.scheme.granularity != ROW:
            rows_hat = self.w_hat()[ids]
        else:
            v = self.second_moment()
            flat = None if v is None else v[ids.flatten()]
            with torch.no_grad():
                rows_hat = quantize_weight(rows.detach().flatten(0, -2), self.scheme, self.bits, flat).dequantize()
        return straight_through(rows, rows_hat.view(rows.shape), clip=self.scheme.clip)
