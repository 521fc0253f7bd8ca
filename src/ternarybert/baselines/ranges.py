"""Activation ranges that are learned: an exponential moving average while training, fixed afterwards.

That is how Q8BERT finds the range of what a layer is fed with: a model that is in use needs no pass over its own
activations to know it. Padding is left out, as everywhere here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ternarybert.quantize import straight_through
from ternarybert.quantize.uniform import value_range
from ternarybert.recipe import TENSOR
from ternarybert.student.activations import Padding

DECAY = 0.99  # of the released code's 0.9999 a short run would only ever see the first batch


class MovingRange(nn.Module):
    """Quantizes activations to `bits` within the range that it has seen; symmetric around zero, or min-max."""

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
        """`x` at its nearest level, cut to the range; the gradient passes straight through.

        Before anything was seen there is no range, and `x` stays as it is.
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
