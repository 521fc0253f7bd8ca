"""What a run found out, as tables for people.

MERGED-DOCS:
What every long command shares: where it writes, what it hushes, and how it fails.

A user's mistake, a full disk and Ctrl-C are one line each. Of several processes only the first one speaks.

---
How a training run looks while it lasts: a bar on a terminal; in a log a line per evaluation and one every minute.

Both show the loss, the metric, the best so far and the time left. Imports transformers, so commands import it late.

"""

from __future__ import annotations

import _thread
import errno
import os
import shlex
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

from ternarybert.errors import MissingExtraError, OutputError, TernaryBertError
from ternarybert.training.callbacks import TrainingCallback, TrainingProgress

if TYPE_CHECKING:
    from rich.console import Console

_WIDTH = 120  # of tables that go into a file or a pipe
_INTERRUPTED = 130  # what a shell calls a command that Ctrl-C ended
_A_MOMENT = 0.01  # seconds
_LET_THE_FIRST_SPEAK = 5  # seconds
_GO_ON = "go on with --resume"
_LESS_MEMORY = "try --accumulate 2 (or more), a smaller --batch-size or a smaller --max-length"
_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")
_NO_SPACE = ("no space left", "storagefull", "pytorchstreamwriter failed", "unexpected pos")  # the last two: torch.save


def is_first_process() -> bool:
    """Whether this process speaks for all that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def make_console(*, errors: bool) -> Console:
    """A console that prints text as it is, on standard error or output."""
    from rich.console import Console

    console = Console(stderr=errors, quiet=not is_first_process(), markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDTH
    return console


def note_hub(model: str) -> None:
    """Say that the hub is asked: out of its reach, a mistyped folder would be half a minute of silence."""
    path = Path(model)
    no_hub_id = path.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1
    if not (path.is_dir() or no_hub_id):
        make_console(errors=True).print(f"there is no folder '{model}' here; asking the hub")


@contextmanager
def job(
    output: Path | None = None, *, stopped: str | None = None, go_on: str = _GO_ON, less_memory: str = _LESS_MEMORY
) -> Iterator[None]:
    """Around the work of a command; `output` is the folder that a run which can be resumed will make.

    `stopped` is what to say after Ctrl-C instead, by a command that goes on in its own way; an interruption that has
    words of its own says these. `go_on` and `less_memory` are what to do when the disk is full or memory runs out.
    """
    try:
        with heeding_ctrl_c():
            yield
    except KeyboardInterrupt as stop:
        if is_first_process():
            typer.echo(f"\nternarybert: {str(stop) or stopped or _how_to_go_on(output)}", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    except TernaryBertError:
        if not is_first_process():
            # A user's mistake is seen by all processes, and the end of the first one ends the others. What is still
            # here afterwards, such as a loss that is NaN in this process only, has to be said here.
            time.sleep(_LET_THE_FIRST_SPEAK)
        raise
    except ModuleNotFoundError as error:
        raise MissingExtraError(f"{error.name} is missing: pip install 'ternarybert[train]'") from error
    except Exception as error:
        line = _line(error, go_on, less_memory)
        if line is None:
            raise
        raise OutputError(line) from error


@contextmanager
def heeding_ctrl_c() -> Iterator[None]:
    """Python drops a Ctrl-C that arrives while it deletes an object; here it is sent once more."""
    usual = sys.unraisablehook

    def hook(dropped: sys.UnraisableHookArgs) -> None:
        if dropped.exc_type is KeyboardInterrupt:
            threading.Timer(_A_MOMENT, _thread.interrupt_main).start()  # at once, it would be dropped with this hook
        else:
            usual(dropped)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual


@contextmanager
def quiet() -> Iterator[None]:
    """Hush what libraries say on their own while they load, train and save; errors still arrive."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # read when torch is imported
    import datasets
    import transformers
    from huggingface_hub.utils import logging as hub_logging

    logs = (transformers.logging, datasets.logging, hub_logging)
    levels = [log.get_verbosity() for log in logs]
    for log in logs:
        log.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers.logging.enable_progress_bar()
        for log, level in zip(logs, levels, strict=True):
            log.set_verbosity(level)


def _how_to_go_on(output: Path | None) -> str:
    from ternarybert.training.checkpoints import work_folder

    if output is None:
        return "stopped"
    if not any(work_folder(output).glob("checkpoint-*")):
        return "stopped before the first checkpoint; nothing is kept"
    arguments = [argument for argument in sys.argv[1:] if argument not in ("--resume", "--force")]
    # To replace an older model was asked for once and has to be asked for again.
    flags = ["--force", "--resume"] if "--force" in sys.argv and output.exists() else ["--resume"]
    if os.environ.get("GROUP_WORLD_SIZE", "1") != "1":  # several machines; how they meet is not known here
        return f"stopped; continue from the last checkpoint with the same command and {' '.join(flags)}"
    return f"stopped; continue from the last checkpoint with: {shlex.join([*_launcher(), *arguments, *flags])}"


def _launcher() -> list[str]:
    """What started this process: torchrun, if it has company."""
    processes = os.environ.get("WORLD_SIZE", "1")
    alone = ["ternarybert"]
    return alone if processes == "1" else ["torchrun", "--nproc-per-node", processes, "-m", *alone]


