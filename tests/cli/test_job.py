"""What is said after Ctrl-C can be typed as it stands."""

import errno
import signal
import sys
import time

import pytest
import typer

from ternarybert.cli.console import job, note_hub
from ternarybert.errors import OutputError

TYPED = ["ternarize", "my teacher", "--train", "mail.csv", "-o", "out"]


@pytest.fixture
def stop(monkeypatch, capfd, tmp_path):
    """Stop a run that has written a checkpoint; give the line that was said."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE", "GROUP_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    output = tmp_path / "out"
    (tmp_path / "out.work" / "checkpoint-5").mkdir(parents=True)

    def call(*flags, **environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["ternarybert", *TYPED, *flags])
        with pytest.raises(typer.Exit) as end, job(output):
            raise KeyboardInterrupt
        assert end.value.exit_code == 130
        return capfd.readouterr().err.strip()

    return call


def test_the_command_that_goes_on(stop):
    line = "ternarybert: stopped; continue from the last checkpoint with: ternarybert ternarize 'my teacher' "
    assert stop() == f"{line}--train mail.csv -o out --resume"
    assert stop("--resume") == f"{line}--train mail.csv -o out --resume"


def test_force_is_kept_where_there_is_a_model_to_replace(stop, tmp_path):
    assert stop("--force").endswith("-o out --resume")  # it dropped an unfinished run, and would drop this one
    (tmp_path / "out").mkdir()
    assert stop("--force").endswith("-o out --force --resume")


def test_several_processes(stop):
    alone = "torchrun --nproc-per-node 2 -m ternarybert ternarize 'my teacher' --train mail.csv -o out --resume"
    assert stop(WORLD_SIZE="2", GROUP_WORLD_SIZE="1").endswith(f"with: {alone}")
    assert stop(WORLD_SIZE="4", GROUP_WORLD_SIZE="2").endswith("with the same command and --resume")


def test_nothing_to_go_on_from(stop, tmp_path):
    (tmp_path / "out.work" / "checkpoint-5").rmdir()
    assert stop().endswith("stopped before the first checkpoint; nothing is kept")


def test_an_interruption_in_its_own_words(capfd, tmp_path):
    with pytest.raises(typer.Exit) as end, job(tmp_path / "out"):
        raise KeyboardInterrupt("stopped while augmenting; all is kept")
    assert end.value.exit_code == 130
    assert capfd.readouterr().err == "\nternarybert: stopped while augmenting; all is kept\n"


def test_a_command_says_in_its_own_words_what_to_do():
    with pytest.raises(OutputError, match=r"free some space, then wait\. Nothing"), job(go_on="wait"):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OutputError, match=r"^out of memory; buy some$"), job(less_memory="buy some"):
        raise MemoryError
    with pytest.raises(OutputError, match="go on with --resume"), job():
        raise OSError(errno.ENOSPC, "No space left on device")


def test_the_hub_is_only_named_for_what_may_be_there(capfd, tmp_path):
    for model in (str(tmp_path), f"{tmp_path}/missing", "./missing", "~/missing", "a/b/c"):
        note_hub(model)
    assert capfd.readouterr().err == ""
    note_hub("org/name")
    assert capfd.readouterr().err == "there is no folder 'org/name' here; asking the hub\n"


class Interrupted:
    """Is being deleted when Ctrl-C arrives."""

    def __del__(self):
        raise KeyboardInterrupt


@pytest.fixture
def listening():
    """A suite that runs in a shell's background is told to ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("listening")
def test_ctrl_c_while_an_object_is_deleted_is_not_lost(capfd):
    before = sys.unraisablehook
    deadline = time.monotonic() + 30
    with pytest.raises(typer.Exit) as end, job():
        Interrupted()
        while time.monotonic() < deadline:
            time.sleep(0.01)
    assert end.value.exit_code == 130
    assert time.monotonic() < deadline
    assert capfd.readouterr().err == "\nternarybert: stopped\n"
    assert sys.unraisablehook is before


def test_other_troubles_of_deleting_are_told_as_ever(monkeypatch):
    class Broken:
        def __del__(self):
            raise ValueError("broken")

    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: told.append(str(dropped.exc_value)))
    with job():
        Broken()
    assert told == ["broken"]
