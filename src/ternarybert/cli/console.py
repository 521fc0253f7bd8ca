"""What every command shares: the console, errors as one line, Ctrl-C, the progress display and tables.

Only typer is imported here; rich, torch and transformers are imported by the functions that need them, because a
command that needs none of them should start at once. With several processes (torchrun) only the first one prints.
"""

from __future__ import annotations

import _thread
import errno
import json
import os
import re
import shlex
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ternarybert.errors import FULL, OutOfMemoryError, OutputError, TernaryBertError, TruncationWarning, missing_module

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

RERUN = "run the same command again to resume"
STOPPED = f"stopped; {RERUN}"

_INTERRUPTED = 130  # the exit code of a command that Ctrl-C ended
_WIDTH = 120  # columns, in a file or a pipe
_LOG_INTERVAL = 60.0  # seconds between two progress lines in a log
_RESEND_DELAY = 0.01  # seconds
_FIRST_PROCESS_HEAD_START = 5  # seconds
_MOST_MISTAKES = 10
AGAIN = "run the command again"
_SAVE_MEMORY = "close other programs, or use smaller inputs"
TRAINING_ADVICE = {  # for `handle_errors`, by commands that have these options
    "resume": "resume with --resume",
    "save_memory": "try --accumulate 2 (or more), a smaller --batch-size or a smaller --max-length",
}


def is_first_process() -> bool:
    """Whether this process prints for all that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def make_console(*, errors: bool) -> Console:
    """A console that prints text as it is, on standard error or standard output."""
    from rich.console import Console

    console = Console(stderr=errors, quiet=not is_first_process(), markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDTH
    return console


def announce_download(model: str) -> None:
    """Print that a model comes from the hub: without a network, a mistyped folder takes half a minute to fail."""
    path = Path(model)
    never_a_hub_id = path.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1
    if not (path.is_dir() or never_a_hub_id):
        make_console(errors=True).print(f"no local folder '{model}'; looking on the Hugging Face Hub", soft_wrap=True)


# --- Errors and Ctrl-C ---


@contextmanager
def handle_errors(
    output: Path | None = None,
    *,
    stopped: str | None = None,
    resume: str = AGAIN,
    save_memory: str = _SAVE_MEMORY,
    otherwise: str = "",
) -> Iterator[None]:
    """Turn Ctrl-C and failures of the machine (disk, memory, permissions, missing packages) into one line each.

    `output` is the folder that a resumable run will write; after Ctrl-C the command that resumes it is printed.
    `stopped` is printed instead by commands that resume in another way. A KeyboardInterrupt that carries a message
    prints that message. `resume` and `save_memory` say what to do when the disk is full or memory runs out, `otherwise`
    what needs no package that is missing.
    """
    try:
        with resend_lost_interrupts():
            yield
    except KeyboardInterrupt as interrupt:
        if is_first_process():
            typer.echo(f"\nternarybert: {str(interrupt) or stopped or _how_to_resume(output)}", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    except TernaryBertError:
        if not is_first_process():
            # A user's mistake is seen by all processes, and the end of the first one ends the others. What is still
            # alive after a while, such as one whose loss is NaN in this process only, prints its own error.
            time.sleep(_FIRST_PROCESS_HEAD_START)
        raise
    except BrokenPipeError:  # the reader of standard output, such as `head`, is done: no error
        raise
    except Exception as error:
        known = explain(error, resume, save_memory, otherwise)
        if known is None:
            raise
        raise known from error


@contextmanager
def resend_lost_interrupts() -> Iterator[None]:
    """Send a Ctrl-C again that arrived while an object was being deleted: Python drops it there."""
    previous = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            # Sent at once it would be dropped together with this hook.
            threading.Timer(_RESEND_DELAY, _thread.interrupt_main).start()
        else:
            previous(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = previous


def explain(
    error: Exception, resume: str = AGAIN, save_memory: str = _SAVE_MEMORY, otherwise: str = ""
) -> TernaryBertError | None:
    """The failure as an error of ours if the machine or the user caused it; None if it looks like a bug."""
    if isinstance(error, ModuleNotFoundError):
        return missing_module(error, otherwise)
    if _is_disk_full(error):
        return OutputError(f"the disk is full; free some space, then {resume}. Existing files were not changed")
    if _is_out_of_memory(error):
        return OutOfMemoryError(f"out of memory; {save_memory}")
    if isinstance(error, OSError) and (_is_of_the_system(error) or _was_typed(error.filename)):
        where = f": {error.filename}" if error.filename else ""
        return OutputError(f"{error.strerror or error}{where}")
    return None


# How torch words what it has no class for.
_TORCH_SAVE = re.compile(r"PytorchStreamWriter failed|\[enforce fail at inline_container\.cc.*unexpected pos")
_TORCH_ALLOCATOR = re.compile(
    r"^(\[enforce fail at .*)?DefaultCPUAllocator: (can't allocate|not enough) memory|^CUDA out of memory"
)
# Failures that no check of ours can foresee. A missing file is none of them: paths that users name are checked, so it
# is a bug unless the path was typed.
_SYSTEM = (
    *(errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO, errno.ENXIO, errno.EBUSY, errno.EFBIG),
    *(errno.EMFILE, errno.ENFILE, errno.ENAMETOOLONG, errno.ETIMEDOUT, errno.ECONNREFUSED, errno.ENETUNREACH),
)


def _is_disk_full(error: Exception) -> bool:
    """Python's own error, or the messages of the two libraries that save tensors and have no error number."""
    if isinstance(error, OSError):
        return error.errno in FULL
    text = str(error)
    if type(error).__name__ == "SafetensorError":
        return "No space left" in text or "StorageFull" in text
    return type(error) is RuntimeError and _TORCH_SAVE.match(text) is not None


