"""What all commands share: errors as one line, Ctrl-C, the progress display, tables."""

import errno
import io
import os
import signal
import sys
import time
import warnings
from pathlib import Path

import pytest
import torch
import typer
from rich.console import Console

from ternarybert.cli.console import (
    TRAINING_ADVICE,
    ProgressDisplay,
    announce_download,
    duration,
    explain,
    handle_errors,
    make_console,
    quiet,
    show_confusion,
)
from ternarybert.errors import MODULES, MissingExtraError, OutOfMemoryError, OutputError
from tests.cli.test_train import table_rows

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
        with pytest.raises(typer.Exit) as end, handle_errors(output):
            raise KeyboardInterrupt
        assert end.value.exit_code == 130
        return capfd.readouterr().err.strip()

    return call


def test_the_command_that_goes_on(stop):
    line = "ternarybert: stopped; resume from the last checkpoint with: ternarybert ternarize 'my teacher' "
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
    assert stop().endswith("stopped before the first checkpoint; nothing was saved")


def test_an_interruption_in_its_own_words(capfd, tmp_path):
    with pytest.raises(typer.Exit) as end, handle_errors(tmp_path / "out"):
        raise KeyboardInterrupt("stopped while augmenting; all is kept")
    assert end.value.exit_code == 130
    assert capfd.readouterr().err == "\nternarybert: stopped while augmenting; all is kept\n"


FULL = OSError(errno.ENOSPC, "No space left on device")


def test_a_command_has_its_own_advice():
    with pytest.raises(OutputError, match="then wait"), handle_errors(resume="wait"):
        raise FULL
    with pytest.raises(OutOfMemoryError, match="buy some"), handle_errors(save_memory="buy some"):
        raise MemoryError
    with pytest.raises(OutputError, match="--resume"), handle_errors(**TRAINING_ADVICE):
        raise FULL
    with pytest.raises(OutputError, match="run the command again"), handle_errors():  # most commands have no --resume
        raise FULL


@pytest.mark.parametrize(
    "bug",
    [
        TypeError("forward() got some unexpected positional arguments"),
        ValueError("no space left in the vocabulary"),
        ValueError("out of memory cells"),
        KeyError("PytorchStreamWriter failed"),
        FileNotFoundError(errno.ENOENT, "No such file or directory", "weights.bin"),
        IsADirectoryError(errno.EISDIR, "Is a directory", "somewhere"),
        OSError("no error number"),
        ModuleNotFoundError("No module named 'ternarybert.gone'", name="ternarybert.gone"),
        RuntimeError("cannot read /data/out of memory/no space left/unexpected pos.csv"),
        RuntimeError("there is not enough memory in the story PytorchStreamWriter failed"),
    ],
    ids=str,
)
def test_what_looks_like_a_bug_is_not_explained_away(bug):
    assert explain(bug) is None


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Permission denied", "somewhere"),
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.EROFS, "Read-only file system", "somewhere"),
        ConnectionResetError("reset"),
        TimeoutError("slow"),
    ],
    ids=str,
)
def test_what_the_system_refuses_is_explained(error):
    assert isinstance(explain(error), OutputError)
    assert (error.filename or "") in str(explain(error))


@pytest.mark.parametrize("typed", [["--plot", "new/w.png"], ["--plot=new/w.png"], ["new/w.png"]])
@pytest.mark.parametrize("missing", ["new/w.png", "new", str(Path("new").absolute())])
def test_a_path_that_was_typed_is_the_users(monkeypatch, typed, missing):
    monkeypatch.setattr(sys, "argv", ["ternarybert", "bench", *typed])
    assert missing in str(explain(FileNotFoundError(errno.ENOENT, "No such file or directory", missing)))
    assert explain(FileNotFoundError(errno.ENOENT, "No such file or directory", "other")) is None


@pytest.mark.parametrize("extra", MODULES)
def test_a_missing_module_names_the_extra_that_has_it(extra):
    for module in MODULES[extra]:
        known = explain(ModuleNotFoundError(f"No module named '{module}.part'", name=f"{module}.part"))
        assert isinstance(known, MissingExtraError)
        extras = [each for each, modules in MODULES.items() if module in modules]  # psutil is in two
        assert any(f"{module} is missing: pip install 'ternarybert[{each}]'" in str(known) for each in extras)


