"""Examples per second of ternarization, beside the same training done as the released code does it.

Both sides are this package: the same student, teacher, losses and optimizer. The slow side pads every batch to the full
length, quantizes the whole word embedding, and quantizes every weight for every micro-batch. They take turns in one
process, a few steps each, so that a slow moment of the machine hits both.

    python bench/training.py TEACHER GLUE_FOLDER [--task mrpc] [--threads 1] [--rounds 3] [--steps 4]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments

from ternarybert.distill.features import LENGTH, Collator, Features, tokenize
from ternarybert.distill.sampler import SimilarLengths
from ternarybert.distill.ternarize import set_dropout
from ternarybert.distill.trainer import DistillTrainer
from ternarybert.recipe import PRESETS, ROW, Recipe
from ternarybert.student import TernaryEmbedding, expose_scores, make_student, quantized_layers
from ternarybert.tasks import load_glue

BATCH = 32


class Side:
    """One way of training, and its stream of batches."""

    def __init__(self, folder: str, features: Features, recipe: Recipe, as_released: bool) -> None:
        self.as_released = as_released
        self.model = make_student(AutoModelForSequenceClassification.from_pretrained(folder), recipe)
        set_dropout(self.model, recipe.schedule.dropout)
        self.trainer = DistillTrainer(
            self.model,
            TrainingArguments("bench-unused", use_cpu=True, report_to="none", save_strategy="no"),
            train_dataset=features.train,
            processing_class=features.tokenizer,
            recipe=recipe,
            regression=False,
            teacher=expose_scores(AutoModelForSequenceClassification.from_pretrained(folder)),
        )
        self.optimizer = self.trainer.create_optimizer()
        self.batches = self._batches(features)

    def _batches(self, features: Features) -> Iterator[dict[str, Any]]:
        assert features.train is not None
        collate = Collator(features.tokenizer, "max" if self.as_released else "dynamic", features.max_length)
        order = list(SimilarLengths(features.train[LENGTH], BATCH, seed=0))
        rows = [features.train[i] for i in order]
        return cycle(collate(rows[i : i + BATCH]) for i in range(0, len(rows) - BATCH, BATCH))

    def run(self, steps: int) -> float:
        """Seconds per example."""
        self.model.train()
        with whole_table_every_time() if self.as_released else _nothing():
            begin = time.perf_counter()
            for _ in range(steps):
                if self.as_released:
                    for _, layer in quantized_layers(self.model):
                        layer._cache = None
                self.trainer.compute_loss(self.model, next(self.batches)).backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
            return (time.perf_counter() - begin) / steps / BATCH


@contextmanager
def whole_table_every_time() -> Iterator[None]:
    """Quantize all rows of an embedding in every forward pass, then look up the batch's."""
    forward = TernaryEmbedding.forward

    def slow(self: TernaryEmbedding, ids: torch.Tensor) -> torch.Tensor:
        if self.scheme.granularity == ROW:
            self.w_hat()  # makes the table fresh, and forward then reads from it
        return forward(self, ids)

    TernaryEmbedding.forward = slow  # type: ignore[method-assign]
    try:
        yield
    finally:
        TernaryEmbedding.forward = forward  # type: ignore[method-assign]


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("teacher")
    parser.add_argument("data")
    parser.add_argument("--task", default="mrpc")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    features = tokenize(load_glue(options.task, options.data), AutoTokenizer.from_pretrained(options.teacher))
    sides = {
        "ours": Side(options.teacher, features, PRESETS["default"], as_released=False),
        "as released": Side(options.teacher, features, PRESETS["default"], as_released=True),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for round_number in range(options.rounds + 1):
        for name, side in sides.items():
            spent = side.run(options.steps)
            if round_number:
                seconds[name].append(spent)
    rates = {name: 1 / statistics.median(values) for name, values in seconds.items()}
    for name, rate in rates.items():
        print(f"{name:12} {rate:8.1f} examples/s")
    print(f"ratio        {rates['ours'] / rates['as released']:8.2f}   ({options.task}, {options.threads} threads)")


if __name__ == "__main__":
    main()
