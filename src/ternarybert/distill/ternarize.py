"""Distillation-aware ternarization as a job: a fine-tuned model goes in, a packed folder comes out."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from torch import nn
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer, PreTrainedModel

from ternarybert import packed
from ternarybert.distill.card import model_card
from ternarybert.distill.export import packed_model
from ternarybert.distill.features import Features, predict_logits, tokenize
from ternarybert.distill.run import (
    Evaluating,
    Settings,
    make_collator,
    prepare_output,
    train,
    training_arguments,
    versions,
)
from ternarybert.distill.scores import confusion, main_metric, task_scores
from ternarybert.distill.trainer import DistillTrainer
from ternarybert.errors import DataError, UnsupportedModelError
from ternarybert.recipe import PRESETS, Recipe
from ternarybert.student import expose_scores, make_student
from ternarybert.tasks import TaskData, align_labels


class TernarizeTrainer(Evaluating, DistillTrainer):
    """Distils, and keeps the best student as a packed folder: exactly what was evaluated."""

    def save_best(self, model: Any) -> None:
        """Pack the student as it is."""
        packed.write(self.work / "best", packed_model(model, self.recipe), force=True)


def ternarize(
    teacher: str,
    data: TaskData,
    output: str | Path,
    recipe: Recipe | None = None,
    settings: Settings | None = None,
    *,
    student: str | None = None,
) -> dict[str, Any]:
    """Ternarize `teacher` on the task's texts, write the best student as a packed folder, and return the metrics.

    The student starts as a copy of the teacher, or from `student`, a shallower model fine-tuned on the same task
    (with `distill.layer_map: uniform`). Labels are only used to score.
    """
    recipe, settings, output = recipe or PRESETS["default"], settings or Settings(), Path(output)
    work = prepare_output(output, settings, "recipe.yaml")
    network = load_classifier(teacher)
    data = check_data(data, network)
    tokenizer = AutoTokenizer.from_pretrained(teacher)
    features = tokenize(data, tokenizer, getattr(network.config, "max_position_embeddings", None))
    expose_scores(network)

    pupil = make_student(load_classifier(student or teacher), recipe)
    check_depths(pupil, network, recipe)
    set_dropout(pupil, recipe.schedule.dropout)
    teacher_logits = {name: predict_logits(network, rows, tokenizer) for name, rows in features.evals.items()}
    trainer = TernarizeTrainer(
        pupil,
        training_arguments(work, recipe, data.task, len(data.train or ()), settings),
        train_dataset=features.train,
        eval_dataset=features.evals,
        data_collator=make_collator(features, recipe),
        processing_class=tokenizer,
        callbacks=list(settings.callbacks),
        recipe=recipe,
        regression=data.task.regression,
        teacher=network,
    )
    trainer.watch(features, data.task, work, teacher_logits)
    measured = train(trainer, settings, work)
    teacher_scores = {name: task_scores(data.task, teacher_logits[name], rows) for name, rows in features.evals.items()}
    metrics = _metrics(trainer, data, teacher_scores, measured, recipe, settings)
    if trainer.is_world_process_zero():
        _write(output, work, tokenizer, recipe, metrics, settings)
    return metrics


def load_classifier(folder: str) -> PreTrainedModel:
    """A model with a sequence-classification head; an error if it would have to be made up."""
    config = AutoConfig.from_pretrained(folder)
    heads = config.architectures or []
    if not any(name.endswith("ForSequenceClassification") for name in heads):
        raise UnsupportedModelError(
            f"'{folder}' has no classification head (it is a {', '.join(heads) or 'model of unknown kind'}); "
            "make a teacher of it first: ternarybert finetune"
        )
    model: PreTrainedModel = AutoModelForSequenceClassification.from_pretrained(folder)
    return model


def check_data(data: TaskData, teacher: PreTrainedModel) -> TaskData:
    """The data in the teacher's order of labels; an error if they do not fit each other."""
    if data.train is None:
        raise DataError(f"'{data.task.name}' has no training rows")
    if not data.evals:
        raise DataError(f"'{data.task.name}' has no rows to evaluate on")
    outputs, wanted = teacher.config.num_labels, data.task.num_labels
    if wanted is not None and wanted != outputs:
        raise DataError(f"the teacher has {outputs} outputs, but the data have {wanted} labels")
    return data if data.task.labels is None else align_labels(data, teacher.config.id2label)


def check_depths(student: PreTrainedModel, teacher: PreTrainedModel, recipe: Recipe) -> None:
    """A student with fewer layers needs a layer map, and the same width."""
    ours, theirs = student.config, teacher.config
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


def set_dropout(model: nn.Module, rate: float | None) -> None:
    """The recipe's dropout in place of the teacher's."""
    if rate is not None:
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = rate


def _metrics(
    trainer: TernarizeTrainer,
    data: TaskData,
    teacher_scores: dict[str, dict[str, float]],
    measured: dict[str, float],
    recipe: Recipe,
    settings: Settings,
) -> dict[str, Any]:
    history, features = trainer.history, trainer.features
    name = next(iter(features.evals))
    return {
        "task": data.task.name,
        "bits": str(recipe.bits),
        "recipe": recipe.name,
        "metric": main_metric(data.task, history.best["scores"]),
        "teacher": teacher_scores,
        "student": {"best": history.best, "final": history.evaluations[-1]},
        "evaluations": history.evaluations,
        "confusion": {
            "labels": list(data.task.labels or ()),
            "teacher": confusion(data.task, trainer.teacher_logits[name], features.evals[name]),
        },
        **measured,
        "train_rows": len(data.train or ()),
        "seed": settings.seed,
        "versions": versions(),
    }


def _write(
    output: Path, work: Path, tokenizer: Any, recipe: Recipe, metrics: dict[str, Any], settings: Settings
) -> None:
    best = packed.read(work / "best")
    model = packed.PackedModel(best.config, best.tensors, best.bits, best.recipe, metrics)
    tokenizer.save_pretrained(work / "tokenizer")
    files: dict[str, Any] = {path.name: path for path in (work / "tokenizer").iterdir()}
    files["recipe.yaml"] = recipe.to_yaml().encode()
    files["README.md"] = model_card(output.name, model, metrics).encode()
    packed.write(output, model, extra_files=files, force=settings.force)
    if not settings.keep_checkpoints:
        shutil.rmtree(work)


def features_of(data: TaskData, folder: str, network: PreTrainedModel) -> Features:
    """A task's rows as the model in `folder` reads them."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return tokenize(data, tokenizer, getattr(network.config, "max_position_embeddings", None))