def _is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    if type(error).__name__ == "OutOfMemoryError":  # of a GPU; torch need not be imported to know it
        return type(error).__module__.partition(".")[0] == "torch"
    return type(error) is RuntimeError and _TORCH_ALLOCATOR.search(str(error)) is not None


def _is_of_the_system(error: OSError) -> bool:
    return error.errno in _SYSTEM or isinstance(error, ConnectionError | TimeoutError)


def _was_typed(filename: object) -> bool:
    """Whether a path is one of the command's arguments, or a folder above one."""
    if not isinstance(filename, str | Path) or not str(filename):
        return False
    path = Path(filename).absolute()
    for argument in sys.argv[1:]:
        typed = Path(argument.partition("=")[2] if argument.startswith("--") else argument).absolute()
        if path == typed or path in typed.parents:
            return True
    return False


def _how_to_resume(output: Path | None) -> str:
    if output is None:
        return "stopped"
    from ternarybert.training.checkpoints import work_folder

    if not any(work_folder(output).glob("checkpoint-*")):
        return "stopped before the first checkpoint; nothing was saved"
    arguments = [argument for argument in sys.argv[1:] if argument not in ("--resume", "--force")]
    # Replacing an existing model has to be confirmed again.
    flags = ["--force", "--resume"] if "--force" in sys.argv and output.exists() else ["--resume"]
    if os.environ.get("GROUP_WORLD_SIZE", "1") != "1":  # several machines; how they were started is not known here
        return f"stopped; resume from the last checkpoint with the same command and {' '.join(flags)}"
    return f"stopped; resume from the last checkpoint with: {shlex.join([*_launcher(), *arguments, *flags])}"


def _launcher() -> list[str]:
    """The command that started this process: torchrun if there are others."""
    processes = os.environ.get("WORLD_SIZE", "1")
    alone = ["ternarybert"]
    return alone if processes == "1" else ["torchrun", "--nproc-per-node", processes, "-m", *alone]


@contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings, logs and progress bars of other libraries; errors still arrive. Restores all of it."""
    with ExitStack() as restore:
        _set_environment(restore, "TORCH_CPP_LOG_LEVEL", "ERROR")  # read when torch is imported
        import datasets
        import transformers
        from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars
        from huggingface_hub.utils import logging as hub_logging

        for log in (transformers.logging, datasets.logging, hub_logging):
            restore.callback(log.set_verbosity, log.get_verbosity())
            log.set_verbosity_error()
        if transformers.logging.is_progress_bar_enabled():
            # transformers switches the bars of the hub too, on as well as off, whatever they were before.
            if are_progress_bars_disabled():
                restore.callback(disable_progress_bars)
            restore.callback(transformers.logging.enable_progress_bar)
            transformers.logging.disable_progress_bar()
        restore.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield


def _set_environment(restore: ExitStack, name: str, value: str) -> None:
    if name not in os.environ:
        os.environ[name] = value
        restore.callback(os.environ.pop, name, None)


# --- Progress ---


class ProgressDisplay:
    """How far one piece of work is: a bar on a terminal, one line a minute in a log, nothing on a quiet console.

    The bar appears with the first update. By default it disappears when all is done, so that the next display can use
    the terminal. `unit` is what is counted, such as "step"; without one the share is shown.
    """

    def __init__(self, console: Console, title: str, *, unit: str | None = None, stop_when_done: bool = True) -> None:
        self.console, self.title, self.unit, self.stop_when_done = console, title, unit, stop_when_done
        self._bar: Progress | None = None
        self._first: float | None = None  # what was done before the first update, by an earlier run
        self._started = self._last_line = 0.0

    def __enter__(self) -> ProgressDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def update(self, done: float, total: float, text: str = "", *, line: bool = True) -> None:
        """Show that so much is done; `line=False` keeps a log as it is."""
        if self._first is None:
            self._first, self._started = done, time.monotonic()
            self._last_line = self._started
        if self.console.is_terminal:
            self._move_bar(done, total, text)
        elif line and time.monotonic() - self._last_line >= _LOG_INTERVAL:
            self.log(done, total, text)

    def log(self, done: float, total: float, text: str = "") -> None:
        """Print a line now, unless there is a bar."""
        if not self.console.is_terminal:
            self._last_line = time.monotonic()
            what = self.unit or self.title
            self.console.print(f"{what} {self._position(done, total)}  {self._text(done, total, text)}")

    def stop(self) -> None:
        """Remove the bar and show the cursor again; this also has to happen after an error."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _move_bar(self, done: float, total: float, text: str) -> None:
        if done >= total and self.stop_when_done:
            self.stop()
            return
        if self.console.quiet:
            return
        shown = f"{self._position(done, total)}  {self._text(done, total, text)}"
        if self._bar is None:
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
            self._bar = Progress(*columns, console=self.console, transient=True, refresh_per_second=2)
            self._task = self._bar.add_task(self.title, total=total, text=shown)
            self._bar.start()
        self._bar.update(self._task, completed=done, total=total, text=shown)

    def _position(self, done: float, total: float) -> str:
        return f"{done / total if total else 1:.0%}" if self.unit is None else f"{int(done):,}/{int(total):,}"

    def _text(self, done: float, total: float, text: str) -> str:
        fresh = done - (self._first or 0)
        seconds = (time.monotonic() - self._started) / fresh * (total - done) if fresh > 0 else None
        return "  ".join(part for part in (text, "" if seconds is None else f"{duration(seconds)} left") if part)


