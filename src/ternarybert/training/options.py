"""`TrainingOptions`: choices that do not change what is trained, only how and where; and the plan of a run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ternarybert.data.task import Task, TaskData
from ternarybert.errors import OptionError
from ternarybert.recipe import Recipe
from ternarybert.training.callbacks import TrainingCallback
from ternarybert.training.checkpoints import digest, digest_of_weights, processes
from ternarybert.training.time_budget import TimeBudget


@dataclass(frozen=True)
class TrainingOptions:
    """How and where to train; everything that decides the result besides the recipe is in `run_plan`."""

    seed: int = 42
    device: str | None = None  # "cpu" or "cuda"; None: cuda if available, else cpu
    bf16: bool = False
    accumulation: int = 1  # micro-batches per step; the batch size stays the recipe's
    evaluations: int = 10  # how often to evaluate and save during a run, evenly spaced, the last time at its end
    max_steps: int = -1  # -1: as many as the recipe's epochs have
    report_to: str = "none"  # trackers that accelerate knows, separated by commas: tensorboard, wandb, all
    resume: bool = False
    force: bool = False
    keep_last: bool = False  # the model of the last evaluation instead of the best
    keep_checkpoints: bool = False
    callbacks: tuple[TrainingCallback, ...] = ()
    time_budget: TimeBudget | None = None  # ends the run instead of a number of steps

    def __post_init__(self) -> None:
        """Refuse a device that is not there; falling back to the CPU could take days."""
        if self.device not in (None, "cpu", "cuda"):
            raise OptionError(f"device is '{self.device}', and must be 'cpu', 'cuda' or None")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise OptionError("device is 'cuda', but torch finds no CUDA device; use 'cpu' or None")

    @property
    def precision(self) -> str:
        """The name of the precision in reports."""
        return "bf16" if self.bf16 else "float32"

    @property
    def uses_cpu(self) -> bool:
        """Whether the run takes place on the CPU. Other accelerators lack float64, which exact evaluation needs."""
        return self.device == "cpu" or not torch.cuda.is_available()


def run_plan(model: str | Path, data: TaskData[Task], recipe: Recipe, options: TrainingOptions) -> dict[str, Any]:
    """Everything that decides the result; a run can only be resumed with the same."""
    task, folder = data.task, Path(model)
    return {
        "model": [str(folder.resolve()), digest_of_weights(folder)] if folder.is_dir() else str(model),
        "data": [task.name, digest(data), task.identity(), task.max_length],
        "recipe": recipe.to_dict(),
        "seed": options.seed,
        "number of steps": options.max_steps,
        "number of seconds": None if options.time_budget is None else options.time_budget.seconds,
        "number of evaluations": options.evaluations,
        "batch split": [options.accumulation, processes()],
        "precision": options.precision,
        "choice of the model": "last" if options.keep_last else None,
    }
