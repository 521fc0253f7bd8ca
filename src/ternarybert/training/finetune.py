"""Fine-tuning: a pre-trained encoder becomes a teacher."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from transformers import PretrainedConfig

from ternarybert.recipe import Recipe, Schedule
from ternarybert.storage import install_folder
from ternarybert.training.batches import Features
from ternarybert.training.checkpoints import check_output, prepare_work
from ternarybert.training.heads import AnyData, AnyTask, head_of
from ternarybert.training.models import check_tokenizer, load_encoder, load_tokenizer, set_dropout
from ternarybert.training.options import (
    Evaluating,
    Settings,
    losses,
    make_collator,
    on_cpu,
    plan,
    train,
    training_arguments,
    versions,
)
from ternarybert.training.trainer import BertTrainer

TEACHER_MARKER = "finetune.json"
SCHEDULE = Schedule(learning_rate=1e-4, warmup=0.1, gradient_clip="global")  # suits small BERTs
BASE_RATE, BASE_WIDTH = 3e-5, 768  # what BERT-base and larger ones like


class FinetuneTrainer(Evaluating, BertTrainer):
    """Fine-tunes on labels and keeps the best model by the first metric."""

    def save_best(self, model: Any) -> None:
        """Write a plain Hugging Face folder."""
        model.save_pretrained(self.work / "best")

    def best_is_whole(self) -> bool:
        """Whether its weights are there."""
        try:
            with safe_open(self.work / "best" / "model.safetensors", "pt") as weights:
                return bool(weights.keys())
        except (OSError, SafetensorError):
            return False


def usual_schedule(config: PretrainedConfig) -> Schedule:
    """How a model of this width is fine-tuned: wide ones with a smaller rate."""
    wide = getattr(config, "hidden_size", 0) >= BASE_WIDTH
    return replace(SCHEDULE, learning_rate=BASE_RATE) if wide else SCHEDULE


def finetune(
    model: str, data: AnyData, output: str | Path, recipe: Recipe | None = None, settings: Settings | None = None
) -> dict[str, Any]:
    """Train `model` on labels or answers, write the best as a Hugging Face folder, and return what was measured.

    Of the recipe only the schedule counts; without one it is the usual of the model's width.
    """
    settings, output = settings or Settings(), Path(output)
    task, head = data.task, head_of(data.task)
    head.check_labels(data)
    head.check_evals(data, has_teacher=False)
    check_output(output, settings, TEACHER_MARKER)
    network, tokenizer = load_encoder(model, head, settings.seed), load_tokenizer(model)
    check_tokenizer(tokenizer, network)
    recipe = recipe or Recipe(schedule=usual_schedule(network.config))
    set_dropout(network, recipe.schedule.dropout)
    if on_cpu(settings):  # torch's fused attention is no faster, and slow in bfloat16 (docs/development/log.md)
        network.set_attn_implementation("eager")
    features = head.features(data, tokenizer, network, labelled=True)
    assert features.train is not None  # check_labels says so
    work = prepare_work(output, settings, plan(model, data, recipe, settings))
    trainer = FinetuneTrainer(
        network,
        training_arguments(work, recipe, task, len(features.train), settings),
        train_dataset=features.train,
        eval_dataset=features.evals,
        data_collator=make_collator(features, recipe),
        processing_class=tokenizer,
        callbacks=list(settings.callbacks),
        recipe=recipe,
        head=head,
    )
    trainer.watch(features, work, {}, keep_last=settings.keep_last)
    measured = train(trainer, settings, work)
    report = _report(trainer, task, features, measured, settings)
    if trainer.is_world_process_zero():
        _write(output, work, tokenizer, report, settings)
    return report


def _report(
    trainer: FinetuneTrainer, task: AnyTask, features: Features, measured: dict[str, float], settings: Settings
) -> dict[str, Any]:
    history, first = trainer.history, next(iter(features.evals))
    return {
        "task": task.name,
        "metric": history.metric,
        "kept": "last" if history.keep_last else "best",
        "best": history.kept,
        "final": history.evaluations[-1],
        "evaluations": history.evaluations,
        "losses": losses(trainer),
        "confusion": {"labels": list(getattr(task, "labels", None) or ()), "model": history.confusion.get(first)},
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
    install_folder(made, output)
    if not settings.keep_checkpoints:
        shutil.rmtree(work)