def duration(seconds: float) -> str:
    """`duration(3720) == "1 h 02 min"`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


# --- Tables and closing lines ---


def make_table(*names: str, left: int = 1) -> Table:
    """An empty table; the first `left` columns are aligned to the left, the others, numbers, to the right."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i, name in enumerate(names):
        table.add_column(name, justify="right" if i >= left else "left", overflow="fold")
    return table


Scores = Mapping[str, Mapping[str, float]]  # by evaluation set, then by metric


def show_scores(console: Console, columns: Mapping[str, Scores]) -> None:
    """One row per evaluation set and metric, one column per model."""
    table = make_table("", *columns)
    rows = dict.fromkeys((part, name) for sets in columns.values() for part, scores in sets.items() for name in scores)
    for part, name in rows:
        values = [sets.get(part, {}).get(name) for sets in columns.values()]
        table.add_row(f"{part} {name}", *("" if value is None else f"{value:.2f}" for value in values))
    console.print(table)


def show_confusion(console: Console, labels: Sequence[str], counts: Sequence[Sequence[int]], title: str) -> None:
    """True labels against predicted ones; with many labels, only the most frequent mistakes."""
    from ternarybert.data.metrics import MAX_CONFUSION_CLASSES

    if len(labels) > MAX_CONFUSION_CLASSES:
        _show_mistakes(console, labels, counts, title)
        return
    console.print(f"Predictions on {title} (rows: true label, columns: prediction)")
    table = make_table("", *labels)
    for label, row in zip(labels, counts, strict=True):
        table.add_row(label, *map(str, row))
    console.print(table)


def _show_mistakes(console: Console, labels: Sequence[str], counts: Sequence[Sequence[int]], title: str) -> None:
    from ternarybert.data.metrics import mistakes

    console.print(f"Most frequent mistakes on {title} ({len(labels)} labels)")
    table = make_table("true label", "prediction", "rows", left=2)
    for n, i, j in mistakes(counts)[:_MOST_MISTAKES]:
        table.add_row(labels[i], labels[j], str(n))
    console.print(table)


def show_training(console: Console, report: Mapping[str, Any], model: str, kept: Mapping[str, Any]) -> None:
    """What `finetune` and `ternarize` print below their scores: predictions of the kept model, steps and speed."""
    confusion = report["confusion"]
    if confusion.get(model) is not None:
        title = f"{next(iter(kept['sets']))}, {report['kept']} {model}"
        show_confusion(console, confusion["labels"], confusion[model], title)
    speed = f"{report['examples_per_second']:.1f} examples/s"
    console.print(f"{report['steps']} steps in {duration(report['seconds'])}, {speed}.")


def show_next(console: Console, *command: object) -> None:
    """The command to run next, ready to be copied."""
    console.print(f"Next: {shlex.join(['ternarybert', *map(str, command)])}", soft_wrap=True)


def size_line(mb: float, mib: float, ratio: float, **_: float) -> str:
    """How small a packed model is."""
    return f"{mb:.2f} MB ({mib:.2f} MiB), {ratio:.1f} times smaller than float32"


def print_json(value: object) -> None:
    """The result as one line on standard output."""
    typer.echo(json.dumps(value))


@contextmanager
def notices() -> Iterator[None]:
    """Print warnings of the library, such as truncated texts, as one line each."""

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        typer.echo(f"ternarybert: note: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", TruncationWarning)
        warnings.showwarning = show
        yield
