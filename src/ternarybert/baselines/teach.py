"""One student of one method, from the teacher to its figures: the same trainer, schedule and evaluation for all.

Nothing is kept but what was measured: a comparison is about figures, and `ternarize` makes models.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from ternarybert.baselines.methods import METHODS, Lesson, Student
from ternarybert.baselines.sizes import float_size, size_of
from ternarybert.distill.classroom import Classroom, StudentTrainer
from ternarybert.distill.features import predict_sets
from ternarybert.distill.run import Settings, plan, train, versions
from ternarybert.distill.scores import main_metric
from ternarybert.distill.trainer import BertTrainer
from ternarybert.distill.work import prepare_work
from ternarybert.errors import UnsupportedModelError
from ternarybert.recipe import Recipe
from ternarybert.tasks.scores import mean_scores


class BaselineTrainer(StudentTrainer):
    """Keeps no model."""

    def save_best(self, model: Any) -> None:
        """Scores are kept by the history."""

    def best_is_whole(self) -> bool:
        """There is no model to lose."""
        return True


class LabelTrainer(BaselineTrainer):
    """Learns from labels, with the optimizer that teachers have: BertAdam's first steps would be too large."""

    def create_optimizer(self, model: Any = None) -> Any:
        """AdamW with bias correction."""
        return BertTrainer.create_optimizer(self, model)


def teach(
    method: str, lesson: Lesson, output: Path, settings: Settings, schedule: dict[str, object] | None = None
) -> dict[str, Any]:
    """Make the student, train it if the method trains, and measure it.

    Work goes to `output`.work and stays: until the result is kept, a kill must not cost a whole training. `schedule`
    are fields of the recipe's schedule that are to be the same for all methods.
    """
    start = time.perf_counter()
    student = METHODS[method](lesson)
    recipe = student.lessons().override(schedule or {})
    room = _room(lesson, student)
    if student.trains:
        report = _train(method, lesson, student, recipe, room, output, settings)
    else:
        report = _evaluate(student, room, lesson.seed) | {"seconds": round(time.perf_counter() - start, 1)}
    if settings.clock is not None:
        report["seconds"] = round(settings.clock.spent, 1)
    size = size_of(student.model, recipe)
    ratio = float_size(room.teacher).bytes / size.bytes
    return report | {
        "method": method,
        "bits": lesson.bits,
        "source": lesson.source,
        "size": size.as_dict() | {"ratio": ratio},
        "teacher_size": float_size(room.teacher).as_dict(),
    }


def _room(lesson: Lesson, student: Student) -> Classroom:
    """The classroom, or the same with other tokens: for a model with a tokenizer of its own."""
    room = lesson.room
    if student.tokenizer is None:
        return room
    if room.head.per_token:
        raise UnsupportedModelError("a model with other tokens cannot be compared on questions")
    other = Classroom.open(room.teacher, room.data, student.tokenizer, student.model)
    return replace(other, answers=room.ask(), seconds=room.seconds)


def _train(
    method: str, lesson: Lesson, student: Student, recipe: Recipe, room: Classroom, output: Path, settings: Settings
) -> dict[str, Any]:
    recipe = recipe.for_task(two_stages=room.head.two_stages)
    what = {"method": method, "bits": lesson.bits, "source": lesson.source}
    work = prepare_work(output, settings, plan(lesson.teacher, room.data, recipe, settings) | what)
    settings = replace(settings, callbacks=(*settings.callbacks, *student.callbacks))
    kind = LabelTrainer if student.recipe is None else BaselineTrainer
    trainer = room.trainer(kind, student.model, recipe, settings, work)
    return room.report(trainer, train(trainer, settings, work), recipe, settings.seed)


def _evaluate(student: Student, room: Classroom, seed: int) -> dict[str, Any]:
    """The figures of a model that is finished when it is made."""
    sets = _scores(student.model.to(room.teacher.device), room)
    scores = mean_scores(sets)
    final = {"step": 0, "scores": scores, "sets": sets}
    return {
        "task": room.data.task.name,
        "recipe": "post-training",
        "metric": main_metric(room.data.task, scores),
        "teacher": room.teacher_scores(),
        "kept": "last",
        "student": {"best": final, "final": final},
        "evaluations": [final],
        "steps": 0,
        "train_rows": len(room.features.train or ()),
        "seed": seed,
        "versions": versions(),
    }


def _scores(model: PreTrainedModel, room: Classroom) -> dict[str, dict[str, float]]:
    features, head = room.features, room.head
    answers = {name: head.answers(features, name, said) for name, said in room.ask().items()}
    return head.score_sets(features, predict_sets(model, features, head.logits), answers)
