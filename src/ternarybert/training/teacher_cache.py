"""A cache of the teacher's outputs for the training rows, kept from one epoch to the next.

The teacher never changes, and on a CPU its forward pass is a fifth of a training step. Hidden states and attention
scores of all layers are large, so they are kept in half precision (a relative error of 1/2000, far below what eight
bits can represent) and only when all training rows fit into a share of the machine's memory.

Rows are computed in fixed groups of similar length, when one of them is first needed. So the cached values do not
depend on the order of the batches, and a resumed run computes the same ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from torch.nn import functional
from transformers import PretrainedConfig, PreTrainedModel

from ternarybert.training.batches import LENGTH, Collator
from ternarybert.training.heads import Head
from ternarybert.training.losses import DistillationOutputs

ROW_NUMBER = "row"  # column with the number of a training row
GROUP = 32  # rows
USUAL_LENGTH = 128  # tokens; groups of longer rows are smaller, since scores grow with the square of the length
MEMORY_SHARE = 0.25
_CONTAINER_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # version 2 and 1


class TeacherCache:
    """The teacher's outputs for training rows, by number."""

    def __init__(self, teacher: PreTrainedModel, rows: Dataset, collate: Collator, head: Head[Any]) -> None:
        self.teacher, self.rows, self.collate, self.head = teacher, rows, collate, head
        self.order = np.argsort(rows[LENGTH], kind="stable")
        self.group = max(1, min(GROUP, GROUP * USUAL_LENGTH**2 // max(rows[LENGTH]) ** 2))
        self.group_of = np.argsort(self.order) // self.group
        self.outputs: dict[int, tuple[Tensor, Tensor, Tensor]] = {}  # row: logits, (L+1, n, d), (L, N_H, n, n)

    def __call__(self, rows: Tensor, width: int) -> DistillationOutputs:
        """Outputs of these rows as one batch, padded with zeros to `width` tokens."""
        each = [self._outputs(row) for row in rows.tolist()]
        _, hidden, scores = each[0]
        all_hidden = hidden.new_zeros((len(hidden), len(each), width, hidden.shape[-1]), dtype=torch.float32)
        all_scores = scores.new_zeros((len(scores), len(each), scores.shape[1], width, width), dtype=torch.float32)
        for i, (_, hidden, scores) in enumerate(each):
            n = hidden.shape[1]
            all_hidden[:, i, :n] = hidden
            all_scores[:, i, :, :n, :n] = scores
        logits = torch.stack([self._padded(logits, width) for logits, _, _ in each])
        return DistillationOutputs(logits, all_hidden.unbind(), all_scores.unbind())

    def fill(self, progress: Callable[[float], None] = lambda _: None) -> None:
        """Compute all rows now; `progress` gets the share done."""
        groups = int(self.group_of.max()) + 1
        for group in range(groups):
            if int(self.order[group * self.group]) not in self.outputs:
                self._compute(group)
            progress((group + 1) / groups)

    def _padded(self, logits: Tensor, width: int) -> Tensor:
        return functional.pad(logits, (0, width - logits.shape[-1])) if self.head.per_token else logits

    def _outputs(self, row: int) -> tuple[Tensor, Tensor, Tensor]:
        if row not in self.outputs:
            self._compute(int(self.group_of[row]))
        return self.outputs[row]

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
            self.outputs[row] = own, _half(hidden[:, i, :n]), _half(scores[:, i, :, :n, :n])


def _half(x: Tensor) -> Tensor:
    """A copy in half precision, unless it holds numbers too large for that."""
    half = x.half()
    return x.clone() if bool(half.isinf().any()) else half


def fits_in_memory(config: PretrainedConfig, lengths: Sequence[int], share: float = MEMORY_SHARE) -> bool:
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
    """The number in a file; None without such a file, or without a limit in it."""
    try:
        return int(Path(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
