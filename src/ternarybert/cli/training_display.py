"""Progress of a training run: the callback that Trainer calls, and the display that it moves.

Shows the loss, the metric, the best score so far and the time left. Imports transformers, so commands import it late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from ternarybert.cli.console import ProgressDisplay

if TYPE_CHECKING:
    from rich.console import Console

_PREFIX = "eval_"


class TrainingDisplay(TrainerCallback):  # type: ignore[misc]
    """A bar on a terminal; in a log a line per evaluation, and one a minute between two of them."""

    def __init__(self, console: Console, title: str) -> None:
        self.console = console
        # Evaluation follows the last step, so only the end of the run removes the bar.
        self.display = ProgressDisplay(console, title, unit="step", stop_when_done=False)
        self.loss = self.metric = ""

    def __enter__(self) -> TrainingDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self.display.stop()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Show the bar; a resumed run starts at its checkpoint."""
        if state.global_step:
            self.console.print(f"resumed at step {state.global_step} of {state.max_steps}")
        self.display.update(state.global_step, state.max_steps)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Move the bar. With a time budget the number of steps changes on the way."""
        # An evaluation prints its own line.
        self.display.update(state.global_step, state.max_steps, self._text(), line=not control.should_evaluate)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """Take the loss."""
        if logs and "loss" in logs:
            self.loss = f"loss {logs['loss']:.3f}"

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, float], **_: Any) -> None:
        """Take the score that the best model is chosen by, which comes first."""
        name, value = next((key, value) for key, value in metrics.items() if key.startswith(_PREFIX))
        self.metric = f"{name.removeprefix(_PREFIX)} {value:.2f} (best {metrics['eval_best']:.2f})"
        self.display.log(state.global_step, state.max_steps, self._text())

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Remove the bar."""
        self.display.stop()

    def _text(self) -> str:
        return "  ".join(part for part in (self.loss, self.metric) if part)
