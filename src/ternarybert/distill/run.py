"""What fine-tuning and ternarization share: where a run keeps its files, how it is set up, evaluated and resumed.

While a run lasts, everything lies in a work folder beside the output (`OUT.work`): checkpoints and the best model so
far. The output folder appears only when it is complete. So a run that is killed loses the steps since its last
checkpoint, and nothing half-written is ever taken for a model.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint, set_seed

import ternarybert
from ternarybert.distill.features import Collator, Features, Logits, predict_logits
from ternarybert.distill.scores import main_metric, task_scores
from ternarybert.errors import OutputError
from ternarybert.recipe import Recipe
from ternarybert.tasks import Task


@dataclass(frozen=True)
class Settings:
    """Choices that do not change what is trained, only how and where."""

    seed: int = 42
    device: str | None = None  # None: cuda where there is one
    bf16: bool = False
    accumulation: int = 1  # micro-batches per step; the batch size stays the recipe's
    evaluations: int = 10  # how often to evaluate and save during a run
    max_steps: int = -1
    report_to: str = "none"
    resume: bool = False
    force: bool = False
    keep_checkpoints: bool = False
    callbacks: tuple[TrainerCallback, ...] = ()


@dataclass
class History:
    """Every evaluation of a run, and which was the best."""

    metric: str
    evaluations: list[dict[str, Any]] = field(default_factory=list)

    @property
    def best(self) -> dict[str, Any]:
        """The first evaluation with the highest score."""
        return max(self.evaluations, key=lambda e: e["scores"][self.metric])

    def add(self, step: int, scores: dict[str, float], sets: dict[str, dict[str, float]]) -> bool:
        """Note an evaluation; whether it is the best so far."""
        self.evaluations = [e for e in self.evaluations if e["step"] < step]  # a resumed run repeats some steps
        self.evaluations.append({"step": step, "scores": scores, "sets": sets})
        return bool(self.best["step"] == step)


def prepare_output(output: Path, settings: Settings, marker: str) -> Path:
    """The work folder of a run; an error if the output, or another run's work, would be lost."""
    work = output.with_name(f"{output.name}.work")
    if not is_first_process():  # what the first finds, holds for all
        return work
    if output.exists() and not settings.force:
        raise OutputError(f"{output} exists already; choose another --output, or --force to replace it")
    if output.exists() and any(output.iterdir()) and not (output / marker).is_file():
        raise OutputError(f"{output} holds something that is not a model of ours; nothing was touched")
    if work.exists() and not settings.resume:
        if not settings.force:
            raise OutputError(f"{work} holds an unfinished run; --resume continues it, --force starts anew")
        shutil.rmtree(work)
    work.mkdir(parents=True, exist_ok=True)
    return work


def is_first_process() -> bool:
    """Whether this is the process that writes; torchrun numbers them before torch.distributed is up."""
    return int(os.environ.get("RANK", "0")) == 0


def last_checkpoint(work: Path, resume: bool) -> str | None:
    """Where a resumed run continues."""
    return get_last_checkpoint(str(work)) if resume else None


