"""Fine-tuning: a pre-trained encoder becomes a teacher."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from transformers import PretrainedConfig, PreTrainedModel

from ternarybert.data.evaluation import check_evaluation_sets
from ternarybert.data.task import TaskData
from ternarybert.recipe import Distill, Recipe, Schedule
from ternarybert.storage import install_folder
from ternarybert.training.card import CARD, metadata, metadata_of_origin
from ternarybert.training.checkpoints import check_output, locked_run, prepare_work
from ternarybert.training.device import check_trackers, make_accelerator
from ternarybert.training.heads import head_of
from ternarybert.training.history import BEST, RunEvaluator
from ternarybert.training.models import check_tokenizer, load_encoder, load_tokenizer, set_dropout
from ternarybert.training.options import TrainingOptions, run_plan
from ternarybert.training.report import RunReport
from ternarybert.training.trainer import Trainer

TEACHER_MARKER = "finetune.json"
SCHEDULE = Schedule(learning_rate=1e-4, warmup=0.1, gradient_clip="global")  # suits small BERTs
BASE_LEARNING_RATE, BASE_WIDTH = 3e-5, 768  # for BERT-base and larger
LABELS_ONLY = Distill(hidden=0.0, attention=0.0, logits=0.0, labels=1.0)


def usual_schedule(config: PretrainedConfig) -> Schedule:
    """The schedule for a model of this width: wide ones have a smaller learning rate."""
    wide = getattr(config, "hidden_size", 0) >= BASE_WIDTH
    return replace(SCHEDULE, learning_rate=BASE_LEARNING_RATE) if wide else SCHEDULE


def finetune(
    model: str | Path,
    data: TaskData[Any],
    output: str | Path,
    recipe: Recipe | None = None,
    options: TrainingOptions | None = None,
) -> RunReport:
    """Train `model` on labels or answers, write the best one as a Hugging Face folder, and return the report.

    Only the schedule of the recipe is used; without a recipe it is `usual_schedule`.
    """
    with locked_run(Path(output)):
        return _finetune(model, data, Path(output), recipe, options or TrainingOptions())


def _finetune(
    model: str | Path, data: TaskData[Any], output: Path, recipe: Recipe | None, options: TrainingOptions
) -> RunReport:
    head = head_of(data.task)
    head.check_training_labels(data)
    check_evaluation_sets(data, has_teacher=False)
    check_trackers(options.report_to)
    check_output(output, options, TEACHER_MARKER)
    network, tokenizer = load_encoder(model, head, options.seed), load_tokenizer(model)
    check_tokenizer(tokenizer, network)
    recipe = recipe or Recipe(schedule=usual_schedule(network.config))
    set_dropout(network, recipe.schedule.dropout)
    if options.uses_cpu:  # torch's fused attention is no faster there, and slow in bfloat16 (docs/development/log.md)
        network.set_attn_implementation("eager")
    tokenized = head.tokenize(data, tokenizer, network, labeled=True)
    work = prepare_work(output, options, run_plan(model, data, recipe, options))
    labels_only = replace(recipe, distill=LABELS_ONLY, stages=None)
    accelerator = make_accelerator(options, work, labels_only)
    accelerator.wait_for_everyone()  # the first process has prepared the work folder, which the evaluator reads
    evaluator = RunEvaluator(
        head, tokenized, work, keep_last=options.keep_last, save=_save_model, is_intact=_has_weights
    )
    trainer = Trainer(
        network, head, tokenized, labels_only, options, evaluator, optimizer="adamw", accelerator=accelerator
    )
    trainer.train()
    report = trainer.report()
    if trainer.accelerator.is_main_process:
        name = output.absolute().name
        card = metadata(name, network.config.to_dict(), report, metadata_of_origin(model), quantized=False)
        _write(
            output, work, tokenizer, report, options, f"---\n{card}\n---\n# {name}\n\nFine-tuned with ternarybert.\n"
        )
    return report


def _save_model(model: PreTrainedModel, folder: Path) -> None:
    model.save_pretrained(folder)


def _has_weights(folder: Path) -> bool:
    try:
        with safe_open(folder / "model.safetensors", "pt") as weights:
            return bool(weights.keys())
    except (OSError, SafetensorError):
        return False


def _write(output: Path, work: Path, tokenizer: Any, report: RunReport, options: TrainingOptions, card: str) -> None:
    finished = work / "finished"
    shutil.rmtree(finished, ignore_errors=True)
    shutil.copytree(work / BEST, finished)
    tokenizer.save_pretrained(finished)
    (finished / CARD).write_text(card, encoding="utf-8")
    (finished / TEACHER_MARKER).write_text(json.dumps(report.to_dict(), indent=1), encoding="utf-8")
    install_folder(finished, output)
    if not options.keep_checkpoints:
        shutil.rmtree(work)
