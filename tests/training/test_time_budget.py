"""The time budget, with a time that the test moves: when it evaluates, when it stops, and how a run is resumed."""

import pytest

from ternarybert.training.time_budget import TimeBudget


class Run:
    """Steps of a second each, evaluations of three, as the trainer calls."""

    def __init__(self, seconds, evaluations=3, state=None, step=0):
        self.time, self.state = 100.0, None
        self.budget = TimeBudget(seconds, evaluations, lambda: self.time)
        self.number, self.steps = step, 10_000_000
        self.evaluated, self.saved = [], []
        self.budget.start(state)

    def step(self):
        self.time += 1.0
        self.number += 1
        self.steps = self.budget.estimate_steps(self.number)
        evaluate, save = self.budget.due()
        if evaluate:
            with self.budget.evaluating():
                self.time += 3.0
            self.evaluated.append(self.number)
        if save:
            self.saved.append(self.number)
            self.state = self.budget.state()
        return not self.budget.is_over

    def finish(self):
        while self.step():
            pass
        self.time += 3.0  # the last evaluation
        return self


def test_it_ends_with_the_last_evaluation():
    run = Run(60.0).finish()
    assert run.budget.spent == pytest.approx(60.0, abs=1.0)
    assert run.evaluated == [20, 35]  # after 20 s of 60, and after 38 of the 57 that leave time for the last one
    assert run.budget.reserve == 3.0


def test_progress_never_falls():
    run, seen = Run(30.0), []
    while run.step():
        seen.append(run.budget.progress)
    assert seen == sorted(seen)
    assert run.budget.progress == 1.0


def test_the_number_of_steps_is_guessed_ever_better():
    run = Run(100.0, evaluations=1)
    for _ in range(50):
        run.step()
    assert run.steps == 100
    run.finish()
    assert run.steps == run.number


def test_a_resumed_run_continues_from_its_checkpoint():
    begun = Run(60.0)
    while not begun.evaluated:
        begun.step()
    saved, state = begun.budget.spent, begun.state
    for _ in range(5):
        begun.step()  # lost with the kill
    resumed = Run(60.0, state=state, step=begun.evaluated[0])
    assert resumed.budget.spent == saved
    resumed.finish()
    assert resumed.budget.spent == pytest.approx(60.0, abs=4.0)  # it has yet to learn what an evaluation takes
    assert len(resumed.evaluated) == 1

    fresh = Run(60.0)
    assert fresh.budget.spent == 0.0


def test_where_evaluating_takes_long_only_the_last_one_is_made():
    run = Run(30.0)
    run.budget.reserve = 14.0
    while run.step():
        pass
    assert run.budget.spent == 16.0
    assert run.evaluated == []
    assert run.saved == [6, 11]  # checkpoints all the same


def test_no_time_is_one_step():
    run = Run(0.5)
    assert not run.step()
