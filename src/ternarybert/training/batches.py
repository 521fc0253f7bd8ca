"""Batches of token ids: those of training, step by step, and those of evaluation, with a model's logits for them.

Padding is wasted work, so rows of similar length share a batch. The order of an epoch depends on seed and epoch alone:
a resumed run sees the same batches, and a step has the same rows however it is split into micro-batches or processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle, islice
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import DataCollatorWithPadding, PreTrainedModel, PreTrainedTokenizerBase

from ternarybert.data.task import Task, TaskData
from ternarybert.families import max_tokens

LENGTH = "length"  # column with the number of tokens of a row
TOKEN_LABELS = "token_labels"  # column with a label for each token of a row; in a batch they are its labels
IGNORED = -100  # the label of a token that does not count
POOL = 50  # batches that are sorted by length together: more means less padding, fewer means more randomness
Batch = dict[str, Tensor]
Logits = NDArray[np.float32]
_CACHED_PAIRS = 2**17  # pairs of tokens in a batch: with 12 heads, 6 MB of attention scores


@dataclass(frozen=True)
class TokenizedData:
    """The inputs of a model for a task's examples. For questions and words, a row is a window."""

    data: TaskData[Any]
    train: Dataset | None
    evals: dict[str, Dataset]
    tokenizer: PreTrainedTokenizerBase
    max_length: int
    windows: dict[str, list[Any]] = field(default_factory=dict)  # of each evaluation set, where texts are cut

    @property
    def train_rows(self) -> Dataset:
        """The training rows, where there must be some."""
        if self.train is None:
            raise ValueError(f"'{self.data.task.name}' has no training rows")
        return self.train


def longest_input(task: Task, model: PreTrainedModel) -> int:
    """Where texts are truncated: at the task's length, or at the model's where that is shorter."""
    return min(task.max_length, max_tokens(model.config) or task.max_length)


