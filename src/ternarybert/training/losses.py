"""The distillation losses as pure functions.

L_trm = Σ_{l=1}^{L+1} MSE(H_l^S, H_l^T) + Σ_{l=1}^{L} MSE(A_l^S, A_l^T) and L_pred = SCE(P^S, P^T); L is their sum.

A batch's loss is the mean of its examples' losses, and an example's MSE is the mean over its own real tokens. So
nothing depends on padding or on what else is in the batch, and k micro-batches of b equal one batch of kb. Without a
mask (`mask=None`) everything is averaged as it stands, padding included, as in the released code.

Two forms of L_trm do not depend on the scale of the model: squared errors divided by the teacher's variance in that
layer, and for attention the divergence of the maps, KL(softmax(A_l^T) ‖ softmax(A_l^S)).
"""

from __future__ import annotations

import math
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
    from ternarybert.training.variances import TeacherVariances


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
    variances: TeacherVariances | None = None,
    labels: Tensor | None = None,
) -> dict[str, Tensor]:
    """The terms of L_trm and L_pred whose weight is not 0, without their weights.

    `layers` are the teacher's layers that the student's learn from, counted from 1; with their `variances` squared
    errors are relative. Some heads see in the `labels` which tokens count.
    """
    terms: dict[str, Tensor] = {}
    real = mask if distill.masked else None
    if weights["hidden"]:
        chosen = [teacher.hidden_states[layer] for layer in [0, *layers]]
        terms["hidden"] = loss_hidden(
            student.hidden_states, chosen, real, None if variances is None else variances.hidden
        )
    if weights["attention"]:
        ours, theirs = list(student.attentions), [teacher.attentions[layer - 1] for layer in layers]
        terms["attention"] = _attention_term(ours, theirs, mask, distill, variances)
    if weights["logits"]:
        counted = head.counted(real, labels)
        terms["logits"] = head.loss_pred(student.logits, teacher.logits, counted, distill.sce)
        if variances is not None and getattr(head.task, "regression", False):
            terms["logits"] = terms["logits"] / variances.logits
    return terms


def _attention_term(
    student: list[Tensor], teacher: list[Tensor], mask: Tensor, distill: Distill, variances: TeacherVariances | None
) -> Tensor:
    real = mask if distill.masked else None
    if distill.attention_loss == "maps":
        return loss_maps(student, teacher, mask, real)
    if real is None:
        student, teacher = ([without_padded_keys(a, mask) for a in scores] for scores in (student, teacher))
    return loss_attention(student, teacher, real, None if variances is None else variances.scores)


def teacher_layers(student: PretrainedConfig, teacher: PretrainedConfig, distill: Distill) -> list[int]:
    """The teacher's layers that the student's layers learn from, counted from 1."""
    depth = teacher.num_hidden_layers
    return layer_map(student.num_hidden_layers, depth) if distill.layer_map == "uniform" else list(range(1, depth + 1))


def loss_hidden(
    student: Sequence[Tensor],
    teacher: Sequence[Tensor],
    mask: Tensor | None,
    variances: Sequence[float] | None = None,
) -> Tensor:
    """Σ MSE(H_l^S, H_l^T) over the embedding output and all layers; H is (B, n, d), `mask` (B, n).

    With `variances`, each is divided by that of its layer.
    """
    return _sum([mse_tokens(s, t, mask) for s, t in zip(student, teacher, strict=True)], variances)


def loss_attention(
    student: Sequence[Tensor],
    teacher: Sequence[Tensor],
    mask: Tensor | None,
    variances: Sequence[float] | None = None,
) -> Tensor:
    """Σ MSE(A_l^S, A_l^T) over all layers; A is (B, N_H, n, n), before the softmax and without mask values."""
    return _sum([mse_pairs(s, t, mask) for s, t in zip(student, teacher, strict=True)], variances)


def loss_maps(student: Sequence[Tensor], teacher: Sequence[Tensor], keys: Tensor, queries: Tensor | None) -> Tensor:
    """Σ KL(softmax(A_l^T) ‖ softmax(A_l^S)) over all layers; A as above, `keys` and `queries` (B, n) mark real tokens.

    Without `queries` those of padding count too, but no map ever has a share of padded keys.
    """
    return _sum([kl_maps(s, t, keys, queries) for s, t in zip(student, teacher, strict=True)], None)


def _sum(terms: list[Tensor], divisors: Sequence[float] | None) -> Tensor:
    if divisors is not None:
        terms = [term / divisor for term, divisor in zip(terms, divisors, strict=True)]
    return torch.stack(terms).sum()


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


def kl_maps(student: Tensor, teacher: Tensor, keys: Tensor, queries: Tensor | None) -> Tensor:
    """KL divergence of the attention of an example's real queries to its real keys, a mean over queries and heads."""
    padded = ~keys.bool()[:, None, None, :]
    ours, theirs = (scores.masked_fill(padded, -math.inf).log_softmax(-1) for scores in (student, teacher))
    difference = (theirs - ours).masked_fill(padded, 0.0)  # ∞ − ∞ for padded keys, which have no share
    each = (theirs.exp() * difference).sum(-1).mean(1)  # (B, n)
    if queries is None:
        return each.mean()
    real = queries.to(each.dtype)
    return ((each * real).sum(1) / real.sum(1)).mean()


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


def loss_pred_words(student: Tensor, teacher: Tensor, mask: Tensor | None, reduction: str = "example") -> Tensor:
    """L_pred = SCE of logits (B, C, n), a mean over a row's words, which `mask` (B, n) marks, and over the rows."""
    each = -(teacher.softmax(1) * student.log_softmax(1)).sum(1)  # (B, n)
    if reduction == "element":
        each = each / student.shape[1]
    return each.mean() if mask is None else _mean_of_rows(each, mask)


def loss_labels_words(logits: Tensor, labels: Tensor, ignored: int) -> Tensor:
    """Cross-entropy of logits (B, C, n) and labels (B, n), a mean over a row's words and over the rows."""
    each = functional.cross_entropy(logits, labels, ignore_index=ignored, reduction="none")
    return _mean_of_rows(each, labels != ignored)


def _mean_of_rows(values: Tensor, mask: Tensor) -> Tensor:
    """The mean over what `mask` marks in each row, and over the rows; a row without any counts as 0."""
    real = mask.to(values.dtype)
    return ((values * real).sum(1) / real.sum(1).clamp(min=1)).mean()


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
