"""Algorithm 1 on top of transformers' Trainer, which brings checkpoints, resuming, trackers and several processes.

For every batch: the student's layers quantize their weights, the student and the fixed teacher run forward, L is
computed from logits, hidden states and scores, its gradient with respect to the quantized weights goes to the
full-precision ones, and BertAdam updates those.

MERGED-DOCS:
Batches of similar lengths in random order.

Padding is work thrown away, so rows of similar length share a batch. Transformers' own sampler leaves the batches
sorted from long to short within a large part of an epoch, and draws from the global random state; here the batches are
shuffled, and an epoch's order depends on seed and epoch alone, so that a resumed run sees the same batches.

"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.data import Sampler
from transformers import PreTrainedModel, Trainer, TrainerCallback

from ternarybert.errors import DivergedError, NonFiniteError
from ternarybert.recipe import ONE_STAGE, TERMS, Recipe
from ternarybert.student import QuantizedWeight, quantized_layers
from ternarybert.training.batches import LENGTH
from ternarybert.training.heads import Head
from ternarybert.training.losses import layer_map, loss_attention, loss_hidden, without_padded_keys
from ternarybert.training.optimizer import BertAdam, linear_schedule, parameter_groups
from ternarybert.training.teacher_cache import ROW_NUMBER, Target, TeacherMemory
from ternarybert.training.time_budget import Clock

POOL = 50  # batches that are sorted together: more means less padding, fewer means more randomness


class SimilarLengths(Sampler[int]):
    """Row numbers, such that every `batch` neighbours have similar lengths."""

    def __init__(self, lengths: Sequence[int], batch: int, seed: int) -> None:
        self.lengths = torch.tensor(lengths)
        self.batch, self.seed, self.epoch = batch, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the data loader before each epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        rows = torch.randperm(len(self.lengths), generator=generator)
        batches: list[torch.Tensor] = []
        for start in range(0, len(rows), POOL * self.batch):
            pool = rows[start : start + POOL * self.batch]
            pool = pool[self.lengths[pool].argsort(stable=True)]
            batches += [pool[i : i + self.batch] for i in range(0, len(pool), self.batch)]
        # An incomplete batch stays last, or everything after it would straddle two groups.
        whole = [batch for batch in batches if len(batch) == self.batch]
        rest = [batch for batch in batches if len(batch) < self.batch]
        order = torch.randperm(len(whole), generator=generator).tolist()
        for batch in [whole[i] for i in order] + rest:
            yield from batch.tolist()


LOSS_BASED = ("lat", "laq")  # methods that read the optimizer's second moments
TEACHER_TERMS = ("hidden", "attention", "logits")


class TellEpoch(TrainerCallback):  # type: ignore[misc]
    """Tells the sampler its epoch. Accelerate's data loader fails to when a run of several processes is resumed."""

    def __init__(self, sampler: SimilarLengths) -> None:
        self.sampler = sampler

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """A resumed run begins in the middle of one."""
        self.sampler.set_epoch(int(state.epoch or 0))


