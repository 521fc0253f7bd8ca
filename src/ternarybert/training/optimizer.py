"""BertAdam: Adam with decoupled weight decay and without bias correction, as the paper trains.

    m ← β₁m + (1−β₁)g,  v ← β₂v + (1−β₂)g²,  w ← w − η(m / (√v + ε) + λw)

Torch's own fused AdamW computes exactly this when it believes that it has already taken very many steps: its bias
corrections 1 − βᵗ are then 1. So that is what it is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR

LONG_AGO = 1e9  # β₂ = 0.999: 0.999^1e9 underflows to 0, and in float32 1e9 + 1 is 1e9 again
MAX_NORM = 1.0


class BertAdam(AdamW):
    """`clip_tensors` cuts the gradient norm of every tensor by itself at 1, as the released code does."""

    def __init__(
        self,
        params: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float = 2e-5,
        weight_decay: float = 0.01,
        *,
        clip_tensors: bool = False,
    ) -> None:
        super().__init__(params, lr=lr, betas=(0.9, 0.999), eps=1e-6, weight_decay=weight_decay, fused=True)
        self.clip_tensors = clip_tensors

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One update of every parameter that has a gradient."""
        for parameter in (p for group in self.param_groups for p in group["params"] if p.grad is not None):
            if self.clip_tensors:
                clip_norm(parameter.grad)
            state = self.state[parameter]
            if not state:
                state["step"] = torch.tensor(LONG_AGO, device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        loss: float | None = super().step(closure)
        return loss


def clip_norm(gradient: Tensor) -> None:
    """G ← g · min(1, 1 / (‖g‖₂ + 1e-6))."""
    gradient.mul_((MAX_NORM / (gradient.norm() + 1e-6)).clamp(max=1.0))


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Weight decay for everything but biases and LayerNorm."""
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (free if name.endswith("bias") or "LayerNorm" in name or "layer_norm" in name else decayed).append(
                parameter
            )
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": free, "weight_decay": 0.0}]


def linear_schedule(
    optimizer: Optimizer, steps: int, warmup: float, progress: Callable[[int], float] | None = None
) -> LambdaLR:
    """The learning rate rises linearly over the first share `warmup` of the steps, then falls linearly to 0.

    `progress` says how far the run is at a step where that is not the share of the steps.
    """

    def factor(step: int) -> float:
        done = step / max(1, steps) if progress is None else progress(step)
        if done < warmup:
            return done / warmup
        return max(0.0, (1.0 - done) / (1.0 - warmup))

    return LambdaLR(optimizer, factor)
