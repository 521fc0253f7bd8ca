"""Examples per second of ternarization, beside the same training done as the released code does it.

Both sides are this package: the same student, teacher, losses and optimizer. The slow side pads every batch to the full
length, runs the teacher every time, quantizes the whole word embedding, quantizes every weight for every micro-batch,
and multiplies floats where ours multiplies codes. Each side trains for a few epochs on the same small part of the task,
ours with an empty cache of the teacher's outputs at first. They take turns in one process, an epoch each, so that a
slow moment of the machine hits both.

    python bench/training.py TEACHER GLUE_FOLDER [--task mrpc] [--threads 1] [--epochs 3] [--steps 8]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoTokenizer

from ternarybert.data import load_glue
from ternarybert.recipe import PRESETS, ROW
from ternarybert.student import TernaryEmbedding, expose_scores, make_student, quantized_layers
from ternarybert.student import products as native
from ternarybert.training.batches import LENGTH, Collator, TokenizedData, similar_lengths
from ternarybert.training.heads import head_of
from ternarybert.training.heads.classification import tokenize_texts
from ternarybert.training.history import RunEvaluator
from ternarybert.training.models import load_trained, set_dropout
from ternarybert.training.options import TrainingOptions
from ternarybert.training.teacher import Teacher
from ternarybert.training.teacher_cache import ROW_NUMBER, TeacherCache
from ternarybert.training.trainer import Trainer

BATCH = 32


class Side:
    """One way of training, on its own copy of the models."""

    def __init__(self, folder: str, rows: Dataset, tokenized: TokenizedData, as_released: bool) -> None:
        self.rows, self.as_released, recipe = rows, as_released, PRESETS["default"]
        head = head_of(tokenized.data.task)
        self.model = make_student(load_trained(folder, head), recipe)
        set_dropout(self.model, recipe.schedule.dropout)
        self.collate = Collator(tokenized.tokenizer, "max" if as_released else "dynamic", tokenized.max_length)
        network = expose_scores(load_trained(folder, head)).eval().requires_grad_(False)
        tokenized = replace(tokenized, train=rows)
        evaluator = RunEvaluator(head, tokenized, Path("bench-unused"))
        options, teacher = TrainingOptions(device="cpu"), Teacher(network, head, tokenized)
        self.trainer = Trainer(self.model, head, tokenized, recipe, options, evaluator, teacher=teacher)
        self.trainer.cache = None
        self.optimizer = self.trainer.optimizer

    def empty_cache(self) -> None:
        """Start with an empty cache of the teacher's outputs, as a run does."""
        if not self.as_released and self.trainer.teacher is not None:
            network, head = self.trainer.teacher.model, self.trainer.head
            self.trainer.cache = TeacherCache(network, self.rows, self.collate, head)

    def epoch(self, seed: int) -> float:
        """Seconds that an epoch takes."""
        order = similar_lengths(self.rows[LENGTH], BATCH, seed)
        batches = [self.collate([self.rows[i] for i in order[k : k + BATCH]]) for k in range(0, len(order), BATCH)]
        self.model.train()
        begin = time.perf_counter()
        with as_released() if self.as_released else nullcontext():
            for batch in batches:
                self.step(batch)
        return time.perf_counter() - begin

    def step(self, batch: dict[str, Any]) -> None:
        """One batch."""
        if self.as_released:
            for _, layer in quantized_layers(self.model):
                layer._cache = layer._integers = None
        self.trainer.accelerator.backward(self.trainer.batch_loss(batch))
        self.optimizer.step()
        self.optimizer.zero_grad()


@contextmanager
def as_released() -> Iterator[None]:
    """Products of floats; all rows of an embedding quantized in every forward pass, then the batch's looked up."""
    forward = TernaryEmbedding.forward

    def slow(self: TernaryEmbedding, ids: torch.Tensor) -> torch.Tensor:
        if self.scheme.granularity == ROW:
            self.w_hat()  # makes the table fresh, and forward then reads from it
        return forward(self, ids)

    TernaryEmbedding.forward = slow  # type: ignore[method-assign]
    fits, native.fits = native.fits, lambda *_: False
    try:
        yield
    finally:
        TernaryEmbedding.forward = forward  # type: ignore[method-assign]
        native.fits = fits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teacher")
    parser.add_argument("data")
    parser.add_argument("--task", default="mrpc")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8, help="of an epoch")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    data = load_glue(options.task, options.data)
    tokenized = tokenize_texts(data, AutoTokenizer.from_pretrained(options.teacher))
    rows = tokenized.train_rows.shuffle(seed=0).select(range(BATCH * options.steps))
    rows = rows.add_column(ROW_NUMBER, list(range(len(rows))))
    sides = {
        "ours": Side(options.teacher, rows, tokenized, as_released=False),
        "as released": Side(options.teacher, rows, tokenized, as_released=True),
    }
    for side in sides.values():
        side.epoch(0)  # everything allocated and warm
        side.empty_cache()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for epoch in range(options.epochs):
        for name, side in sides.items():
            seconds[name].append(side.epoch(epoch))
    print(f"{options.task}, {options.threads} threads, {options.epochs} epochs of {options.steps} steps of {BATCH}")
    for name, spent in seconds.items():
        each = " ".join(f"{len(rows) / s:.1f}" for s in spent)
        print(f"{name:12} {options.epochs * len(rows) / sum(spent):8.1f} examples/s   (by epoch: {each})")
    print(f"ratio        {sum(seconds['as released']) / sum(seconds['ours']):8.2f}")


if __name__ == "__main__":
    main()
