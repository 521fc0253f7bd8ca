"""How a training run looks while it lasts: a bar on a terminal; in a log a line per evaluation and one every minute.

Both show the loss, the metric, the best so far and the time left. Imports transformers, so commands import it late.
"""

from __future__ import annotations

import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from transformers import TrainerCallback

_PREFIX = "eval_"
_SILENCE = 60.0  # seconds after which a log has another line


class ShowProgress(TrainerCallback):  # type: ignore[misc]
    """Shows a run on a console; a quiet console stays quiet."""

    def __init__(self, console: Console, verb: str) -> None:
        self.console, self.verb = console, verb
        self.bar: Progress | None = None
        self.task = TaskID(0)
        self.loss = self.metric = ""
        self.first_step, self.started, self.told = 0, 0.0, 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Start the clock; a resumed run starts it at the step where it goes on."""
        self.first_step, self.started = state.global_step, time.monotonic()
        self.told = self.started
        if state.global_step:
            self.console.print(f"resumed at step {state.global_step} of {state.max_steps}")
        if not self.console.is_terminal or self.console.quiet:
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
        )
        self.bar = Progress(*columns, console=self.console, transient=True, refresh_per_second=2)
        self.task = self.bar.add_task(self.verb, total=state.max_steps, completed=state.global_step, text="")
        self.bar.start()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Move the bar."""
        if self.bar is None:
            if time.monotonic() - self.told >= _SILENCE and not control.should_evaluate:
                self._tell(state)
        else:
            # A run that ends by the clock learns on the way how many steps it has.
            self.bar.update(self.task, completed=state.global_step, total=state.max_steps, text=self._text(state))

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """Take the loss."""
        if logs and "loss" in logs:
            self.loss = f"loss {logs['loss']:.3f}"

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, float], **_: Any) -> None:
        """Take the scores; the first is the one that the best model is chosen by."""
        name, value = next((key, value) for key, value in metrics.items() if key.startswith(_PREFIX))
        self.metric = f"{name.removeprefix(_PREFIX)} {value:.2f} (best {metrics['eval_best']:.2f})"
        if self.bar is None:
            self._tell(state)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Clear the bar away."""
        self.stop()

    def __enter__(self) -> ShowProgress:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Give the terminal back; without this a failure would leave it without a cursor."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _tell(self, state: Any) -> None:
        """A line for a log."""
        self.told = time.monotonic()
        self.console.print(f"step {state.global_step}/{state.max_steps}  {self._text(state)}")

    def _text(self, state: Any) -> str:
        done = state.global_step - self.first_step
        seconds = (time.monotonic() - self.started) / max(1, done) * (state.max_steps - state.global_step)
        return "  ".join(part for part in (self.loss, self.metric, f"{duration(seconds)} left") if part)


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"
