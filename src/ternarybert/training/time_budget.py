"""A run that ends by the clock: the learning rate falls with time, not with steps, and reaches zero when time is up.

How many steps fit into ten minutes depends on the method and on what else the machine does, and is not known before.
With a schedule over time nothing has to be known: a slower method takes fewer steps, and all end when they should.
Time is counted from the start of the job, preparing and evaluating included; the learning rate follows what is left
when training begins. A resumed run goes on counting from its
checkpoint. On a machine that others use too, the processor's time is the fairer measure.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from ternarybert.storage import read_json, write_json

UNLIMITED = 10_000_000  # steps; Trainer wants a number
_NOTE = "clock.json"  # in the work folder


class Clock(TrainerCallback):  # type: ignore[misc]
    """Counts from the moment it is made; evaluates and saves at equal distances, and stops in time to evaluate."""

    def __init__(self, seconds: float, evaluations: int = 3, now: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self.evaluations, self.now = seconds, evaluations, now
        self.earlier = 0.0  # seconds that runs before this one took up to their last checkpoint
        self.prepared = 0.0  # seconds that were over when training began
        self.reserve = 0.0  # seconds to keep for the last evaluation
        self.started = now()
        self._work = Path()
        self._asked = 0.0

    @property
    def spent(self) -> float:
        """Seconds since the job began, interruptions left out."""
        return self.earlier + self.now() - self.started

    @property
    def progress(self) -> float:
        """The share of the time that is over, up to 1."""
        return min(1.0, self.spent / max(1e-9, self.seconds - self.reserve))

    @property
    def trained(self) -> float:
        """The share of the time for training that is over, up to 1: what the learning rate follows."""
        whole = max(1e-9, self.seconds - self.reserve - self.prepared)
        return min(1.0, max(0.0, self.spent - self.prepared) / whole)

    def attach(self, work: Path, *, resumed: bool) -> None:
        """Where to keep the time; a resumed run takes it from there."""
        self._work = work
        if resumed and (work / _NOTE).is_file():
            note = read_json(work / _NOTE)
            self.earlier, self.prepared = float(note["seconds"]), float(note["prepared"])

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Find the next evaluation; those that were before a checkpoint are done."""
        if state.global_step == 0:
            self.prepared = self.spent
        self._next = int(self.progress * self.evaluations) + 1

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Ask for an evaluation when one is due, stop when time is up, and guess how many steps it will be."""
        done, now = self.progress, state.global_step
        if done >= 1.0:
            control.should_training_stop = True
        elif done * self.evaluations >= self._next:
            self._next = int(done * self.evaluations) + 1
            control.should_save = True
            if self.spent + 2 * self.reserve <= self.seconds:  # else there is time for the last evaluation only
                self._asked = self.now()
                control.should_evaluate = True
        # Trainer stops at this number on its own, one step later at the earliest: a bad guess must not end a run.
        state.max_steps = now if done >= 1.0 else max(now + 2, round(now / max(self.trained, 1e-9)))

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The last evaluation will take as long as this one."""
        if self._asked:
            self.reserve, self._asked = min(self.now() - self._asked, self.seconds / 2), 0.0

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note the time that belongs to this checkpoint."""
        write_json(self._work / _NOTE, {"seconds": self.spent, "prepared": self.prepared})
