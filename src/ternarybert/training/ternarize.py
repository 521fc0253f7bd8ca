"""Distillation-aware ternarization as a job: a fine-tuned model goes in, a packed folder comes out."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from ternarybert import packed
from ternarybert.augment.training_data import Augmentation, augmented, check_augmented, teacher_embeddings
from ternarybert.errors import DataError, TernaryBertError, UnsupportedModelError
from ternarybert.recipe import PRESETS, Recipe
from ternarybert.storage import check_output_folder
from ternarybert.student import expose_scores, make_student
from ternarybert.training.checkpoints import check_output, prepare_work
from ternarybert.training.export import model_card, packed_model
from ternarybert.training.heads import AnyData, head_of
from ternarybert.training.models import check_tokenizer, load_tokenizer, load_trained, set_dropout
from ternarybert.training.options import Settings, plan, train
from ternarybert.training.teacher import Classroom, StudentTrainer


class TernarizeTrainer(StudentTrainer):
    """Distils, and keeps the best student as a packed folder: exactly what was evaluated."""

    def save_best(self, model: Any) -> None:
        """Pack the student as it is."""
        packed.write(self.work / "best", packed_model(model, self.recipe), force=True)

    def best_is_whole(self) -> bool:
        """Whether it can be read; every byte is looked at."""
        try:
            packed.read(self.work / "best")
        except TernaryBertError:
            return False
        return True


def ternarize(
    teacher: str,
    data: AnyData,
    output: str | Path,
    recipe: Recipe | None = None,
    settings: Settings | None = None,
    *,
    student: str | None = None,
    augment: Augmentation | None = None,
) -> dict[str, Any]:
    """Ternarize `teacher` on the task's texts, write the best student as a packed folder, and return the metrics.

    The student starts as a copy of the teacher, or from `student`, a shallower model fine-tuned on the same task
    (with `distill.layer_map: uniform`). Labels are only used to score. With `augment` every training row comes with
    variants, and training takes one epoch unless the recipe says otherwise.
    """
    recipe, settings, output = recipe or PRESETS["default"], settings or Settings(), Path(output)
    if augment is not None:
        check_augmented(data.task)
        recipe = recipe.override({"schedule.stretch": 1.0})  # variants of every row are time enough
    check_output(output, settings, "recipe.yaml")
    check_output_folder(output, replaceable=settings.force and packed.is_packed(output))  # not after hours
    head = head_of(data.task)
    recipe = recipe.for_task(two_stages=head.two_stages)
    network, tokenizer = load_trained(teacher, head), load_tokenizer(teacher)
    data = check_data(data, network)
    head = head_of(data.task)
    expose_scores(network)

    pupil = make_student(load_trained(student or teacher, head), recipe)
    check_depths(pupil, network, recipe)
    check_tokenizer(tokenizer, network)
    set_dropout(pupil, recipe.schedule.dropout)
    note = None
    if augment is not None:  # takes long, so last of what comes before training
        own = partial(teacher_embeddings, teacher, network, tokenizer)
        data, note = augmented(data, augment, own, settings.seed, settings.device)
    room = Classroom.open(network, data, tokenizer)
    asked = plan(teacher, data, recipe, settings) | {"student": student, "augmentation": note}
    work = prepare_work(output, settings, asked)
    trainer = room.trainer(TernarizeTrainer, pupil, recipe, settings, work)
    measured = train(trainer, settings, work)
    more = {"augmentation": note, "precision": settings.precision}
    metrics = room.report(trainer, measured, recipe, settings.seed) | more
    if trainer.is_world_process_zero():
        _write(output, work, tokenizer, room.features.max_length, recipe, metrics, settings)
    return metrics


def check_data(data: AnyData, teacher: PreTrainedModel) -> AnyData:
    """The data as the teacher understands them; an error if they do not fit each other."""
    if not data.train:
        raise DataError(f"'{data.task.name}' has no training rows")
    if not data.evals:
        raise DataError(f"'{data.task.name}' has no rows to evaluate on")
    fitted: AnyData = head_of(data.task).fit(data, teacher)
    return fitted


def check_depths(student: PreTrainedModel, teacher: PreTrainedModel, recipe: Recipe) -> None:
    """A student with fewer layers needs a layer map, and the same width, words and labels."""
    ours, theirs = student.config, teacher.config
    for what in ("num_labels", "vocab_size", "max_position_embeddings"):
        if getattr(ours, what) != getattr(theirs, what):
            raise UnsupportedModelError(
                f"student and teacher differ in {what}: {getattr(ours, what)} against {getattr(theirs, what)}"
            )
    if ours.num_labels > 1 and ours.id2label != theirs.id2label:
        raise UnsupportedModelError(
            f"student and teacher differ in their labels: {_names(ours)} against {_names(theirs)}, in this order"
        )
    if ours.hidden_size != theirs.hidden_size or ours.num_attention_heads != theirs.num_attention_heads:
        raise UnsupportedModelError(
            f"student and teacher differ in width: {ours.hidden_size} with {ours.num_attention_heads} heads "
            f"against {theirs.hidden_size} with {theirs.num_attention_heads}"
        )
    if ours.num_hidden_layers != theirs.num_hidden_layers and recipe.distill.layer_map == "same":
        raise UnsupportedModelError(
            f"the student has {ours.num_hidden_layers} layers, the teacher {theirs.num_hidden_layers}; "
            "set distill.layer_map=uniform"
        )
    if theirs.num_hidden_layers % ours.num_hidden_layers:
        raise UnsupportedModelError(
            f"the teacher's {theirs.num_hidden_layers} layers do not spread evenly over "
            f"the student's {ours.num_hidden_layers}"
        )


def _names(config: Any) -> str:
    return ", ".join(str(name) for _, name in sorted(config.id2label.items()))


def _write(
    output: Path,
    work: Path,
    tokenizer: Any,
    max_length: int,
    recipe: Recipe,
    metrics: dict[str, Any],
    settings: Settings,
) -> None:
    best = packed.read(work / "best").in_memory()  # its folder is deleted below
    model = packed.PackedModel(best.config, best.tensors, best.bits, best.recipe, metrics)
    tokenizer.model_max_length = max_length  # texts are cut as they were in training, wherever the model runs
    tokenizer.save_pretrained(work / "tokenizer")
    files: dict[str, Any] = {path.name: path for path in (work / "tokenizer").iterdir() if path.is_file()}
    files["recipe.yaml"] = recipe.to_yaml().encode()
    files["README.md"] = model_card(output.absolute().name, model, metrics).encode()
    packed.write(output, model, extra_files=files, force=settings.force)
    if not settings.keep_checkpoints:
        shutil.rmtree(work)
