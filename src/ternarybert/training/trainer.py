"""The training loop: Algorithm 1 of the paper, on accelerate.

`Trainer.train` is the algorithm. For each batch, the student's layers ternarize their weights in the forward pass
(ŵ = Q_w(w), `student/layers.py`), the fixed teacher gives its outputs, L is computed from logits, hidden states and
attention scores, ∂L/∂ŵ is applied to the full-precision weights w (straight-through), and BertAdam updates those.

Fine-tuning is the same loop without a teacher: L is then the loss on the labels, and the optimizer is AdamW.

A checkpoint holds weights, optimizer, random state and position, so a resumed run equals an uninterrupted one bit for
bit. A step has the same rows however it is split: k micro-batches, or k processes, equal one batch.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from itertools import count
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from safetensors.torch import load_model, save_model
from torch import Tensor
from torch.nn.utils import clip_grad_norm_
from transformers import PreTrainedModel
from transformers.trainer_utils import set_seed

from ternarybert.errors import DataError, DivergedError, NonFiniteError, OptionError, OutputError
from ternarybert.recipe import ONE_STAGE, TERMS, Recipe
from ternarybert.training.average import AverageWeights
from ternarybert.training.batches import Batch, Collator, TokenizedData, TrainingBatches
from ternarybert.training.callbacks import TrainingProgress
from ternarybert.training.checkpoints import STATE, last_checkpoint, process_file
from ternarybert.training.device import make_accelerator, random_state, restore_random_state, set_precision
from ternarybert.training.heads import Head
from ternarybert.training.history import RunEvaluator
from ternarybert.training.intervention import TeacherInputs, fed_layers, intervention_probability
from ternarybert.training.losses import DistillationOutputs, distillation_losses, teacher_layers
from ternarybert.training.optimizer import OPTIMIZERS, learning_rate_factor, read_second_moments
from ternarybert.training.options import TrainingOptions
from ternarybert.training.report import RunReport, versions
from ternarybert.training.teacher import Teacher
from ternarybert.training.teacher_cache import ROW_NUMBER
from ternarybert.training.time_budget import UNLIMITED
from ternarybert.training.variances import TeacherVariances

LOGS_PER_EVALUATION = 5
LOG_EVERY = 20  # steps at most, where a time budget decides how many there are
AVERAGE = "average.pt"  # the file of a checkpoint that holds the averaged weights, if there are any


class Trainer:
    """Trains one model: a student with a teacher, or any model on labels."""

    def __init__(
        self,
        model: PreTrainedModel,
        head: Head[Any],
        tokenized: TokenizedData,
        recipe: Recipe,
        options: TrainingOptions,
        evaluator: RunEvaluator,
        *,
        teacher: Teacher | None = None,
        optimizer: str = "bertadam",
        accelerator: Accelerator | None = None,
    ) -> None:
        """`optimizer` is bertadam, the paper's, or adamw, which suits a new head better."""
        self.model, self.head, self.tokenized, self.recipe, self.options = model, head, tokenized, recipe, options
        self.evaluator, self.teacher, self.work = evaluator, teacher, evaluator.work
        self.uses_autocast = set_precision(model, options)
        self.accelerator = accelerator or make_accelerator(options, self.work, recipe)
        self.device = self.accelerator.device
        self.wrapped = self.accelerator.prepare_model(model)  # on the device; for several processes in DDP
        self.optimizer = OPTIMIZERS[optimizer](model, recipe.schedule)
        read_second_moments(model, self.optimizer, recipe)  # loss-aware ternarization needs them

        self.batches, epochs = self._training_batches()
        steps = max(1, math.ceil(epochs * self.batches.steps_per_epoch))
        if options.max_steps > 0:
            steps, epochs = options.max_steps, options.max_steps * self.batches.step_rows / len(self.batches.rows)
        self.evaluation_steps = evaluation_steps(steps, options.evaluations)
        self.log_every = max(1, steps // max(1, options.evaluations) // LOGS_PER_EVALUATION)
        if options.time_budget is not None:
            steps, epochs, self.log_every = UNLIMITED, math.inf, min(self.log_every, LOG_EVERY)
        self.progress = TrainingProgress(0, steps, model, has_time_budget=options.time_budget is not None)

        self.cache, self.teacher_layers = None, []
        if teacher is not None:
            teacher.model.to(self.device)
            self.progress.evaluation_seconds = teacher.seconds * len(self.evaluation_steps)
            self.cache = teacher.cache_for(recipe, self.batches.collate, epochs, self.accelerator.num_processes)
            self.teacher_layers = teacher_layers(model.config, teacher.model.config, recipe.distill)
        self.variances = self._variances()
        self.average = AverageWeights(model, recipe.schedule.average) if recipe.schedule.average else None

        self.losses: list[dict[str, float]] = []  # logged means
        self.sums: dict[str, float] = {}  # of the loss terms since the last log
        self.loss_sum = torch.zeros((), device=self.device)  # since the last log
        self.total_loss, self.last_logged, self.rows_per_second = 0.0, 0, 0.0

    def train(self) -> None:
        """Algorithm 1."""
        set_seed(self.options.seed)
        state = self.load_checkpoint() if self.options.resume else None
        budget, progress = self.options.time_budget, self.progress
        if budget is not None and state is None:
            budget.start()
        first_step, start = progress.step, time.perf_counter()
        self.wrapped.train()
        self._notify("on_start")
        for micro_batches in self._steps(state):
            self.set_learning_rate()
            rows = sum(len(batch["input_ids"]) for batch in micro_batches)
            for i, batch in enumerate(micro_batches, 1):
                with self._gradient_exchange(is_last=i == len(micro_batches)):
                    loss = self.batch_loss(batch)  # student forward, teacher outputs, L
                    # Micro-batches may differ in size; together they are a mean over the step's rows. Where they do
                    # not differ, the factor in parentheses is exactly 1, and what remains is loss / k, rounded once.
                    loss = loss * (len(batch["input_ids"]) * len(micro_batches) / rows) / len(micro_batches)
                    self.accelerator.backward(loss)  # ∂L/∂ŵ becomes the gradient of w
                self.loss_sum += loss.detach()
            if self.recipe.schedule.gradient_clip == "global":  # BertAdam itself clips by tensor
                clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()  # w ← w − η·update
            self.model.zero_grad()

            progress.step += 1
            if self.average is not None:
                self.average.update(progress.step, progress.steps)
            self._after_step()  # log, evaluate, save a checkpoint
        if self.evaluator.last_step != progress.step:
            self.evaluate()
        self.total_loss += float(self.accelerator.reduce(self.loss_sum, "mean"))
        self.loss_sum.zero_()
        self.rows_per_second = (progress.step - first_step) * self.batches.step_rows / (time.perf_counter() - start)
        self._notify("on_end")
        for tracker in self.accelerator.trackers:
            tracker.finish()

    def _after_step(self) -> None:
        budget, progress = self.options.time_budget, self.progress
        if budget is not None:
            progress.steps = budget.estimate_steps(progress.step)
        progress.evaluation_follows, save = self._due()
        self._notify("on_step")
        self.log()
        if progress.evaluation_follows:
            self.evaluate()
        if save:
            self.save_checkpoint()
            self._notify("on_checkpoint")

    @property
    def is_over(self) -> bool:
        """Whether all steps are done, or at least one and the time is up."""
        budget = self.options.time_budget
        if budget is None:
            return self.progress.step >= self.progress.steps
        return self.progress.step > 0 and budget.is_over

    def _steps(self, state: dict[str, Any] | None) -> Iterator[list[Batch]]:
        """The micro-batches of one step after the other; `state` is the random state of a resumed run."""
        per_epoch = self.batches.steps_per_epoch
        # A run that is resumed at the end of an epoch first continues with the zero steps that are left of it.
        for epoch in count(max(0, self.progress.step - 1) // per_epoch):
            steps = self.batches.epoch(epoch, skip=self.progress.step - epoch * per_epoch)
            if state is not None:
                restore_random_state(state)
                state = None
            for micro_batches in steps:
                if self.is_over:
                    return
                yield [{name: value.to(self.device) for name, value in batch.items()} for batch in micro_batches]
            if self.is_over:
                return

    def batch_loss(self, batch: Batch) -> Tensor:
        """L = L_trm + L_pred of a batch, with the terms that the recipe and the running stage have."""
        weights = self.term_weights()
        inputs = {name: value for name, value in batch.items() if name not in ("labels", ROW_NUMBER)}
        mask, labels, terms = inputs["attention_mask"], batch.get("labels"), {}
        fed, teacher = self.fed_layers(), None
        if any(fed) or weights["hidden"] or weights["attention"] or weights["logits"]:
            teacher = self.teacher_outputs(inputs, weights, batch.get(ROW_NUMBER), hidden=any(fed))
        student = self.student_outputs(inputs, weights, teacher if any(fed) else None, fed)
        if teacher is not None:
            distill, layers = self.recipe.distill, self.teacher_layers
            terms = distillation_losses(
                self.head, student, teacher, mask, distill, weights, layers, self.variances, labels
            )
        if weights["labels"]:
            if labels is None:
                raise DataError("the recipe has a weight for labels (distill.labels), but the data have none")
            terms["labels"] = self.head.loss_labels(student.logits, labels, mask)
        loss = torch.stack([weights[name] * value for name, value in terms.items()]).sum()
        if not math.isfinite(float(loss.detach())):
            raise self._diverged(f"the loss is {float(loss.detach())}", inputs)
        for name, value in terms.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value.detach())
        self.sums["batches"] = self.sums.get("batches", 0.0) + 1
        return loss

    def student_outputs(
        self,
        inputs: Batch,
        weights: dict[str, float],
        teacher: DistillationOutputs | None = None,
        fed: Sequence[bool] = (),
    ) -> DistillationOutputs:
        """Ternarize the weights and run the student forward; with a teacher, the layers in `fed` get its input."""
        try:
            with self.precision():
                if teacher is None:
                    return self._outputs(self.wrapped(**inputs, **_wanted(weights)))
                feeder, below = TeacherInputs(self.model), [0, *self.teacher_layers[:-1]]
                with feeder.feeding([teacher.hidden_states[layer] for layer in below], fed):
                    outputs = self._outputs(self.wrapped(**inputs, **_wanted(weights)))
                return replace(outputs, hidden_states=feeder.own_states(outputs.hidden_states))
        except NonFiniteError as error:
            raise self._diverged(str(error), inputs) from error

    def teacher_outputs(
        self, inputs: Batch, weights: dict[str, float], rows: Tensor | None, *, hidden: bool = False
    ) -> DistillationOutputs:
        """The fixed teacher's outputs, from the cache or computed now; with `hidden`, hidden states in any case."""
        if self.teacher is None:
            raise DataError("the recipe distills (distill.hidden, distill.attention, distill.logits) without a teacher")
        if self.cache is not None and rows is not None:
            return self.cache(rows, inputs["input_ids"].shape[1])
        # Also for a student whose own forward pass must not round: these outputs are not quantized.
        bf16 = torch.autocast(self.device.type, torch.bfloat16, enabled=self.options.bf16)
        with torch.no_grad(), bf16:
            return self._outputs(self.teacher.model(**inputs, **_wanted(weights, hidden=hidden)))

    @property
    def done(self) -> float:
        """The share of the steps that are done; with a time budget an estimate."""
        return self.progress.step / max(1, self.progress.steps)

    def fed_layers(self) -> list[bool]:
        """Which layers get the teacher's input in this step; none where the recipe has no intervention."""
        probability = intervention_probability(self.done, self.recipe.distill.intervention)
        return fed_layers(len(self.teacher_layers), probability, self.options.seed, self.progress.step)

    def term_weights(self) -> dict[str, float]:
        """The weight of each loss term in the stage that the current step falls into."""
        done, end = self.done, 0.0
        for stage in self.recipe.stages or ONE_STAGE:
            end += stage.share
            if done < end:
                break
        return {term: getattr(self.recipe.distill, term) if term in stage.terms else 0.0 for term in TERMS}

    def set_learning_rate(self) -> None:
        """Linear warm-up and decay, over the steps or over the time budget."""
        budget, schedule = self.options.time_budget, self.recipe.schedule
        done = self.progress.step / self.progress.steps if budget is None else budget.trained
        for group in self.optimizer.param_groups:
            group["lr"] = schedule.learning_rate * learning_rate_factor(done, schedule)

    def log(self) -> None:
        """Every few steps: the mean loss since the last time, and of a student its terms."""
        step = self.progress.step
        if step % self.log_every:
            return
        total = float(self.accelerator.reduce(self.loss_sum, "mean"))
        sums = self._sums_of_all_processes()
        batches = sums.pop("batches")
        terms = {} if self.teacher is None else {name: value / batches for name, value in sums.items()}
        loss = total / (step - self.last_logged)
        self.losses.append({"loss": loss, **terms, "step": step})
        self.total_loss, self.last_logged, self.sums = self.total_loss + total, step, {}
        self.loss_sum.zero_()
        values = {"loss": loss, **{f"loss_{name}": value for name, value in terms.items()}}
        values["learning_rate"] = self.optimizer.param_groups[0]["lr"]
        self._notify("on_log", values)
        self._track("train", values)

    def _sums_of_all_processes(self) -> dict[str, float]:
        if self.accelerator.num_processes == 1:
            return dict(self.sums)
        own = torch.tensor(list(self.sums.values()), dtype=torch.float64, device=self.device)
        return dict(zip(self.sums, self.accelerator.reduce(own, "sum").tolist(), strict=True))

    def evaluate(self) -> None:
        """Score the model as it is; the evaluator keeps the best one."""
        budget, writes = self.options.time_budget, self.accelerator.is_main_process
        averaged = nullcontext() if self.average is None else self.average.applied()
        with nullcontext() if budget is None else budget.evaluating(), averaged:
            scores = self.evaluator.evaluate(self.model, self.progress.step, self.precision(), writes=writes)
        self._notify("on_evaluate", scores)
        self._track("eval", scores)

    def save_checkpoint(self) -> None:
        """Write everything that the rest of the run depends on; without its state file a checkpoint is incomplete."""
        folder, budget = self.work / f"checkpoint-{self.progress.step}", self.options.time_budget
        folder.mkdir(parents=True, exist_ok=True)
        own = {"random": random_state(), "sums": self.sums, "loss_sum": float(self.loss_sum)}
        torch.save(own, folder / process_file(self.accelerator.process_index))
        if self.accelerator.is_main_process:
            save_model(self.model, str(folder / "model.safetensors"))
            torch.save(self.optimizer.state_dict(), folder / "optimizer.pt")
            if self.average is not None:
                torch.save(self.average.state(), folder / AVERAGE)
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            state = {
                "step": self.progress.step,
                "steps": self.progress.steps,
                "losses": self.losses,
                "total_loss": self.total_loss,
                "last_logged": self.last_logged,
                "time": None if budget is None else budget.state(),
                "variances": None if self.variances is None else asdict(self.variances),
            }
            (folder / STATE).write_text(json.dumps(state), encoding="utf-8")
            for other in self.work.glob("checkpoint-*"):
                if other != folder:
                    shutil.rmtree(other, ignore_errors=True)
        self.accelerator.wait_for_everyone()  # nobody sees the new one without its state, or an old one half deleted

    def load_checkpoint(self) -> dict[str, Any] | None:
        """Continue from the last checkpoint; its random state, or None if there is no checkpoint."""
        folder = last_checkpoint(self.work)
        try:
            state = None if folder is None else self._load(Path(folder))
        except Exception as error:  # whatever torch, safetensors and json raise about damaged files
            reason = str(error).strip().split("\n")[0]
            raise OutputError(
                f"cannot resume from {folder} ({reason}); remove that folder, or use --force to start over"
            ) from error
        self._check_same_step()
        return state

    def _check_same_step(self) -> None:
        """Refuse to continue if processes have found different checkpoints, as without a shared file system."""
        own = torch.tensor([self.progress.step], device=self.device)
        steps = [int(step) for step in self.accelerator.gather(own)]
        if len(set(steps)) > 1:
            raise OutputError(
                f"the processes would resume at different steps: {', '.join(map(str, steps))}; {self.work} must be "
                "the same folder for all of them"
            )

    def _load(self, folder: Path) -> dict[str, Any]:
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        load_model(self.model, str(folder / "model.safetensors"))
        # Of several processes on CPUs the device is cpu:0, which torch.load does not know.
        device = "cpu" if self.device.type == "cpu" else self.device
        self.optimizer.load_state_dict(torch.load(folder / "optimizer.pt", device, weights_only=True))
        if self.average is not None:
            self.average.load(torch.load(folder / AVERAGE, device, weights_only=True))
        if self.variances is not None:
            self.variances = TeacherVariances.from_dict(state["variances"])
        self.progress.step, self.progress.steps = state["step"], state["steps"]
        self.losses, self.total_loss, self.last_logged = state["losses"], state["total_loss"], state["last_logged"]
        if self.options.time_budget is not None:
            self.options.time_budget.start(state["time"])
        own = torch.load(folder / process_file(self.accelerator.process_index), weights_only=True)
        self.sums = own["sums"]
        self.loss_sum.fill_(own["loss_sum"])
        generators: dict[str, Any] = own["random"]
        return generators

    def report(self, **more: Any) -> RunReport:
        """The report of the finished run; `more` are fields that only the caller knows."""
        history, task, steps = self.evaluator.history, self.head.task, self.progress.step
        return RunReport(
            task=task.name,
            metric=task.main_metric(history.kept.scores),
            kept="last" if history.keep_last else "best",
            best=history.kept,
            final=history.evaluations[-1],
            evaluations=tuple(history.evaluations),
            steps=steps,
            seconds=round(history.seconds, 1),
            train_rows=len(self.batches.rows),
            seed=self.options.seed,
            versions=versions(),
            labels=task.class_names,
            confusion=history.confusion.get(next(iter(self.tokenized.evals))),
            calibration=self._calibration(),
            losses=tuple(self.losses),
            train_loss=self.total_loss / max(1, steps),
            examples_per_second=round(self.rows_per_second, 2),
            teacher=None if self.teacher is None else self.teacher.report(),
            **more,
        )

    def _calibration(self) -> dict[str, Any] | None:
        found = {"student" if self.teacher else "model": self.evaluator.history.calibration}
        if self.teacher is not None:
            found["teacher"] = self.teacher.calibration()
        return found if all(found.values()) else None

    def precision(self) -> AbstractContextManager[Any]:
        """Around the model's forward passes."""
        return torch.autocast(self.device.type, torch.bfloat16) if self.uses_autocast else nullcontext()

    def _training_batches(self) -> tuple[TrainingBatches, float]:
        """The batches, and for how many epochs."""
        schedule, task, parts = self.recipe.schedule, self.head.task, self.options.accumulation
        batch = schedule.batch_size or task.batch_size
        if batch % parts:
            raise OptionError(f"a batch of {batch} does not divide into {parts} micro-batches")
        batches = TrainingBatches(
            self.tokenized.train_rows,
            Collator(self.tokenized.tokenizer, schedule.pad, self.tokenized.max_length),
            batch // parts,
            parts,
            self.options.seed,
            by_length=schedule.pad == "dynamic",
            process=self.accelerator.process_index,
            processes=self.accelerator.num_processes,
        )
        return batches, schedule.epochs or task.epochs * schedule.stretch

    def _variances(self) -> TeacherVariances | None:
        """The constants that squared errors are divided by, if the recipe wants that."""
        if self.teacher is None or self.recipe.distill.normalize == "none":
            return None
        return self.teacher.variances(self.batches.collate).of_layers(self.teacher_layers)

    def _outputs(self, outputs: Any) -> DistillationOutputs:
        hidden, scores = outputs.hidden_states or (), outputs.attentions or ()
        return DistillationOutputs(self.head.logits(outputs).float(), _float32(hidden), _float32(scores))

    def _gradient_exchange(self, *, is_last: bool) -> AbstractContextManager[Any]:
        """Processes exchange gradients after their last micro-batch only."""
        return nullcontext() if is_last else self.accelerator.no_sync(self.wrapped)

    def _due(self) -> tuple[bool, bool]:
        """Whether to evaluate, and to save, after this step."""
        if self.options.time_budget is not None:
            return self.options.time_budget.due()
        due = self.progress.step in self.evaluation_steps
        return due, due

    def _notify(self, event: str, *values: Any) -> None:
        for callback in self.options.callbacks:
            getattr(callback, event)(self.progress, *values)

    def _track(self, part: str, values: dict[str, float]) -> None:
        self.accelerator.log({f"{part}/{name}": value for name, value in values.items()}, self.progress.step)

    def _diverged(self, what: str, inputs: Batch) -> DivergedError:
        text = self.tokenized.tokenizer.decode(inputs["input_ids"][0], skip_special_tokens=True)
        return DivergedError(
            f"{what} at step {self.progress.step + 1}, in a batch of {len(inputs['input_ids'])} that begins with "
            f"'{text[:60]}'; try a smaller --learning-rate"
        )


def evaluation_steps(steps: int, evaluations: int) -> set[int]:
    """After which steps to evaluate: `evaluations` times, evenly spaced, the last time at the end."""
    times = max(1, evaluations)
    return {-(-steps * i // times) for i in range(1, times + 1)}


def _wanted(weights: dict[str, float], *, hidden: bool = False) -> dict[str, bool]:
    return {"output_hidden_states": weights["hidden"] > 0 or hidden, "output_attentions": weights["attention"] > 0}


def _float32(values: Sequence[Tensor]) -> list[Tensor]:
    """What autocast computed in bfloat16 as float32; all else, such as float64, as it is."""
    return [value.float() if value.dtype is torch.bfloat16 else value for value in values]
