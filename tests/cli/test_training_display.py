"""How a training run is shown: a bar on a terminal, lines in a log, nothing by other processes."""

import io

from rich.console import Console

from ternarybert.cli.console import make_console
from ternarybert.cli.training_display import TrainingDisplay
from ternarybert.training.callbacks import TrainingProgress


def state(step=0, follows=False):
    return TrainingProgress(step, 10, None, follows)


def test_progress_on_a_terminal():
    screen = io.StringIO()
    with TrainingDisplay(Console(file=screen, force_terminal=True, width=100), "ternarizing") as progress:
        progress.on_start(state())
        progress.on_log(state(), {"loss": 1.25})
        progress.on_evaluate(state(5), {"f1": 50.0, "best": 75.0})
        progress.on_step(state(5))
        progress.display._bar.refresh()
    shown = screen.getvalue()
    for text in ("ternarizing", "5/10", "loss 1.250", "f1 50.00 (best 75.00)", "0 s left"):
        assert text in shown
    assert shown.endswith("\x1b[2K")  # gone when done


def test_progress_in_a_log_is_a_line_a_minute(monkeypatch):
    log, now = io.StringIO(), {"seconds": 0.0}
    monkeypatch.setattr("ternarybert.cli.console.time.monotonic", lambda: now["seconds"])
    progress = TrainingDisplay(Console(file=log, width=100), "ternarizing")
    progress.on_start(state())
    for step in range(1, 7):
        now["seconds"] = 25.0 * step
        progress.on_log(state(step), {"loss": 1.25})
        progress.on_step(state(step, follows=step == 3))
    assert log.getvalue().splitlines() == [
        "about 2 min to go",
        "step 4/10  loss 1.250  2 min left",
    ]


def test_the_estimate_comes_once_after_some_steps_and_counts_evaluations(monkeypatch):
    log, now = io.StringIO(), {"seconds": 0.0}
    monkeypatch.setattr("ternarybert.cli.training_display.time.monotonic", lambda: now["seconds"])
    progress = TrainingDisplay(Console(file=log, width=100), "ternarizing")
    progress.on_start(TrainingProgress(0, 1000, None))
    for step in range(1, 40):
        now["seconds"] += 60.0 if step == 1 else 2.0  # the first step is no measure
        progress.on_step(TrainingProgress(step, 1000, None, evaluation_seconds=600.0))
    lines = [line for line in log.getvalue().splitlines() if line.startswith("about")]
    assert lines == ["about 43 min to go"]  # 994 steps of 2 s and 10 min


def test_nothing_is_estimated_where_the_user_chose_the_time_or_it_is_short(monkeypatch):
    for known in ({"has_time_budget": True}, {}):
        log, now = io.StringIO(), {"seconds": 0.0}
        monkeypatch.setattr("ternarybert.cli.training_display.time.monotonic", lambda now=now: now["seconds"])
        progress = TrainingDisplay(Console(file=log, width=100), "ternarizing")
        progress.on_start(state())
        for step in range(1, 9):
            now["seconds"] += 4.0
            progress.on_step(TrainingProgress(step, 12 if not known else 1000, None, **known))
        assert log.getvalue() == ""


def test_another_process_prints_nothing(monkeypatch, capfd):
    monkeypatch.setenv("RANK", "1")
    progress = TrainingDisplay(make_console(errors=True), "ternarizing")
    progress.on_start(state(3))
    progress.on_evaluate(state(5), {"f1": 50.0, "best": 75.0})
    assert capfd.readouterr() == ("", "")
