"""The teacher of one or more students: its model, the tokenized data, and its outputs on them.

`ternarize` trains one student with it; a comparison trains many, and computes the teacher's outputs only once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ternarybert.data.task import ScoresBySet, TaskData
from ternarybert.errors import DataError
from ternarybert.recipe import Recipe
from ternarybert.student import expose_scores
from ternarybert.training.batches import LENGTH, Collator, Logits, TokenizedData, predict_sets
from ternarybert.training.heads import Head, head_of
from ternarybert.training.models import check_label_names, check_tokenizer, load_tokenizer, load_trained
from ternarybert.training.report import TeacherReport
from ternarybert.training.teacher_cache import MEMORY_SHARE, ROW_NUMBER, TeacherCache, fits_in_memory
from ternarybert.training.variances import TeacherVariances, teacher_variances


@dataclass
class Teacher:
    """A fixed full-precision model and everything that is the same for all its students."""

    model: PreTrainedModel
    head: Head[Any]  # of the task as fitted to the model
    tokenized: TokenizedData  # training rows are numbered
    logits: dict[str, Logits] = field(default_factory=dict)  # on the evaluation sets, once computed
    seconds: float = 0.0  # that it took to compute them
    cache: TeacherCache | None = None
    measured: TeacherVariances | None = None  # by `variances`

    @classmethod
    def load(cls, folder: str | Path, data: TaskData[Any]) -> Teacher:
        """Load a fine-tuned model and its tokenizer, and tokenize the data for it."""
        model, tokenizer = load_trained(folder, head_of(data.task)), load_tokenizer(folder)
        check_tokenizer(tokenizer, model)
        expose_scores(model)
        return cls.of(model, fitted(data, model), tokenizer)

    @classmethod
    def of(
        cls,
        model: PreTrainedModel,
        data: TaskData[Any],
        tokenizer: PreTrainedTokenizerBase,
        student: PreTrainedModel | None = None,
    ) -> Teacher:
        """A teacher with data tokenized for it, or for a student that has a tokenizer of another kind."""
        head = head_of(data.task)
        tokenized = head.tokenize(data, tokenizer, student or model)
        train = tokenized.train
        if train is not None:
            train = train.add_column(ROW_NUMBER, list(range(len(train))))
        model.eval().requires_grad_(False)
        return cls(model, head, replace(tokenized, train=train))

    @property
    def data(self) -> TaskData[Any]:
        """The examples, fitted to the model."""
        return self.tokenized.data

    def evaluate(self, now: Callable[[], float] = time.monotonic) -> dict[str, Logits]:
        """The logits on the evaluation sets, computed once; `now` is the clock by which `seconds` are counted."""
        if not self.logits:
            start = now()
            self.logits = predict_sets(self.model, self.tokenized, self.head.logits)
            self.seconds = now() - start
        return self.logits

    def predictions(self) -> dict[str, Any]:
        """What students are compared with."""
        return {name: self.head.predictions(self.tokenized, name, each) for name, each in self.evaluate().items()}

    def scores(self) -> ScoresBySet:
        """How good the teacher is, by evaluation set."""
        return self.head.scores(self.tokenized, self.evaluate())

    def report(self) -> TeacherReport:
        """Its part of a student's report."""
        first = next(iter(self.tokenized.evals))
        confusion = None
        if self.head.task.class_names:
            confusion = self.head.confusion(self.tokenized, first, self.evaluate()[first])
        return TeacherReport(self.scores(), 4 * sum(weight.numel() for weight in self.model.parameters()), confusion)

    def calibration(self) -> list[list[float]] | None:
        """How true its probabilities are on the first evaluation set."""
        first = next(iter(self.tokenized.evals))
        return self.head.calibration(self.tokenized, first, self.evaluate()[first])

    def variances(self, collate: Collator) -> TeacherVariances:
        """Its variance in every layer, measured once."""
        if self.measured is None:
            rows = self.tokenized.train_rows
            self.measured = teacher_variances(self.model, rows, collate, self.head.logits)
        return self.measured

    def fill_cache(self, progress: Callable[[float], None] = lambda _: None) -> None:
        """Compute the outputs for all training rows now, where they fit, so that no student's time includes it."""
        rows = self.tokenized.train
        if rows is not None and self.model.device.type == "cpu" and fits_in_memory(self.model.config, rows[LENGTH]):
            self.cache = TeacherCache(self.model, rows, Collator(self.tokenized.tokenizer), self.head)
            self.cache.fill(progress)

    def cache_for(self, recipe: Recipe, collate: Collator, epochs: float, processes: int = 1) -> TeacherCache | None:
        """The cache that all students share, where it helps this one; each of several processes has its own.

        Where losses include padding, the teacher has to see the very batch; within one epoch no row comes twice; a GPU
        computes the teacher's outputs faster than they could be copied to it. A cache that an earlier student filled
        always helps.
        """
        rows, distill = self.tokenized.train_rows, recipe.distill
        usable = distill.masked and distill.needs_teacher and self.model.device.type == "cpu"
        helps = usable and (self.cache is not None or epochs > 1)
        if not helps or not fits_in_memory(self.model.config, rows[LENGTH], MEMORY_SHARE / processes):
            return None
        self.cache = self.cache or TeacherCache(self.model, rows, collate, self.head)
        return self.cache


def fitted(data: TaskData[Any], model: PreTrainedModel) -> TaskData[Any]:
    """The data with the model's order of labels or threshold; an error if they cannot be used to train."""
    task = data.task
    if not data.train:
        raise DataError(f"'{task.name}' has no training {task.unit}")
    if not data.evals:
        raise DataError(f"'{task.name}' has no {task.unit} to evaluate on")
    check_label_names(model.config)
    result: TaskData[Any] = task.fit(data, model.config.to_dict())
    return result
