"""The distillation losses as pure functions.

L_trm = Σ_{l=1}^{L+1} MSE(H_l^S, H_l^T) + Σ_{l=1}^{L} MSE(A_l^S, A_l^T) and L_pred = SCE(P^S, P^T); L is their sum.

A batch's loss is the mean of its examples' losses, and an example's MSE is the mean over its own real tokens. So
nothing depends on padding or on what else is in the batch, and k micro-batches of b equal one batch of kb. Without a
mask (`mask=None`) everything is averaged as it stands, padding included, as in the released code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PretrainedConfig

from ternarybert.recipe import Distill

if TYPE_CHECKING:
    from ternarybert.training.heads import Head


@dataclass(frozen=True)
class DistillationOutputs:
    """What the losses read of a model's outputs."""

    logits: Tensor
    hidden_states: Sequence[Tensor]  # embedding output and all layers, each (B, n, d)
    attentions: Sequence[Tensor]  # scores of all layers, each (B, N_H, n, n)


def distillation_losses(
    head: Head[Any],
    student: DistillationOutputs,
    teacher: DistillationOutputs,
    mask: Tensor,
    distill: Distill,
    weights: Mapping[str, float],
    layers: Sequence[int],
) -> dict[str, Tensor]:
    """The terms of L_trm and L_pred whose weight is not 0, without their weights.

    `layers` are the teacher's layers that the student's learn from, counted from 1.
    """
    terms: dict[str, Tensor] = {}
    real = mask if distill.masked else None
    if weights["hidden"]:
        chosen = [teacher.hidden_states[layer] for layer in [0, *layers]]
        terms["hidden"] = loss_hidden(student.hidden_states, chosen, real)
    if weights["attention"]:
        ours, theirs = list(student.attentions), [teacher.attentions[layer - 1] for layer in layers]
        if real is None:
            ours, theirs = ([without_padded_keys(a, mask) for a in scores] for scores in (ours, theirs))
        terms["attention"] = loss_attention(ours, theirs, real)
    if weights["logits"]:
        terms["logits"] = head.loss_pred(student.logits, teacher.logits, real, distill.sce)
    return terms


def teacher_layers(student: PretrainedConfig, teacher: PretrainedConfig, distill: Distill) -> list[int]:
    """The teacher's layers that the student's layers learn from, counted from 1."""
    depth = teacher.num_hidden_layers
    return layer_map(student.num_hidden_layers, depth) if distill.layer_map == "uniform" else list(range(1, depth + 1))


def loss_hidden(student: Sequence[Tensor], teacher: Sequence[Tensor], mask: Tensor | None) -> Tensor:
    """Σ MSE(H_l^S, H_l^T) over the embedding output and all layers; H is (B, n, d), `mask` (B, n)."""
    return torch.stack([mse_tokens(s, t, mask) for s, t in zip(student, teacher, strict=True)]).sum()


def loss_attention(student: Sequence[Tensor], teacher: Sequence[Tensor], mask: Tensor | None) -> Tensor:
    """Σ MSE(A_l^S, A_l^T) over all layers; A is (B, N_H, n, n), before the softmax and without mask values."""
    return torch.stack([mse_pairs(s, t, mask) for s, t in zip(student, teacher, strict=True)]).sum()


def mse_tokens(student: Tensor, teacher: Tensor, mask: Tensor | None) -> Tensor:
    """Mean squared error over an example's real tokens, averaged over the examples."""
    error = functional.mse_loss(student, teacher, reduction="none").mean(-1)  # (B, n)
    if mask is None:
        return error.mean()
    real = mask.to(error.dtype)
    return ((error * real).sum(1) / real.sum(1)).mean()


def mse_pairs(student: Tensor, teacher: Tensor, mask: Tensor | None) -> Tensor:
    """Mean squared error over an example's pairs of real query and real key, averaged over heads and examples."""
    # Scores are the largest tensors. Unlike a mean, a sum needs no tensor of that size in the backward pass.
    error = functional.mse_loss(student, teacher, reduction="none").sum(1) / student.shape[1]  # (B, n, n)
    if mask is None:
        return error.mean()
    real = mask.to(error.dtype)
    over_keys = torch.matmul(error, real[:, :, None])[:, :, 0]  # (B, n)
    return ((over_keys * real).sum(1) / real.sum(1).square()).mean()


def without_padded_keys(scores: Tensor, mask: Tensor) -> Tensor:
    """Scores with 0 for padded keys: what the released code compares, where it zeroes every score up to -100."""
    return scores.masked_fill(~mask.bool()[:, None, None, :], 0.0)


def soft_cross_entropy(student: Tensor, teacher: Tensor, reduction: str = "example") -> Tensor:
    """SCE(P^S, P^T) = -Σ_c softmax(P^T)_c log softmax(P^S)_c, a mean over examples.

    The released code's "element" mean divides by the number of classes as well.
    """
    products = teacher.softmax(-1) * student.log_softmax(-1)
    return -products.mean() if reduction == "element" else -products.sum(-1).mean()


def loss_pred(student: Tensor, teacher: Tensor, *, regression: bool = False, reduction: str = "example") -> Tensor:
    """L_pred: soft cross-entropy of the logits, or their mean squared error for regression."""
    if regression:
        return functional.mse_loss(student, teacher)
    return soft_cross_entropy(student, teacher, reduction)


def loss_labels(logits: Tensor, labels: Tensor, *, regression: bool = False) -> Tensor:
    """The loss on the true labels, which the paper's ablation "-Trm-logits" trains with."""
    if regression:
        return functional.mse_loss(logits.view(-1), labels.view(-1).to(logits.dtype))
    return functional.cross_entropy(logits, labels)


def loss_pred_spans(student: Tensor, teacher: Tensor, mask: Tensor | None, reduction: str = "example") -> Tensor:
    """L_pred = SCE(start) + SCE(end) of logits (B, 2, n), each over the real tokens of a window.

    The released code's "element" mean divides by the number of tokens, which makes L_pred 384 times smaller.
    """
    if mask is not None:
        student, teacher = (without_padded_tokens(logits, mask) for logits in (student, teacher))
    each = -(teacher.softmax(-1) * student.log_softmax(-1)).sum((1, 2))  # (B,)
    if reduction == "element":
        each = each / (student.shape[-1] if mask is None else mask.sum(1))
    return each.mean()


def loss_labels_spans(logits: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Mean of the cross-entropies of start and end as in BERT; logits (B, 2, n), labels (B, 2), -1 where unknown."""
    flat = without_padded_tokens(logits, mask).flatten(0, 1)  # (2B, n)
    known = (labels >= 0).sum().clamp(min=1)  # without any the loss is 0 rather than 0/0
    return functional.cross_entropy(flat, labels.flatten(), ignore_index=-1, reduction="sum") / known


def without_padded_tokens(logits: Tensor, mask: Tensor) -> Tensor:
    """Logits (B, 2, n) that give padded tokens no share in a softmax."""
    logits = logits.float()
    return logits.masked_fill(~mask.bool()[:, None, :], torch.finfo(logits.dtype).min)


def layer_map(student_layers: int, teacher_layers: int) -> list[int]:
    """For each student layer the 1-based teacher layer it learns from, evenly spread, the last from the last."""
    if teacher_layers % student_layers:
        raise ValueError(f"{teacher_layers} teacher layers do not spread evenly over {student_layers} student layers")
    step = teacher_layers // student_layers
    return [step * (layer + 1) for layer in range(student_layers)]