def training_arguments(work: Path, recipe: Recipe, task: Task, rows: int, settings: Settings) -> TrainingArguments:
    """The recipe in Trainer's words."""
    schedule = recipe.schedule
    batch = schedule.batch_size or task.batch_size
    if batch % settings.accumulation:
        raise OutputError(f"a batch of {batch} does not divide into {settings.accumulation} micro-batches")
    epochs = schedule.epochs or task.epochs
    steps = settings.max_steps if settings.max_steps > 0 else max(1, int(epochs * -(-rows // batch)))
    every = max(1, steps // max(1, settings.evaluations))
    return TrainingArguments(
        output_dir=str(work),
        per_device_train_batch_size=batch // settings.accumulation,
        gradient_accumulation_steps=settings.accumulation,
        learning_rate=schedule.learning_rate,
        weight_decay=schedule.weight_decay,
        num_train_epochs=epochs,
        max_steps=settings.max_steps,
        max_grad_norm=1.0 if schedule.gradient_clip == "global" else 0.0,
        train_sampling_strategy="group_by_length" if schedule.pad == "dynamic" else "random",
        remove_unused_columns=False,
        logging_steps=max(1, every // 5),
        eval_strategy="steps",
        eval_steps=every,
        save_strategy="steps",
        save_steps=every,
        save_total_limit=1,
        seed=settings.seed,
        use_cpu=(settings.device == "cpu"),
        bf16=settings.bf16,
        report_to=settings.report_to,
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
    )


class Evaluating:
    """Mixed into a Trainer: evaluates on the task's own sets with its own metrics and keeps the best model.

    Every process evaluates everything: the sets are small, and the numbers are then those of one process.
    """

    features: Features
    task: Task
    history: History
    teacher_logits: dict[str, Logits]
    work: Path

    def watch(self, features: Features, task: Task, work: Path, teacher_logits: dict[str, Logits]) -> None:
        """What to evaluate on, and where the best model and the history go."""
        self.features, self.task, self.work, self.teacher_logits = features, task, work, teacher_logits
        self.history = History("")
        if (work / "history.json").is_file():
            self.history = History(**json.loads((work / "history.json").read_text(encoding="utf-8")))

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Scores of the model as it is, on every set; selection looks at their mean."""
        trainer: Any = self
        model = trainer.accelerator.unwrap_model(trainer.model)
        sets = {}
        for name, rows in self.features.evals.items():
            logits = predict_logits(model, rows, self.features.tokenizer)
            sets[name] = task_scores(self.task, logits, rows, self.teacher_logits.get(name))
        names = next(iter(sets.values())).keys()
        scores = {name: sum(s[name] for s in sets.values()) / len(sets) for name in names}
        self.history.metric = main_metric(self.task, scores)
        is_best = self.history.add(trainer.state.global_step, scores, sets)
        if trainer.is_world_process_zero():
            if is_best:
                self.save_best(model)
            (self.work / "history.json").write_text(json.dumps(self.history.__dict__), encoding="utf-8")
        logs = {f"eval_{name}": value for name, value in scores.items()}
        trainer.log(logs)
        trainer.control = trainer.callback_handler.on_evaluate(trainer.args, trainer.state, trainer.control, logs)
        return logs

    def save_best(self, model: Any) -> None:
        """Write the model to the work folder."""
        raise NotImplementedError


def train(trainer: Any, settings: Settings, work: Path) -> dict[str, float]:
    """Run the trainer to its end, evaluate once more if the last step was not, and say how long it took."""
    begin = time.perf_counter()
    set_seed(settings.seed)
    checkpoint = last_checkpoint(work, settings.resume)
    try:
        result = trainer.train(resume_from_checkpoint=checkpoint)
    except (OSError, RuntimeError, ValueError, KeyError, EOFError) as error:
        if checkpoint is not None and trainer.state.global_step == 0:
            raise OutputError(
                f"cannot continue from {checkpoint}: {error}; remove that folder or use --force"
            ) from error
        raise
    if not trainer.history.evaluations or trainer.history.evaluations[-1]["step"] != trainer.state.global_step:
        trainer.evaluate()
    return {
        "steps": trainer.state.global_step,
        "seconds": round(time.perf_counter() - begin, 1),
        "examples_per_second": round(result.metrics["train_samples_per_second"], 2),
        "train_loss": result.metrics["train_loss"],
    }


def versions() -> dict[str, str]:
    """What a figure was measured with."""
    return {
        "ternarybert": ternarybert.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
    }


def make_collator(features: Features, recipe: Recipe) -> Collator:
    """Batches padded as the recipe says."""
    return Collator(features.tokenizer, recipe.schedule.pad, features.max_length)
