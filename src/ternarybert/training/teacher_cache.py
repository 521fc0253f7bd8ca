"""The teacher's outputs, remembered from one epoch to the next.

The teacher never changes, and on a CPU its forward pass is a fifth of a training step. Hidden states and scores of all
layers are large, so they are kept in half precision (a part in two thousand, far below what eight bits can follow) and
only when all training rows fit into a share of the machine's memory.

Rows are computed in fixed groups of similar length, the first time one of them is needed. What is remembered therefore
does not depend on the order of the batches, and a resumed run computes the same again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from torch.nn import functional
from transformers import PretrainedConfig, PreTrainedModel, TrainingArguments

from ternarybert.recipe import Recipe
from ternarybert.training.batches import LENGTH, Collator
from ternarybert.training.heads import Head

ROW_NUMBER = "row"  # column with the number of a training row
GROUP = 32
USUAL = 128  # tokens; groups of much longer rows are smaller, for scores grow with the square of the length
SHARE = 0.25  # of the machine's memory
_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # version 2 and 1


@dataclass(frozen=True)
class Target:
    """What the losses read of a teacher's outputs."""

    logits: Tensor
    hidden_states: Sequence[Tensor]
    attentions: Sequence[Tensor]


class TeacherMemory:
    """The teacher's outputs for training rows, by number."""

    def __init__(self, teacher: PreTrainedModel, rows: Dataset, collate: Collator, head: Head) -> None:
        self.teacher, self.rows, self.collate, self.head = teacher, rows, collate, head
        self.order = np.argsort(rows[LENGTH], kind="stable")
        self.group = max(1, min(GROUP, GROUP * USUAL**2 // max(rows[LENGTH]) ** 2))
        self.group_of = np.argsort(self.order) // self.group
        self.known: dict[int, tuple[Tensor, Tensor, Tensor]] = {}  # row: logits, (L+1, n, d), (L, N_H, n, n)

    def __call__(self, rows: Tensor, width: int) -> Target:
        """Outputs of these rows as one batch, padded with zeros to `width` tokens."""
        found = [self._recall(row) for row in rows.tolist()]
        _, hidden, scores = found[0]
        all_hidden = hidden.new_zeros((len(hidden), len(found), width, hidden.shape[-1]), dtype=torch.float32)
        all_scores = scores.new_zeros((len(scores), len(found), scores.shape[1], width, width), dtype=torch.float32)
        for i, (_, hidden, scores) in enumerate(found):
            n = hidden.shape[1]
            all_hidden[:, i, :n] = hidden
            all_scores[:, i, :, :n, :n] = scores
        logits = torch.stack([self._padded(logits, width) for logits, _, _ in found])
        return Target(logits, all_hidden.unbind(), all_scores.unbind())

    def fill(self, tell: Callable[[float], None] = lambda _: None) -> None:
        """Ask the teacher about all rows now; `tell` is told how far it is."""
        groups = int(self.group_of.max()) + 1
        for group in range(groups):
            if int(self.order[group * self.group]) not in self.known:
                self._compute(group)
            tell((group + 1) / groups)

    def _padded(self, logits: Tensor, width: int) -> Tensor:
        return functional.pad(logits, (0, width - logits.shape[-1])) if self.head.per_token else logits

    def _recall(self, row: int) -> tuple[Tensor, Tensor, Tensor]:
        if row not in self.known:
            self._compute(int(self.group_of[row]))
        return self.known[row]

    def _compute(self, group: int) -> None:
        members = [int(row) for row in self.order[group * self.group : (group + 1) * self.group]]
        batch = self.collate([self.rows[row] for row in members])
        inputs = {name: value for name, value in batch.items() if name not in (ROW_NUMBER, "labels")}
        with torch.no_grad():
            outputs = self.teacher(**inputs, output_hidden_states=True, output_attentions=True)
        hidden, scores = torch.stack(outputs.hidden_states), torch.stack(outputs.attentions)
        logits = self.head.logits(outputs)
        for i, row in enumerate(members):
            n = int(batch["attention_mask"][i].sum())
            own = logits[i, :, :n].clone() if self.head.per_token else logits[i]
            self.known[row] = own, _half(hidden[:, i, :n]), _half(scores[:, i, :, :n, :n])


def _half(x: Tensor) -> Tensor:
    """A copy in half precision, unless it holds numbers too large for that."""
    half = x.half()
    return x.clone() if bool(half.isinf().any()) else half


def fits(config: PretrainedConfig, lengths: Sequence[int], share: float = SHARE) -> bool:
    """Whether the outputs for rows of these lengths take at most that share of the machine's memory."""
    n = np.asarray(lengths, dtype=np.float64)
    layers, heads, width = config.num_hidden_layers, config.num_attention_heads, config.hidden_size
    needed = 2 * float(((layers + 1) * width * n + layers * heads * n**2).sum())
    return needed <= share * _memory()


def _memory() -> int:
    """Bytes that this machine has, or this container may use."""
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        physical = 8 << 30
    return min([physical, *(limit for limit in map(_limit, _CONTAINER_LIMITS) if limit is not None)])


def _limit(path: str) -> int | None:
    """The number in a file; none where there is no such file, or no limit in it."""
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def remember(
    teacher: PreTrainedModel,
    rows: Dataset,
    collate: Collator,
    args: TrainingArguments,
    recipe: Recipe,
    head: Head,
    known: TeacherMemory | None = None,
) -> TeacherMemory | None:
    """A memory for these rows where it pays, or None; each of several processes has its own.

    Where losses look at padding, the teacher has to see the very batch; with one epoch nothing comes back; a GPU runs
    the teacher faster than its outputs could be copied there. `known` is that of an earlier student on the same rows,
    and pays in any case.
    """
    step = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
    epochs = args.max_steps * step / len(rows) if args.max_steps > 0 else args.num_train_epochs
    wanted = recipe.distill.masked and recipe.distill.needs_teacher and teacher.device.type == "cpu"
    worth = wanted and (known is not None or epochs > 1)
    if not worth or not fits(teacher.config, rows[LENGTH], SHARE / args.world_size):
        return None
    return known or TeacherMemory(teacher, rows, collate, head)
