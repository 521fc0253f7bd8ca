"""A teacher, its rows, and what it says about them: everything that is the same for all its students.

`ternarize` teaches one student in it; a comparison teaches many, and what the teacher was once asked is not asked
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ternarybert.recipe import Recipe
from ternarybert.student.products import Bf16Gradients
from ternarybert.training.batches import LENGTH, Collator, Features, Logits, predict_sets
from ternarybert.training.heads import AnyData, Head, head_of, main_metric
from ternarybert.training.options import (
    Evaluating,
    Settings,
    losses,
    make_collator,
    on_cpu,
    training_arguments,
    versions,
)
from ternarybert.training.teacher_cache import ROW_NUMBER, TeacherMemory, fits, remember
from ternarybert.training.trainer import DistillTrainer


class StudentTrainer(Evaluating, DistillTrainer):
    """Distils, evaluates with the task's metrics, and keeps the best student in its own way."""


T = TypeVar("T", bound=StudentTrainer)


def shorten(student: PreTrainedModel, settings: Settings) -> Settings:
    """Let a quantized student use bfloat16 for its gradients alone; returns what is left to Trainer.

    Autocast would round what the integers are made of. All others, such as students in floats, are left to it.
    """
    layers = [
        module for module in student.modules() if isinstance(module, Bf16Gradients) and module.supports_bf16_gradients
    ]
    short = settings.bf16 and on_cpu(settings) and bool(layers)
    for layer in layers:
        layer.gradient_dtype = torch.bfloat16 if short else torch.float32
    return replace(settings, bf16=False) if short else settings


@dataclass
class Classroom:
    """Where students of one teacher learn."""

    teacher: PreTrainedModel
    data: AnyData  # as the teacher understands them
    head: Head
    features: Features  # training rows have numbers
    answers: dict[str, Logits] = field(default_factory=dict)  # of the teacher, on the evaluation sets
    seconds: float = 0.0  # that it took for them
    memory: TeacherMemory | None = None

    @classmethod
    def open(
        cls,
        teacher: PreTrainedModel,
        data: AnyData,
        tokenizer: PreTrainedTokenizerBase,
        reader: PreTrainedModel | None = None,
    ) -> Classroom:
        """Tokenize the rows, for the teacher or for another model that reads them, and number those to train on."""
        head = head_of(data.task)
        made = head.features(data, tokenizer, reader or teacher)
        train = made.train
        if train is not None:
            train = train.add_column(ROW_NUMBER, list(range(len(train))))
        return cls(teacher, data, head, Features(train, made.evals, tokenizer, made.max_length, made.windows))

    def trainer(self, kind: type[T], student: PreTrainedModel, recipe: Recipe, settings: Settings, work: Path) -> T:
        """A trainer for one student, ready to run."""
        rows, how = self.features.train, shorten(student, settings)
        assert rows is not None  # check_data says so
        trainer = kind(
            student,
            training_arguments(work, recipe, self.data.task, len(rows), how),
            train_dataset=rows,
            eval_dataset=self.features.evals,
            data_collator=make_collator(self.features, recipe),
            processing_class=self.features.tokenizer,
            callbacks=list(settings.callbacks),
            recipe=recipe,
            head=self.head,
            teacher=self.teacher,
        )
        trainer.memory = self._remembered(trainer, recipe)
        trainer.short_teacher = settings.bf16  # where Trainer's own autocast is off, too: its outputs are only copied
        answers = self.ask() if settings.clock is None else self.ask(settings.clock.now)
        trainer.watch(self.features, work, answers, keep_last=settings.keep_last)
        if settings.clock is not None:
            # Our own students take up to three times as long to evaluate, in integers; soon it is known better.
            settings.clock.reserve = min(3 * self.seconds, settings.clock.seconds / 4)
        return trainer

    def ask(self, now: Callable[[], float] = time.monotonic) -> dict[str, Logits]:
        """The teacher's answers on the evaluation sets; `now` is the clock by which `seconds` are counted."""
        if not self.answers:
            start = now()
            self.answers = predict_sets(self.teacher, self.features, self.head.logits)
            self.seconds = now() - start
        return self.answers

    def remember_all(self, tell: Callable[[float], None] = lambda _: None) -> None:
        """Ask about all training rows before the first student comes, so that none has to pay for the others."""
        rows = self.features.train
        if rows is not None and self.teacher.device.type == "cpu" and fits(self.teacher.config, rows[LENGTH]):
            self.teacher.eval().requires_grad_(False)
            self.memory = TeacherMemory(self.teacher, rows, Collator(self.features.tokenizer), self.head)
            self.memory.fill(tell)

    def teacher_scores(self) -> dict[str, dict[str, float]]:
        """How good the teacher is, by set."""
        return {name: self.head.scores(self.features, name, logits) for name, logits in self.ask().items()}

    def report(self, trainer: StudentTrainer, measured: dict[str, float], recipe: Recipe, seed: int) -> dict[str, Any]:
        """What there is to know about a finished student."""
        history, name = trainer.history, next(iter(self.features.evals))
        return {
            "task": self.data.task.name,
            "bits": str(recipe.bits),
            "recipe": recipe.name,
            "metric": main_metric(self.data.task, history.kept["scores"]),
            "teacher": self.teacher_scores(),
            "teacher_bytes": 4 * sum(weight.numel() for weight in self.teacher.parameters()),
            "kept": "last" if history.keep_last else "best",
            "student": {"best": history.kept, "final": history.evaluations[-1]},
            "evaluations": history.evaluations,
            "losses": losses(trainer),
            "confusion": {
                "labels": list(getattr(self.data.task, "labels", None) or ()),
                "teacher": self.head.confusion(self.features, name, self.answers[name]),
                "student": history.confusion.get(name),
            },
            **measured,
            "train_rows": len(self.features.train or ()),
            "seed": seed,
            "versions": versions(),
        }

    def _remembered(self, trainer: StudentTrainer, recipe: Recipe) -> TeacherMemory | None:
        """The memory that all students share, where this one can use it."""
        rows, collate = self.features.train, trainer.data_collator
        found = remember(self.teacher, rows, collate, trainer.args, recipe, self.head, self.memory)
        self.memory = self.memory or found
        return found