def _line(error: Exception, go_on: str, less_memory: str) -> str | None:
    """One line about a failure of the machine; None if it looks like a mistake of ours."""
    text = str(error).casefold()
    if (isinstance(error, OSError) and error.errno == errno.ENOSPC) or any(words in text for words in _NO_SPACE):
        return f"the disk is full; free some space, then {go_on}. Nothing that existed before was touched"
    if isinstance(error, MemoryError) or any(words in text for words in _NO_MEMORY):
        return f"out of memory; {less_memory}"
    if isinstance(error, OSError):
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror or error}{where}"
    return None


_SILENCE = 60.0  # seconds after which a log has another line


class ShowProgress(TrainingCallback):
    """Shows a run on a console; a quiet console stays quiet."""

    def __init__(self, console: Console, verb: str) -> None:
        self.console, self.verb = console, verb
        self.bar: Progress | None = None
        self.task = TaskID(0)
        self.loss = self.metric = ""
        self.first_step, self.started, self.told = 0, 0.0, 0.0

    def on_start(self, progress: TrainingProgress) -> None:
        """Start the clock; a resumed run starts it at the step where it resumes."""
        self.first_step, self.started = progress.step, time.monotonic()
        self.told = self.started
        if progress.step:
            self.console.print(f"resumed at step {progress.step} of {progress.steps}")
        if not self.console.is_terminal or self.console.quiet:
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[text]}"),
        )
        self.bar = Progress(*columns, console=self.console, transient=True, refresh_per_second=2)
        self.task = self.bar.add_task(self.verb, total=progress.steps, completed=progress.step, text="")
        self.bar.start()

    def on_step(self, progress: TrainingProgress) -> None:
        """Move the bar."""
        if self.bar is None:
            if time.monotonic() - self.told >= _SILENCE and not progress.evaluation_follows:
                self._tell(progress)
        else:
            # With a time budget the number of steps is an estimate that changes.
            self.bar.update(self.task, completed=progress.step, total=progress.steps, text=self._text(progress))

    def on_log(self, progress: TrainingProgress, values: Mapping[str, float]) -> None:
        """Show the loss from now on."""
        self.loss = f"loss {values['loss']:.3f}"

    def on_evaluate(self, progress: TrainingProgress, scores: Mapping[str, float]) -> None:
        """Show the scores from now on; models are selected by the first."""
        name, value = next(iter(scores.items()))
        self.metric = f"{name} {value:.2f} (best {scores['best']:.2f})"
        if self.bar is None:
            self._tell(progress)

    def on_end(self, progress: TrainingProgress) -> None:
        """Remove the bar."""
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

    def _tell(self, progress: TrainingProgress) -> None:
        """A line for a log."""
        self.told = time.monotonic()
        self.console.print(f"step {progress.step}/{progress.steps}  {self._text(progress)}")

    def _text(self, progress: TrainingProgress) -> str:
        done = progress.step - self.first_step
        seconds = (time.monotonic() - self.started) / max(1, done) * (progress.steps - progress.step)
        return "  ".join(part for part in (self.loss, self.metric, f"{duration(seconds)} left") if part)


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


_MOST_CLASSES = 12  # wider tables help nobody; then the most frequent mistakes are listed
_MOST_MISTAKES = 10

Scores = Mapping[str, Mapping[str, float]]  # by evaluation set, then by metric


def show_scores(console: Console, columns: Mapping[str, Scores]) -> None:
    """One row per set and metric, one column per model."""
    table = _table("", *columns)
    rows = dict.fromkeys((part, name) for sets in columns.values() for part, scores in sets.items() for name in scores)
    for part, name in rows:
        values = [sets.get(part, {}).get(name) for sets in columns.values()]
        table.add_row(f"{part} {name}", *("" if value is None else f"{value:.2f}" for value in values))
    console.print(table)


def show_confusion(console: Console, labels: Sequence[str], counts: Sequence[Sequence[int]], title: str) -> None:
    """True classes against answers, by name."""
    if len(labels) > _MOST_CLASSES:
        _show_mistakes(console, labels, counts, title)
        return
    console.print(f"Answers on {title} (rows: true label, columns: answer)")
    table = _table("", *labels)
    for label, row in zip(labels, counts, strict=True):
        table.add_row(label, *map(str, row))
    console.print(table)


def _show_mistakes(console: Console, labels: Sequence[str], counts: Sequence[Sequence[int]], title: str) -> None:
    from ternarybert.data.metrics import mistakes

    console.print(f"Most frequent mistakes on {title}, of {len(labels)} labels")
    table = _table("true label", "answer", "rows")
    for n, i, j in mistakes(counts)[:_MOST_MISTAKES]:
        table.add_row(labels[i], labels[j], str(n))
    console.print(table)


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i, name in enumerate(names):
        table.add_column(name, justify="right" if i else "left", overflow="fold")
    return table


def size_line(mb: float, mib: float, ratio: float, **_: float) -> str:
    """How small a packed model is."""
    return f"{mb:.2f} MB ({mib:.2f} MiB), {ratio:.1f} times smaller than float32"
