"""What fine-tuning and ternarization share: how a run is set up, evaluated, trained and resumed."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PrinterCallback, TrainerCallback, TrainingArguments
from transformers.trainer_utils import set_seed

import ternarybert
from ternarybert.data import Task
from ternarybert.data.metrics import mean_scores
from ternarybert.errors import OutputError, TernaryBertError
from ternarybert.recipe import TERMS, Recipe
from ternarybert.storage import read_json, write_json
from ternarybert.training.batches import Collator, Features, Logits, predict_sets
from ternarybert.training.checkpoints import (
    digest,
    digest_of_weights,
    last_checkpoint,
    processes,
)
from ternarybert.training.heads import AnyData, AnyTask, Head, main_metric
from ternarybert.training.time_budget import UNLIMITED, Clock

_CURVE = ("step", "loss", *(f"loss_{term}" for term in TERMS))  # of what Trainer logs


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
    keep_last: bool = False  # the model of the last evaluation instead of the best
    keep_checkpoints: bool = False
    callbacks: tuple[TrainerCallback, ...] = ()
    clock: Clock | None = None  # ends the run instead of a number of steps

    @property
    def precision(self) -> str:
        """For the record."""
        return "bf16" if self.bf16 else "float32"


@dataclass
class History:
    """Every evaluation of a run, and whose model is kept: the best one's, or the last one's."""

    metric: str
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    confusion: dict[str, list[list[int]]] = field(default_factory=dict)  # of the kept one, on each labelled set
    seconds: float = 0.0  # of training until the last evaluation, also before the run was resumed
    keep_last: bool = False

    @property
    def best(self) -> dict[str, Any]:
        """The evaluation with the highest score; of equals, the one that agrees most with the teacher, or the last."""

        def rank(evaluation: dict[str, Any]) -> tuple[float, float, int]:
            scores = evaluation["scores"]
            return scores[self.metric], scores.get("agreement", 0.0), evaluation["step"]

        return max(self.evaluations, key=rank)

    @property
    def kept(self) -> dict[str, Any]:
        """The evaluation whose model is kept."""
        return self.evaluations[-1] if self.keep_last else self.best

    def add(self, step: int, scores: dict[str, float], sets: dict[str, dict[str, float]]) -> bool:
        """Note an evaluation; whether its model is to be kept."""
        self.evaluations = [e for e in self.evaluations if e["step"] < step]  # a resumed run repeats some steps
        self.evaluations.append({"step": step, "scores": scores, "sets": sets})
        return bool(self.kept["step"] == step)


def plan(model: str, data: AnyData, recipe: Recipe, settings: Settings) -> dict[str, Any]:
    """Everything that decides the result; a run can only be resumed with the same."""
    task, folder = data.task, Path(model)
    kind = task.labels if isinstance(task, Task) else task.answering()
    return {
        "model": [str(folder.resolve()), digest_of_weights(folder)] if folder.is_dir() else model,
        "data": [task.name, digest(data), kind, task.max_length],
        "recipe": recipe.to_dict(),
        "seed": settings.seed,
        "number of steps": settings.max_steps,
        "number of seconds": None if settings.clock is None else settings.clock.seconds,
        "number of evaluations": settings.evaluations,
        "batch split": [settings.accumulation, processes()],
        "precision": settings.precision,
        "choice of the model": "last" if settings.keep_last else None,
    }


def on_cpu(settings: Settings) -> bool:
    """Whether a run takes place on the processor."""
    return settings.device == "cpu" or not torch.accelerator.is_available()


def training_arguments(work: Path, recipe: Recipe, task: AnyTask, rows: int, settings: Settings) -> TrainingArguments:
    """The recipe in Trainer's words."""
    schedule = recipe.schedule
    batch = schedule.batch_size or task.batch_size
    if batch % settings.accumulation:
        raise OutputError(f"a batch of {batch} does not divide into {settings.accumulation} micro-batches")
    epochs = schedule.epochs or task.epochs * schedule.stretch
    steps = settings.max_steps if settings.max_steps > 0 else max(1, int(epochs * -(-rows // (batch * processes()))))
    every, timed = max(1, steps // max(1, settings.evaluations)), settings.clock is not None
    if "tensorboard" in settings.report_to:  # by default its files would go with the work folder
        os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(work.with_suffix(".runs")))
    return TrainingArguments(
        output_dir=str(work),
        per_device_train_batch_size=batch // settings.accumulation,
        gradient_accumulation_steps=settings.accumulation,
        learning_rate=schedule.learning_rate,
        weight_decay=schedule.weight_decay,
        num_train_epochs=epochs,
        max_steps=UNLIMITED if timed else settings.max_steps,
        max_grad_norm=1.0 if schedule.gradient_clip == "global" else 0.0,
        train_sampling_strategy="group_by_length" if schedule.pad == "dynamic" else "random",
        remove_unused_columns=False,
        logging_steps=max(1, every // 5),
        eval_strategy="no" if timed else "steps",  # the clock says when
        eval_steps=every,
        save_strategy="no" if timed else "steps",
        save_steps=every,
        save_total_limit=1,
        seed=settings.seed,
        use_cpu=on_cpu(settings),
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
    head: Head
    history: History
    teacher_answers: dict[str, Any]
    work: Path
    started: float  # when the run would have begun, had it never been interrupted

    def watch(
        self, features: Features, work: Path, teacher_logits: dict[str, Logits], *, keep_last: bool = False
    ) -> None:
        """What to evaluate on, and where the best model and the history go."""
        self.features, self.work = features, work
        self.teacher_answers = {name: self.head.answers(features, name, said) for name, said in teacher_logits.items()}
        self.history = History("", keep_last=keep_last)
        if (work / "history.json").is_file():
            self.history = History(**(read_json(work / "history.json") | {"keep_last": keep_last}))
        if self.history.evaluations and not self.best_is_whole():
            raise OutputError(f"{work / 'best'}, the best model so far, is damaged or gone; --force starts anew")
        self.started = time.perf_counter() - self.history.seconds

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Scores of the model as it is, on every set; selection looks at their mean."""
        trainer: Any = self
        model = trainer.accelerator.unwrap_model(trainer.model)
        features, head = self.features, self.head
        logits = predict_sets(model, features, head.logits)
        sets = head.score_sets(features, logits, self.teacher_answers)
        scores = mean_scores(sets)
        self.history.metric = main_metric(head.task, scores)
        is_kept = self.history.add(trainer.state.global_step, scores, sets)
        self.history.seconds = time.perf_counter() - self.started
        if is_kept:
            tables = {name: head.confusion(features, name, said) for name, said in logits.items()}
            self.history.confusion = {name: table for name, table in tables.items() if table is not None}
        if trainer.is_world_process_zero():
            if is_kept:
                head.note(model.config, features, sets)
                self.save_best(model)
            write_json(self.work / "history.json", self.history.__dict__)
        logs = {f"eval_{name}": value for name, value in scores.items()}
        logs["eval_best"] = self.history.best["scores"][self.history.metric]
        trainer.log(logs)
        trainer.control = trainer.callback_handler.on_evaluate(trainer.args, trainer.state, trainer.control, logs)
        return logs

    def save_best(self, model: Any) -> None:
        """Write the model to the work folder."""
        raise NotImplementedError

    def best_is_whole(self) -> bool:
        """Whether the model that `save_best` wrote can be read."""
        raise NotImplementedError


class _EndInstead(TrainerCallback):  # type: ignore[misc]
    """Leaves out the last of the evaluations where one at the end follows a few steps later."""

    def __init__(self, evaluations: int) -> None:
        self.evaluations = evaluations

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == args.eval_steps * self.evaluations < state.max_steps:
            control.should_evaluate = control.should_save = False


class _Begun(TrainerCallback):  # type: ignore[misc]
    """Notes that a step has begun: what fails before it is the checkpoint's fault."""

    begun = False
    first_step = 0  # of a resumed run, the checkpoint's

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.first_step = state.global_step

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        self.begun = True


def train(trainer: Any, settings: Settings, work: Path) -> dict[str, float]:
    """Run the trainer to its end, evaluate once more if the last step was not, and say how long it took."""
    watcher = _Begun()
    trainer.remove_callback(PrinterCallback)  # a library never prints
    trainer.add_callback(watcher)
    set_seed(settings.seed)
    checkpoint = last_checkpoint(work) if settings.resume else None
    if settings.clock is None:
        trainer.add_callback(_EndInstead(settings.evaluations))
    else:
        trainer.clock = settings.clock
        trainer.add_callback(settings.clock)
        settings.clock.attach(work, resumed=checkpoint is not None)
    try:
        result = trainer.train(resume_from_checkpoint=checkpoint)
    except TernaryBertError:
        raise
    except Exception as error:
        if checkpoint is None or watcher.begun:
            raise
        reason = str(error).strip().split("\n")[0]
        raise OutputError(
            f"cannot continue from {checkpoint} ({reason}); remove that folder, or --force to start anew"
        ) from error
    ran, first = result.metrics["train_runtime"], watcher.first_step
    if not trainer.history.evaluations or trainer.history.evaluations[-1]["step"] != trainer.state.global_step:
        trainer.evaluate()
    return {
        "steps": trainer.state.global_step,
        "seconds": round(trainer.history.seconds, 1),
        "examples_per_second": round((trainer.state.global_step - first) * batch_of(trainer.args) / ran, 2),
        "train_loss": result.metrics["train_loss"],
    }


def losses(trainer: Any) -> list[dict[str, float]]:
    """The loss and its terms over the steps: means since the entry before. Checkpoints keep them."""
    entries = [entry for entry in trainer.state.log_history if "loss" in entry]
    return [{name.removeprefix("loss_"): entry[name] for name in entry if name in _CURVE} for entry in entries]


def batch_of(args: TrainingArguments) -> int:
    """Rows of a step, of all processes together."""
    return int(args.train_batch_size * args.gradient_accumulation_steps * args.world_size)


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
