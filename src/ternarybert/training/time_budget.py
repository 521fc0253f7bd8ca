"""A run that ends after a given time: the learning rate decays with time instead of steps, to zero when time is up.

How many steps fit into ten minutes depends on the method and on what else the machine does. With a schedule over time
this need not be known: a slower method takes fewer steps, and all of them end on time. Time counts from the start of
the run, preparation and evaluations included; the learning rate follows what is left when training starts. A resumed
run continues from the time of its checkpoint. On a shared machine CPU time is the fairer measure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

UNLIMITED = 10_000_000  # steps, while there is no estimate


class TimeBudget:
    """Counts from the moment it is made; decides when to evaluate, to save and to stop."""

    def __init__(self, seconds: float, evaluations: int = 3, now: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self.evaluations, self.now = seconds, evaluations, now
        self.earlier = 0.0  # seconds of interrupted runs up to their last checkpoint
        self.prepared = 0.0  # seconds before the first step
        self.reserve = 0.0  # seconds to leave for the last evaluation
        self.started = now()
        self._next = 1  # number of the next evaluation

    @property
    def spent(self) -> float:
        """Seconds since the run started, without interruptions."""
        return self.earlier + self.now() - self.started

    @property
    def progress(self) -> float:
        """The share of the time that is over, up to 1."""
        return min(1.0, self.spent / max(1e-9, self.seconds - self.reserve))

    @property
    def trained(self) -> float:
        """The share of the training time that is over, up to 1: the learning rate follows it."""
        whole = max(1e-9, self.seconds - self.reserve - self.prepared)
        return min(1.0, max(0.0, self.spent - self.prepared) / whole)

    @property
    def is_over(self) -> bool:
        """Whether only time for the last evaluation is left."""
        return self.progress >= 1.0

    def start(self, state: Mapping[str, float] | None = None) -> None:
        """Begin training; `state` is that of the checkpoint of a resumed run."""
        if state is None:
            self.prepared = self.spent
        else:
            self.earlier, self.prepared = state["seconds"], state["prepared"]
        self._next = int(self.progress * self.evaluations) + 1

    def state(self) -> dict[str, float]:
        """What a checkpoint keeps."""
        return {"seconds": self.spent, "prepared": self.prepared}

    def due(self) -> tuple[bool, bool]:
        """After a step: whether to evaluate, and whether to save a checkpoint."""
        done = self.progress
        if done >= 1.0 or done * self.evaluations < self._next:
            return False, False
        self._next = int(done * self.evaluations) + 1
        return self.spent + 2 * self.reserve <= self.seconds, True  # else there is time for the last evaluation only

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Around an evaluation: the last one is expected to take as long."""
        before = self.now()
        yield
        self.reserve = min(self.now() - before, self.seconds / 2)

    def estimate_steps(self, step: int) -> int:
        """How many steps the run will have."""
        if self.is_over:
            return step
        return max(step + 1, round(step / max(self.trained, 1e-9))) if step else UNLIMITED
