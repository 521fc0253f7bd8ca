"""An exponential moving average of a model's parameters, which is evaluated and exported in their place.

Weights near a threshold flip between two codes until the end of a run; their average does not. After step t

    w̄ ← w̄ + (w − w̄) / min(t, n),  n = `schedule.average` times the steps of the run

so it is the plain mean of the first n steps, and then forgets with a time constant of n.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class AverageWeights:
    """The averages of all trained parameters of a model."""

    def __init__(self, model: nn.Module, share: float) -> None:
        self.share = share
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.averages = [parameter.detach().clone() for parameter in self.parameters]

    @torch.no_grad()
    def update(self, step: int, steps: int) -> None:
        """After step `step` of `steps`."""
        weight = 1.0 / max(1.0, min(step, self.share * steps))
        for average, parameter in zip(self.averages, self.parameters, strict=True):
            average.lerp_(parameter, weight)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within, the model has the averages as its parameters."""
        own = [parameter.detach().clone() for parameter in self.parameters]
        self._set(self.averages)
        try:
            yield
        finally:
            self._set(own)

    def state(self) -> list[Tensor]:
        """What a checkpoint keeps."""
        return self.averages

    @torch.no_grad()
    def load(self, state: list[Tensor]) -> None:
        """Continue from a checkpoint."""
        for average, saved in zip(self.averages, state, strict=True):
            average.copy_(saved)

    @torch.no_grad()
    def _set(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self.parameters, values, strict=True):
            parameter.copy_(value)  # which the quantized layers notice
