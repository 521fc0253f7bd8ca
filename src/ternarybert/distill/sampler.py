"""Batches of similar lengths in random order.

Padding is work thrown away, so rows of similar length share a batch. Transformers' own sampler leaves the batches
sorted from long to short within a large part of an epoch, and draws from the global random state; here the batches are
shuffled, and an epoch's order depends on seed and epoch alone, so that a resumed run sees the same batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import Sampler

POOL = 50  # batches that are sorted together: more means less padding, fewer means more randomness


class SimilarLengths(Sampler[int]):
    """Row numbers, such that every `batch` neighbours have similar lengths."""

    def __init__(self, lengths: Sequence[int], batch: int, seed: int) -> None:
        self.lengths = torch.tensor(lengths)
        self.batch, self.seed, self.epoch = batch, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the data loader before each epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        rows = torch.randperm(len(self.lengths), generator=generator)
        batches: list[torch.Tensor] = []
        for start in range(0, len(rows), POOL * self.batch):
            pool = rows[start : start + POOL * self.batch]
            pool = pool[self.lengths[pool].argsort(stable=True)]
            batches += [pool[i : i + self.batch] for i in range(0, len(pool), self.batch)]
        # An incomplete batch stays last, or everything after it would straddle two groups.
        whole = [batch for batch in batches if len(batch) == self.batch]
        rest = [batch for batch in batches if len(batch) < self.batch]
        order = torch.randperm(len(whole), generator=generator).tolist()
        for batch in [whole[i] for i in order] + rest:
            yield from batch.tolist()