class Collator:
    """Rows to a padded batch: to its longest row, or always to the full length (`pad="max"`)."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, pad: str = "dynamic", max_length: int | None = None) -> None:
        full = pad == "max"
        self.pad = DataCollatorWithPadding(
            tokenizer, padding="max_length" if full else True, max_length=max_length if full else None
        )

    def __call__(self, rows: list[dict[str, Any]]) -> Batch:
        """One batch of tensors."""
        batch: Batch = self.pad([{k: v for k, v in row.items() if k not in (LENGTH, TOKEN_LABELS)} for row in rows])
        if TOKEN_LABELS in rows[0]:
            labels = batch["input_ids"].new_full(batch["input_ids"].shape, IGNORED)
            for i, row in enumerate(rows):
                labels[i, : len(row[TOKEN_LABELS])] = torch.as_tensor(row[TOKEN_LABELS])
            batch["labels"] = labels
        return batch


def similar_lengths(lengths: Sequence[int], batch: int, seed: int) -> list[int]:
    """Row numbers in a random order in which every `batch` neighbors have similar lengths."""
    sizes, generator = torch.tensor(lengths), torch.Generator().manual_seed(seed)
    rows = torch.randperm(len(sizes), generator=generator)
    batches: list[Tensor] = []
    for start in range(0, len(rows), POOL * batch):
        pool = rows[start : start + POOL * batch]
        pool = pool[sizes[pool].argsort(stable=True)]
        batches += [pool[i : i + batch] for i in range(0, len(pool), batch)]
    # An incomplete batch stays last, or everything after it would straddle two groups.
    whole = [each for each in batches if len(each) == batch]
    rest = [each for each in batches if len(each) < batch]
    order = torch.randperm(len(whole), generator=generator).tolist()
    return [row for each in [*(whole[i] for i in order), *rest] for row in each.tolist()]


@dataclass(frozen=True)
class TrainingBatches:
    """The micro-batches of every step, of one process among several."""

    rows: Dataset
    collate: Collator
    micro_batch: int  # rows
    accumulation: int = 1  # micro-batches per step and process
    seed: int = 42
    by_length: bool = True
    process: int = 0
    processes: int = 1

    @property
    def step_rows(self) -> int:
        """Rows of a step, of all processes together."""
        return self.micro_batch * self.accumulation * self.processes

    @property
    def steps_per_epoch(self) -> int:
        """Steps that see every row once."""
        return -(-len(self.rows) // self.step_rows)

    def epoch(self, epoch: int, skip: int = 0) -> Iterator[list[Batch]]:
        """The steps of an epoch but the first `skip`, each a list of micro-batches.

        Calling this draws a number from torch's global generator, as every iterator over a `DataLoader` does.
        """
        loader = DataLoader(
            self.rows,
            batch_sampler=self.steps(epoch)[skip:],
            collate_fn=self._micro_batches,
            pin_memory=torch.cuda.is_available(),
        )
        return iter(loader)

    def steps(self, epoch: int) -> list[list[int]]:
        """The row numbers of every step of this process."""
        lengths = list(self.rows[LENGTH]) if self.by_length else [0] * len(self.rows)  # equal lengths: a random order
        order = similar_lengths(lengths, self.step_rows, self.seed + epoch)
        if self.processes > 1:  # all processes must have micro-batches of the same size; the first rows fill the last
            order += islice(cycle(order.copy()), -len(order) % (self.micro_batch * self.processes))
        micro = [order[i : i + self.micro_batch] for i in range(0, len(order), self.micro_batch)]
        own = micro[self.process :: self.processes]
        return [list(chain(*own[i : i + self.accumulation])) for i in range(0, len(own), self.accumulation)]

    def _micro_batches(self, rows: list[dict[str, Any]]) -> list[Batch]:
        return [self.collate(rows[i : i + self.micro_batch]) for i in range(0, len(rows), self.micro_batch)]


def predict_logits(
    model: PreTrainedModel,
    rows: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    batch_size: int = 32,
    read: Callable[[Any], Tensor] = lambda outputs: outputs.logits,
    progress: Callable[[float], None] = lambda share: None,
) -> Logits:
    """A model's logits for every row, in the order of the rows; similar lengths share a batch.

    A batch has up to `batch_size` rows, on a CPU fewer where they are long. `read` takes the logits from the model's
    outputs; those of tokens are padded with zeros to the longest row. `progress` gets the share of tokens done.
    """
    order = np.argsort(rows[LENGTH], kind="stable")
    lengths = np.asarray(rows[LENGTH])[order]
    done = np.cumsum(lengths)
    rows = rows.remove_columns([c for c in rows.column_names if c in ("labels", TOKEN_LABELS)])
    collate, logits = Collator(tokenizer), []
    was_training = model.training
    model.eval()
    with torch.no_grad():
        start = 0
        while start < len(order):
            ahead = lengths[start : start + batch_size]
            chosen = order[start : start + (_cached(ahead) if model.device.type == "cpu" else batch_size)]
            batch = collate([rows[int(i)] for i in chosen])
            outputs = model(**{k: v.to(model.device) for k, v in batch.items()})
            logits.append(read(outputs).float().cpu().numpy())
            start += len(chosen)
            progress(float(done[start - 1] / done[-1]))
    model.train(was_training)
    return np.asarray(_stack(logits)[np.argsort(order)], dtype=np.float32)


def predict_sets(model: PreTrainedModel, tokenized: TokenizedData, read: Callable[[Any], Tensor]) -> dict[str, Logits]:
    """A model's logits for every evaluation set."""
    return {name: predict_logits(model, rows, tokenized.tokenizer, read=read) for name, rows in tokenized.evals.items()}


def _cached(lengths: NDArray[np.int64]) -> int:
    """How many of these rows, the shortest first, fit into a batch whose attention scores stay in the CPU's cache.

    Larger batches take up to four times as long.
    """
    pairs = np.arange(1, len(lengths) + 1) * lengths**2
    return max(1, int((pairs <= _CACHED_PAIRS).sum()))


def _stack(batches: list[Logits]) -> Logits:
    width = max(batch.shape[-1] for batch in batches)
    same = [(0, 0)] * (batches[0].ndim - 1)
    return np.concatenate([np.pad(batch, [*same, (0, width - batch.shape[-1])]) for batch in batches])
