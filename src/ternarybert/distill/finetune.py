"""Fine-tuning: a pre-trained encoder becomes a teacher."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from transformers import AutoModelForSequenceClassification, AutoTokenizer

from ternarybert.distill.features import tokenize
from ternarybert.distill.run import (
    Evaluating,
    Settings,
    make_collator,
    prepare_output,
    train,
    training_arguments,
    versions,
)
from ternarybert.distill.trainer import BertTrainer
from ternarybert.errors import DataError
from ternarybert.recipe import Recipe, Schedule
from ternarybert.tasks import TaskData

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
    work = prepare_output(output, settings, TEACHER_MARKER)
    tokenizer = AutoTokenizer.from_pretrained(model)
    labels: dict[str, Any] = {}
    if task.labels is not None:
        names = dict(enumerate(task.labels))
        labels = {"id2label": names, "label2id": {name: i for i, name in names.items()}}
    network = AutoModelForSequenceClassification.from_pretrained(
        model, num_labels=task.num_labels, problem_type="regression" if task.regression else None, **labels
    )
    features = tokenize(data, tokenizer)
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
    report = {
        "task": task.name,
        "metric": trainer.history.metric,
        "best": trainer.history.best,
        "final": trainer.history.evaluations[-1],
        "evaluations": trainer.history.evaluations,
        **measured,
        "seed": settings.seed,
        "versions": versions(),
    }
    if trainer.is_world_process_zero():
        best = work / "best"
        tokenizer.save_pretrained(best)
        (best / TEACHER_MARKER).write_text(json.dumps(report, indent=1), encoding="utf-8")
        if output.exists():
            shutil.rmtree(output)
        best.rename(output)
        shutil.rmtree(work)
    return report