def test_what_torch_says_of_memory_and_disks():
    """Its own words, which have no class or error number."""
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert isinstance(explain(caught.value), OutOfMemoryError)
    assert isinstance(explain(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")), OutOfMemoryError)
    for text in ("PytorchStreamWriter failed writing file data/0: file write failed",):
        assert "disk is full" in str(explain(RuntimeError(text)))
    real = "[enforce fail at inline_container.cc:664] . unexpected pos 64 vs 0"
    assert "disk is full" in str(explain(RuntimeError(real)))


def test_what_needs_no_missing_package_is_named():
    missing = ModuleNotFoundError("No module named 'datasets'", name="datasets")
    with pytest.raises(MissingExtraError, match=r"train.*--engine native"), handle_errors(otherwise="--engine native"):
        raise missing


def test_a_reader_that_is_done_is_no_error():
    with pytest.raises(BrokenPipeError), handle_errors():
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def test_a_missing_module_of_no_extra_is_named():
    known = explain(ModuleNotFoundError("No module named 'sentencepiece'", name="sentencepiece"))
    assert "sentencepiece" in str(known) and "ternarybert[" not in str(known)


def test_extras_install_what_their_modules_are_called():
    """Every package of an extra is known by its module, and every extra that users install has modules."""
    try:
        import tomllib
    except ModuleNotFoundError:  # Python 3.10, where pytest brings the same under another name
        import tomli as tomllib
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {
        name: each
        for name, each in project["optional-dependencies"].items()
        if name not in ("dev", "docs", "integrations")
    }
    assert set(extras) == set(MODULES)
    for name, requirements in extras.items():
        packages = {line.partition("=")[0].rstrip("><!~").replace("-", "_") for line in requirements}
        assert packages <= set(MODULES[name])


def test_quiet_restores_what_it_changed(monkeypatch):
    import datasets
    import transformers

    monkeypatch.delenv("TORCH_CPP_LOG_LEVEL", raising=False)
    logs = (transformers.logging, datasets.logging)
    before = [log.get_verbosity() for log in logs]
    transformers.logging.disable_progress_bar()
    try:
        with quiet():
            assert not transformers.logging.is_progress_bar_enabled()
            warnings.warn("not shown", stacklevel=1)
        assert not transformers.logging.is_progress_bar_enabled(), "it was disabled by the user"
        transformers.logging.enable_progress_bar()
        with pytest.raises(ValueError, match="x"), quiet():
            assert not transformers.logging.is_progress_bar_enabled()
            raise ValueError("x")
        assert transformers.logging.is_progress_bar_enabled()
    finally:
        transformers.logging.enable_progress_bar()
    assert [log.get_verbosity() for log in logs] == before
    assert "TORCH_CPP_LOG_LEVEL" not in os.environ
    with pytest.warns(UserWarning, match="shown again"):
        warnings.warn("shown again", stacklevel=1)


@pytest.mark.parametrize("shown", [True, False])
def test_quiet_leaves_the_bars_of_the_hub_as_they_were(shown):
    import transformers
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

    transformers.logging.enable_progress_bar()
    (enable_progress_bars if shown else disable_progress_bars)()
    try:
        with quiet():
            assert are_progress_bars_disabled()
        assert are_progress_bars_disabled() is not shown
        assert transformers.logging.is_progress_bar_enabled()
    finally:
        enable_progress_bars()


def test_the_hub_is_only_named_for_what_may_be_there(capfd, tmp_path):
    for model in (str(tmp_path), f"{tmp_path}/missing", "./missing", "~/missing", "a/b/c"):
        announce_download(model)
    assert capfd.readouterr().err == ""
    announce_download("org/name")
    assert capfd.readouterr().err == "no local folder 'org/name'; looking on the Hugging Face Hub\n"


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
    with pytest.raises(typer.Exit) as end, handle_errors():
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
    with handle_errors():
        Broken()
    assert told == ["broken"]


def screen(*, terminal):
    return Console(file=io.StringIO(), force_terminal=terminal, width=100)


def test_a_bar_is_gone_when_all_is_done():
    console = screen(terminal=True)
    with ProgressDisplay(console, "augmenting", unit="row") as display:
        assert console.file.getvalue() == "", "work that was done by an earlier run shows no bar"
        for done in (0, 2.5, 5):
            display.update(done, 5)
        assert console.file.getvalue().endswith("\x1b[2K")
    assert "augmenting" in console.file.getvalue() and "0/5" in console.file.getvalue()


def test_a_bar_is_gone_after_an_error():
    console = screen(terminal=True)
    with pytest.raises(ValueError, match="x"), ProgressDisplay(console, "reading") as display:
        display.update(0.5, 1.0)
        raise ValueError("x")
    assert "50%" in console.file.getvalue()
    assert console.file.getvalue().endswith("\x1b[2K")


def test_a_log_has_a_line_a_minute_and_the_time_left(monkeypatch):
    now = {"seconds": 0.0}
    monkeypatch.setattr("ternarybert.cli.console.time.monotonic", lambda: now["seconds"])
    console = screen(terminal=False)
    display = ProgressDisplay(console, "predicting", unit="row")
    for done in range(0, 1001, 100):
        now["seconds"] = done / 4  # seconds
        display.update(done, 1000)
    assert console.file.getvalue().splitlines() == [
        "row 300/1,000  3 min left",
        "row 600/1,000  2 min left",
        "row 900/1,000  25 s left",
    ]


def test_durations():
    assert [duration(seconds) for seconds in (0.4, 59, 60, 3500)] == ["0 s", "59 s", "1 min", "58 min"]
    assert [duration(seconds) for seconds in (3600, 7500)] == ["1 h 00 min", "2 h 05 min"]


def test_confusion_of_odd_and_of_many_labels(capfd):
    console = make_console(errors=False)
    show_confusion(console, ["[red]", "b"], [[1, 2], [3, 4]], "dev")
    assert table_rows(capfd.readouterr().out, "[red]") == [1, 2]
    labels = [f"label {i}" for i in range(20)]
    counts = [[0] * 20 for _ in labels]
    counts[3][4], counts[7][1] = 5, 9
    show_confusion(console, labels, counts, "dev")
    shown = capfd.readouterr().out.splitlines()
    assert [line.split() for line in shown[-2:]] == [
        ["label", "7", "label", "1", "9"],
        ["label", "3", "label", "4", "5"],
    ]
