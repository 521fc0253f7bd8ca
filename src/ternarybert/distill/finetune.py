"""Fine-tuning: a pre-trained encoder becomes a teacher."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from transformers import AutoModelForSequenceClassification, PreTrainedModel
from transformers.trainer_utils import set_seed

from ternarybert.distill.features import Features
from ternarybert.distill.models import features_of, finding, load_config, load_tokenizer, refuse_packed
from ternarybert.distill.run import Evaluating, Settings, make_collator, plan, train, training_arguments, versions
from ternarybert.distill.trainer import BertTrainer
from ternarybert.distill.work import check_output, prepare_work, take_place
from ternarybert.errors import DataError
from ternarybert.recipe import Recipe, Schedule
from ternarybert.tasks import Task, TaskData

TEACHER_MARKER = "finetune.json"
SCHEDULE = Schedule(learning_rate=1e-4, warmup=0.1, gradient_clip="global")  # suits small BERTs; base likes 3e-5


class FinetuneTrainer(Evaluating, BertTrainer):
    """Fine-tunes on labels and keeps the best model by the first metric."""

    def save_best(self, model: Any) -> None:
        """Write a plain Hugging Face folder."""
        model.save_pretrained(self.work / "best")


def finetune(
    model: str, data: TaskData, output: str | Path, recipe: Recipe | None = None, settings: Settings | None = None
) -> dict[str, Any]:
    """Train `model` on the task's labels, write the best as a Hugging Face folder, and return what was measured.

    Of the recipe only the schedule counts.
    """
    recipe, settings, output = recipe or Recipe(schedule=SCHEDULE), settings or Settings(), Path(output)
    task = data.task
    if data.train is None or "label" not in data.train.column_names or not task.num_labels:
        raise DataError(f"fine-tuning on '{task.name}' needs training rows with labels")
    if not data.evals:
        raise DataError(f"'{task.name}' has no rows to evaluate on")
    check_output(output, settings, TEACHER_MARKER)
    network, tokenizer = load_encoder(model, task, settings.seed), load_tokenizer(model)
    features = features_of(data, tokenizer, network)
    work = prepare_work(output, settings, plan(model, data, recipe, settings))
    trainer = FinetuneTrainer(
        network,
        training_arguments(work, recipe, task, len(data.train), settings),
        train_dataset=features.train,
        eval_dataset=features.evals,
        data_collator=make_collator(features, recipe),
        processing_class=tokenizer,
        callbacks=list(settings.callbacks),
        recipe=recipe,
        regression=task.regression,
    )
    trainer.watch(features, task, work, {})
    measured = train(trainer, settings, work)
    report = _report(trainer, task, features, measured, settings)
    if trainer.is_world_process_zero():
        _write(output, work, tokenizer, report, settings)
    return report


def load_encoder(model: str, task: Task, seed: int) -> PreTrainedModel:
    """The model with a head for the task: its own if it has one of that size, else a new one, the same for a seed."""
    refuse_packed(model)
    load_config(model)
    labels: dict[str, Any] = {}
    if task.labels is not None:
        names = dict(enumerate(task.labels))
        labels = {"id2label": names, "label2id": {name: i for i, name in names.items()}}
    set_seed(seed)
    with finding(model):
        network: PreTrainedModel = AutoModelForSequenceClassification.from_pretrained(
            model,
            num_labels=task.num_labels,
            problem_type="regression" if task.regression else None,
            ignore_mismatched_sizes=True,  # a head for another number of classes is replaced
            **labels,
        )
    return network


def _report(
    trainer: FinetuneTrainer, task: Task, features: Features, measured: dict[str, float], settings: Settings
) -> dict[str, Any]:
    history, first = trainer.history, next(iter(features.evals))
    return {
        "task": task.name,
        "metric": history.metric,
        "best": history.best,
        "final": history.evaluations[-1],
        "evaluations": history.evaluations,
        "confusion": {"labels": list(task.labels or ()), "model": history.confusion.get(first)},
        **measured,
        "train_rows": len(features.train or ()),
        "seed": settings.seed,
        "versions": versions(),
    }


def _write(output: Path, work: Path, tokenizer: Any, report: dict[str, Any], settings: Settings) -> None:
    made = work / "made"
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(work / "best", made)
    tokenizer.save_pretrained(made)
    (made / TEACHER_MARKER).write_text(json.dumps(report, indent=1), encoding="utf-8")
    take_place(made, output)
    if not settings.keep_checkpoints:
        shutil.rmtree(work)
