"""How a caller follows a training run: a small interface that the loop in `trainer.py` calls.

Subclass `TrainingCallback`, override what you need, and pass an instance in `TrainingOptions.callbacks`. An exception
in a callback ends the run; what was trained since the last checkpoint is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass
class TrainingProgress:
    """Where a run is; the loop updates it in place."""

    step: int  # steps done
    steps: int  # of the whole run; with a time budget an estimate that gets better
    model: PreTrainedModel  # in training
    evaluation_follows: bool = False  # right after this step
    evaluation_seconds: float = 0.0  # that all evaluations of the run will take, as far as it is known beforehand
    has_time_budget: bool = False  # the run ends by the clock


class TrainingCallback:
    """Every method is called by all processes of a run, and does nothing by default."""

    def on_start(self, progress: TrainingProgress) -> None:
        """Before the first step; `progress.step` is above 0 if the run is resumed."""

    def on_step(self, progress: TrainingProgress) -> None:
        """After every step of the optimizer."""

    def on_log(self, progress: TrainingProgress, values: Mapping[str, float]) -> None:
        """Now and then: means since the last time of `loss` and, when distilling, its terms (`loss_hidden`, ...).

        Also the `learning_rate` of the last step.
        """

    def on_evaluate(self, progress: TrainingProgress, scores: Mapping[str, float]) -> None:
        """After an evaluation: means over the sets, the selected metric first, and `best`, its highest value."""

    def on_checkpoint(self, progress: TrainingProgress) -> None:
        """After a checkpoint was written: a run that is interrupted now loses nothing."""

    def on_end(self, progress: TrainingProgress) -> None:
        """After the last step and its evaluation."""
