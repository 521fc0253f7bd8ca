"""Progress of a training run: the callback that the training loop calls, and the display that it moves.

Shows the loss, the metric, the best score so far and the time left. After the first steps it says about how long the
whole run will take.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ternarybert.cli.console import ProgressDisplay, duration
from ternarybert.training.callbacks import TrainingCallback, TrainingProgress

if TYPE_CHECKING:
    from rich.console import Console

_TIMED_STEPS, _TIMED_SECONDS = 3, 10.0  # before the estimate; the first step of a run is slow and does not count


class TrainingDisplay(TrainingCallback):
    """A bar on a terminal; in a log a line per evaluation, and one a minute between two of them."""

    def __init__(self, console: Console, title: str) -> None:
        self.console = console
        # Evaluation follows the last step, so only the end of the run removes the bar.
        self.display = ProgressDisplay(console, title, unit="step", stop_when_done=False)
        self.loss = self.metric = ""
        self._first_step: tuple[int, float] | None = None  # its number and when it was over
        self._has_estimated = False

    def __enter__(self) -> TrainingDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self.display.stop()

    def on_start(self, progress: TrainingProgress) -> None:
        """Show the bar; a resumed run starts at its checkpoint."""
        if progress.step:
            self.console.print(f"resumed at step {progress.step} of {progress.steps}")
        self.display.update(progress.step, progress.steps)

    def on_step(self, progress: TrainingProgress) -> None:
        """Move the bar. With a time budget the number of steps is an estimate that changes."""
        self._estimate(progress)
        # An evaluation prints its own line.
        self.display.update(progress.step, progress.steps, self._text(), line=not progress.evaluation_follows)

    def on_log(self, progress: TrainingProgress, values: Mapping[str, float]) -> None:
        """Show the loss from now on."""
        self.loss = f"loss {values['loss']:.3f}"

    def on_evaluate(self, progress: TrainingProgress, scores: Mapping[str, float]) -> None:
        """Show the score that the best model is chosen by, which comes first."""
        name, value = next(iter(scores.items()))
        self.metric = f"{name} {value:.2f} (best {scores['best']:.2f})"
        self.display.log(progress.step, progress.steps, self._text())

    def on_end(self, progress: TrainingProgress) -> None:
        """Remove the bar."""
        self.display.stop()

    def _estimate(self, progress: TrainingProgress) -> None:
        """Print once about how long the rest takes, unless that is a minute or the user's own choice."""
        if self._has_estimated or progress.has_time_budget:
            return
        if self._first_step is None:
            self._first_step = progress.step, time.monotonic()
            return
        steps, seconds = progress.step - self._first_step[0], time.monotonic() - self._first_step[1]
        if steps < _TIMED_STEPS or seconds < _TIMED_SECONDS:
            return
        self._has_estimated = True
        left = seconds / steps * (progress.steps - progress.step) + progress.evaluation_seconds
        if left >= 60:
            self.console.print(f"about {duration(left)} to go")

    def _text(self) -> str:
        return "  ".join(part for part in (self.loss, self.metric) if part)