class BertTrainer(Trainer):  # type: ignore[misc]
    """Fine-tuning on labels with a linear schedule: how teachers are made, with Trainer's own AdamW.

    Bias correction is on purpose: without it the first steps are three times too large for a fresh task head, and
    MiniLM on MRPC ended at 71 % accuracy.
    """

    model: Any
    optimizer: Any
    lr_scheduler: Any

    # BERT's forward takes any keyword, from which Trainer concludes that the loss is already divided by the number of
    # accumulated micro-batches. It is not.
    loss_is_scaled_for_ga = False

    def __init__(self, *args: Any, recipe: Recipe, head: Head, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.recipe, self.head, self.rows_of_step = recipe, head, 0
        self.clock: Clock | None = None

    def create_scheduler(self, num_training_steps: int, optimizer: Optimizer | None = None) -> Any:
        """Linear warm-up and decay, over the steps or by the clock."""
        if self.lr_scheduler is None:
            optimizer = self.optimizer if optimizer is None else optimizer
            warmup, clock = self.recipe.schedule.warmup, self.clock
            progress = None if clock is None else (lambda _: clock.trained)
            self.lr_scheduler = linear_schedule(optimizer, num_training_steps, warmup, progress)
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        """Similar lengths together, cut by the whole step's batch: the same rows whatever it is divided into."""
        rows = self.train_dataset if train_dataset is None else train_dataset
        grouped = self.args.train_sampling_strategy == "group_by_length"
        lengths = list(rows[LENGTH]) if grouped else [0] * len(rows)  # where all are alike the order is just random
        step = self.args.train_batch_size * self.args.gradient_accumulation_steps * self.args.world_size
        sampler = SimilarLengths(lengths, step, self.args.seed)
        self.add_callback(TellEpoch(sampler))
        return sampler

    def get_batch_samples(self, *args: Any) -> Any:
        """The micro-batches of a step; also counts their rows."""
        batches, count = super().get_batch_samples(*args)
        self.rows_of_step = sum(len(batch["input_ids"]) for batch in batches)
        return batches, count

    def share(self, inputs: dict[str, Tensor]) -> float:
        """What a micro-batch counts for beside the step's others: 1, or less or more where they differ in size.

        The last step of an epoch may have micro-batches of 8 and 1 rows, of which Trainer would take a plain mean.
        """
        if not self.rows_of_step:
            return 1.0
        share: float = len(inputs["input_ids"]) * self.current_gradient_accumulation_steps / self.rows_of_step
        return share

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The head's loss on the labels."""
        inputs = dict(inputs)
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = self.head.loss_labels(self.head.logits(outputs), labels, inputs["attention_mask"])
        self.require_number(loss, inputs)
        loss = loss * self.share(inputs)
        return (loss, outputs) if return_outputs else loss

    def prediction_step(
        self, model: Any, inputs: dict[str, Tensor], prediction_loss_only: bool, ignore_keys: Any = None
    ) -> tuple[None, Tensor, Tensor | None]:
        """Logits only: evaluating needs no teacher and no loss."""
        inputs = self._prepare_inputs(inputs)
        labels = inputs.pop("labels", None)
        with torch.no_grad(), self.compute_loss_context_manager():
            logits = self.head.logits(model(**inputs))
        return None, logits.float(), labels

    def require_number(self, loss: Tensor, inputs: dict[str, Tensor]) -> None:
        """Stop at once when the loss is not a number, and say where."""
        if not math.isfinite(float(loss.detach())):
            raise self.diverged(f"the loss is {float(loss.detach())}", inputs)

    def diverged(self, what: str, inputs: dict[str, Tensor]) -> DivergedError:
        """The error that says where training went wrong, and what to try."""
        text = self.processing_class.decode(inputs["input_ids"][0], skip_special_tokens=True)
        return DivergedError(
            f"{what} at step {self.state.global_step + 1}, in a batch of {len(inputs['input_ids'])} that begins with "
            f"'{text[:60]}'; try a smaller --learning-rate"
        )


class DistillTrainer(BertTrainer):
    """Distillation-aware ternarization."""

    def __init__(self, *args: Any, teacher: PreTrainedModel, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.teacher = teacher.eval().requires_grad_(False).to(self.args.device)
        self.memory: TeacherMemory | None = None
        self.short_teacher = False  # whether it is asked in bfloat16
        self.sums: dict[str, float] = {}  # loss terms since the last log
        config, map_name = self.model.config, self.recipe.distill.layer_map
        depth = teacher.config.num_hidden_layers
        self.teacher_layers = (
            layer_map(config.num_hidden_layers, depth) if map_name == "uniform" else list(range(1, depth + 1))
        )

    def create_optimizer(self, model: Any = None) -> Any:
        """BertAdam, whose second moments LAT and LAQ read."""
        if self.optimizer is None:
            schedule = self.recipe.schedule
            groups = parameter_groups(self.model, schedule.weight_decay)
            clip = schedule.gradient_clip == "tensor"
            self.optimizer = BertAdam(groups, lr=schedule.learning_rate, clip_tensors=clip)
            read_second_moments(self.model, self.optimizer, self.recipe)
        return self.optimizer

    def compute_loss(
        self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """L = L_trm + L_pred, with the terms that the recipe and the running stage have."""
        inputs = dict(inputs)
        labels, rows = inputs.pop("labels", None), inputs.pop(ROW_NUMBER, None)
        weights = self.term_weights()
        wanted = {"output_hidden_states": weights["hidden"] > 0, "output_attentions": weights["attention"] > 0}
        try:
            outputs = model(**inputs, **wanted)
        except NonFiniteError as error:
            raise self.diverged(str(error), inputs) from error
        student = self.target(outputs)
        if not any(weights[name] for name in TEACHER_TERMS):
            target = student  # never looked at
        elif self.memory is not None and rows is not None:
            target = self.memory(rows, inputs["input_ids"].shape[1])
        else:
            with torch.no_grad(), torch.autocast(self.args.device.type, torch.bfloat16, enabled=self.short_teacher):
                target = self.target(self.teacher(**inputs, **wanted))
        terms = self.loss_terms(student, target, labels, inputs["attention_mask"], weights)
        loss = torch.stack([weights[name] * value for name, value in terms.items()]).sum()
        self.require_number(loss, inputs)
        for name, value in terms.items():
            self.sums[name] = self.sums.get(name, 0.0) + float(value.detach())
        self.sums["batches"] = self.sums.get("batches", 0.0) + 1
        loss = loss * self.share(inputs)
        return (loss, outputs) if return_outputs else loss

    def target(self, outputs: Any) -> Target:
        """What the losses read of a model's outputs."""
        return Target(self.head.logits(outputs).float(), outputs.hidden_states or (), outputs.attentions or ())

    def loss_terms(
        self, student: Target, teacher: Target, labels: Tensor | None, mask: Tensor, weights: dict[str, float]
    ) -> dict[str, Tensor]:
        """The loss terms that count, unweighted."""
        distill, terms = self.recipe.distill, {}
        real = mask if distill.masked else None
        if weights["hidden"]:
            picked = [teacher.hidden_states[layer] for layer in [0, *self.teacher_layers]]
            terms["hidden"] = loss_hidden(student.hidden_states, picked, real)
        if weights["attention"]:
            ours, theirs = list(student.attentions), [teacher.attentions[layer - 1] for layer in self.teacher_layers]
            if real is None:
                ours, theirs = ([without_padded_keys(a, mask) for a in scores] for scores in (ours, theirs))
            terms["attention"] = loss_attention(ours, theirs, real)
        if weights["logits"]:
            terms["logits"] = self.head.loss_pred(student.logits, teacher.logits, real, distill.sce)
        if weights["labels"]:
            if labels is None:
                raise DivergedError("the recipe weighs labels (distill.labels), but the data have none")
            terms["labels"] = self.head.loss_labels(student.logits, labels, mask)
        return terms

    def term_weights(self) -> dict[str, float]:
        """The weight of each loss term in the stage that the current step falls into."""
        progress = self.state.global_step / max(1, self.state.max_steps)
        end = 0.0
        for stage in self.recipe.stages or ONE_STAGE:
            end += stage.share
            if progress < end:
                break
        return {term: getattr(self.recipe.distill, term) if term in stage.terms else 0.0 for term in TERMS}

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Add the mean of every loss term since the last log."""
        if "loss" in logs and self.sums:
            batches = self.sums.pop("batches")
            logs.update({f"loss_{name}": total / batches for name, total in self.sums.items()})
            self.sums = {}
        super().log(logs, *args, **kwargs)


def read_second_moments(student: torch.nn.Module, optimizer: Optimizer, recipe: Recipe) -> None:
    """Let the student's layers see the optimizer's second moments of their own weights."""
    if recipe.weight.method not in LOSS_BASED and recipe.embedding.method not in LOSS_BASED:
        return
    for _, layer in quantized_layers(student):
        layer.second_moment = partial(_second_moment, optimizer, layer)


def _second_moment(optimizer: Optimizer, layer: QuantizedWeight) -> Tensor | None:
    # Not `state[...]`: that would make an empty entry, which the optimizer takes for an initialised one.
    moment: Tensor | None = optimizer.state.get(layer.weight, {}).get("exp_avg_sq")
    return moment
