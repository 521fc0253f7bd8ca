"""BertAdam: Adam with decoupled weight decay and without bias correction, as the paper trains.

    m ← β₁m + (1−β₁)g,  v ← β₂v + (1−β₂)g²,  w ← w − η(m / (√v + ε) + λw)

Torch's fused AdamW computes exactly this after very many steps: its bias corrections 1 − βᵗ are then 1. So its step
counter starts at a very large number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from ternarybert.recipe import Recipe, Schedule
from ternarybert.student import QuantizedWeight, quantized_layers
from ternarybert.student.layers import ALPHA

LOSS_AWARE = ("lat", "laq")  # methods that read the optimizer's second moments
MANY_STEPS = 1e9  # β₂ = 0.999: 0.999^1e9 underflows to 0, and in float32 1e9 + 1 is 1e9 again
MAX_NORM = 1.0


class BertAdam(AdamW):
    """`clip_tensors` clips the gradient norm of each tensor separately at 1, as the released code does."""

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
                state["step"] = torch.tensor(MANY_STEPS, device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        loss: float | None = super().step(closure)
        return loss


def clip_norm(gradient: Tensor) -> None:
    """G ← g · min(1, 1 / (‖g‖₂ + 1e-6))."""
    gradient.mul_((MAX_NORM / (gradient.norm() + 1e-6)).clamp(max=1.0))


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Weight decay for everything but biases, LayerNorm and learned scales."""
    decayed: list[nn.Parameter] = []
    free: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            is_free = name.endswith(("bias", f".{ALPHA}")) or "LayerNorm" in name or "layer_norm" in name
            (free if is_free else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": free, "weight_decay": 0.0}]


def make_bert_adam(model: nn.Module, schedule: Schedule) -> Optimizer:
    """The paper's optimizer, for distillation."""
    groups = parameter_groups(model, schedule.weight_decay)
    return BertAdam(groups, lr=schedule.learning_rate, clip_tensors=schedule.gradient_clip == "tensor")


def make_adamw(model: nn.Module, schedule: Schedule) -> Optimizer:
    """AdamW with bias correction, for training on labels.

    Without the correction the first steps are three times too large for a new head: MiniLM on MRPC ended at 71 %
    accuracy.
    """
    return AdamW(parameter_groups(model, schedule.weight_decay), lr=schedule.learning_rate, eps=1e-8, fused=True)


OPTIMIZERS: dict[str, Callable[[nn.Module, Schedule], Optimizer]] = {"bertadam": make_bert_adam, "adamw": make_adamw}


def learning_rate_factor(progress: float, schedule: Schedule) -> float:
    """The learning rate after the share `progress` of a run, relative to its peak: warm-up, decay and tail."""
    warmup, tail_start = schedule.warmup, 1.0 - schedule.tail
    if progress < warmup:
        return progress / warmup
    if not schedule.tail:
        return _decay((1.0 - progress) / (1.0 - warmup), schedule.decay)
    if progress < tail_start:
        left = _decay((tail_start - progress) / (tail_start - warmup), schedule.decay)
        return schedule.tail_rate + (1.0 - schedule.tail_rate) * left
    return schedule.tail_rate * _decay((1.0 - progress) / schedule.tail, schedule.decay)


def _decay(left: float, shape: str) -> float:
    """From 1 to 0 as the share `left` of the time does, in a line or in half a period of a cosine."""
    left = max(0.0, left)
    return left if shape == "linear" else 0.5 - 0.5 * math.cos(math.pi * left)


def read_second_moments(student: nn.Module, optimizer: Optimizer, recipe: Recipe) -> None:
    """Give the student's layers access to the optimizer's second moments of their own weights, for LAT and LAQ."""
    if recipe.weight.method not in LOSS_AWARE and recipe.embedding.method not in LOSS_AWARE:
        return
    for _, layer in quantized_layers(student):
        layer.second_moment = partial(_second_moment, optimizer, layer)


def _second_moment(optimizer: Optimizer, layer: QuantizedWeight) -> Tensor | None:
    # Not `state[...]`: that would make an empty entry, which the optimizer takes for an initialized one.
    moment: Tensor | None = optimizer.state.get(layer.weight, {}).get("exp_avg_sq")
    return moment
