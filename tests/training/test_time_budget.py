"""The clock, with a time that the test moves: when it asks, when it stops, and how a resumed run goes on."""

from types import SimpleNamespace

import pytest

from ternarybert.training.time_budget import Clock


class Run:
    """Steps of a second each, evaluations of three, as a Trainer would call."""

    def __init__(self, seconds, tmp_path, evaluations=3, resumed=False, step=0):
        self.time = 100.0
        self.clock = Clock(seconds, evaluations, lambda: self.time)
        self.clock.attach(tmp_path, resumed=resumed)
        self.state = SimpleNamespace(global_step=step, max_steps=10_000_000)
        self.evaluated, self.saved = [], []
        self.clock.on_train_begin(None, self.state, None)

    def step(self):
        control = SimpleNamespace(should_training_stop=False, should_evaluate=False, should_save=False)
        self.time += 1.0
        self.state.global_step += 1
        self.clock.on_step_end(None, self.state, control)
        if control.should_evaluate:
            self.time += 3.0
            self.clock.on_evaluate(None, self.state, control)
            self.evaluated.append(self.state.global_step)
        if control.should_save:
            self.saved.append(self.state.global_step)
            self.clock.on_save(None, self.state, control)
        return not control.should_training_stop

    def finish(self):
        while self.step():
            pass
        self.time += 3.0  # the last evaluation
        return self


def test_it_ends_with_the_last_evaluation(tmp_path):
    run = Run(60.0, tmp_path).finish()
    assert run.clock.spent == pytest.approx(60.0, abs=1.0)
    assert run.evaluated == [20, 35]  # after 20 s of 60, and after 38 of the 57 that leave time for the last one
    assert run.clock.reserve == 3.0


def test_progress_falls_never_back_to_less_than_the_time_says(tmp_path):
    run, seen = Run(30.0, tmp_path), []
    while run.step():
        seen.append(run.clock.progress)
    assert seen == sorted(seen)
    assert run.clock.progress == 1.0


def test_the_number_of_steps_is_guessed_ever_better(tmp_path):
    run = Run(100.0, tmp_path, evaluations=1)
    for _ in range(50):
        run.step()
    assert run.state.max_steps == 100
    run.finish()
    assert run.state.max_steps == run.state.global_step


def test_a_resumed_run_goes_on_from_its_checkpoint(tmp_path):
    begun = Run(60.0, tmp_path)
    while not begun.evaluated:
        begun.step()
    saved = begun.clock.spent
    for _ in range(5):
        begun.step()  # lost with the kill
    resumed = Run(60.0, tmp_path, resumed=True, step=begun.evaluated[0])
    assert resumed.clock.spent == saved
    resumed.finish()
    assert resumed.clock.spent == pytest.approx(60.0, abs=4.0)  # it has yet to learn what an evaluation takes
    assert len(resumed.evaluated) == 1

    fresh = Run(60.0, tmp_path, resumed=False)
    assert fresh.clock.spent == 0.0


def test_where_evaluating_takes_long_only_the_last_one_is_made(tmp_path):
    run = Run(30.0, tmp_path)
    run.clock.reserve = 14.0
    while run.step():
        pass
    assert run.clock.spent == 16.0
    assert run.evaluated == []
    assert run.saved == [6, 11]  # checkpoints all the same


def test_no_time_is_one_step(tmp_path):
    run = Run(0.5, tmp_path)
    assert not run.step()
