"""`predict --input`: a file of any length in constant memory, written in steps that survive being killed.

The same command goes on where an earlier one was stopped. Answers do not depend on the batch, so the file is the same
to the last byte.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ternarybert.cli.console import handle_errors as long_job
from ternarybert.cli.format import as_columns, as_json, as_line, columns_of
from ternarybert.data.readers import Rows, open_rows, sample
from ternarybert.data.table import choose_columns
from ternarybert.data.writers import Format, format_of
from ternarybert.errors import DataError, OptionError, suggest
from ternarybert.runtime.model import Answerer
from ternarybert.storage import ResumableFile

if TYPE_CHECKING:
    from rich.progress import Progress

    from ternarybert.cli.options import AnswerOptions, InputOptions
    from ternarybert.runtime import Model
    from ternarybert.runtime.text import Text

_STEP_SECONDS, _STEP_ROWS = 0.5, 10_000  # between two writes


@dataclass
class Report:
    """What became of a file."""

    rows: int = 0
    resumed: int = 0  # rows that an earlier run had done
    without_text: int = 0
    started: float = field(default_factory=time.monotonic)

    def numbers(self) -> dict[str, Any]:
        """What was done so far, and how fast."""
        seconds = max(time.monotonic() - self.started, 1e-9)
        counts = {"rows": self.rows, "resumed": self.resumed, "without_text": self.without_text}
        speed = (self.rows - self.resumed) / seconds
        return {**counts, "seconds": round(seconds, 2), "rows_per_second": round(speed, 1)}


def predict_file(model: Model, folder: Path, source: InputOptions, answers: AnswerOptions) -> None:
    """Answer every row of a file."""
    assert source.input is not None
    rows = open_rows(source.input)
    columns = _columns(model, rows, source)
    report = Report()
    with long_job():
        if answers.output is None:
            form = as_json if answers.as_json else as_line
            for _, text, answer in _answered(model, iter(rows), rows, columns, report):
                typer.echo(form(text, answer, every=answers.every))
            return
        try:
            _write(model, folder, rows, columns, answers, report)
        except KeyboardInterrupt:
            typer.echo(f"\nternarybert: stopped after {report.rows:,} rows; the same command goes on", err=True)
            raise typer.Exit(130) from None  # what a shell calls a command that Ctrl-C ended
    _say(report.numbers(), answers)


def _write(
    model: Model, folder: Path, rows: Rows, columns: tuple[str, ...], answers: AnswerOptions, report: Report
) -> None:
    assert answers.output is not None
    names, kinds = list(sample(rows).columns), columns_of(model, every=answers.every)
    if taken := [name for name in kinds if name in names]:
        raise OptionError(f"{rows.path} already has a column '{taken[0]}', where answers would go; rename it")
    form = format_of(answers.output, rows, names, kinds)
    job = _job(model, folder, rows, columns, answers)
    with ResumableFile(answers.output, job, force=answers.force) as file, _Bar(rows, report) as bar:
        report.rows = report.resumed = file.state.done
        left = islice(iter(rows), file.state.done, None)
        step, since = [], time.monotonic()
        for row, _, answer in _answered(model, left, rows, columns, report):
            said = as_columns(answer, kinds)
            if not any(row.get(name) for name in columns):  # the model has an answer to nothing, too
                report.without_text += 1
                said = dict.fromkeys(said)
            step.append((row, said))
            if time.monotonic() - since > _STEP_SECONDS or len(step) >= _STEP_ROWS:
                _append(file, form, step)
                step, since = [], time.monotonic()
                bar.move()
        _append(file, form, step)
        form.finish(file)


def _append(file: ResumableFile, form: Format, step: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    if step:
        lines = form.lines(step, first=file.state.size == 0)
        file.append(lines, done=len(step), written=len(step))


def _answered(
    model: Model, rows: Iterator[Any], source: Rows, columns: tuple[str, ...], report: Report
) -> Iterator[tuple[dict[str, Any], Text, Any]]:
    """Each row with its text and its answer. The model reads ahead; rows wait until their answers come."""
    waiting: deque[tuple[dict[str, Any], Text]] = deque()

    def texts() -> Iterator[Text]:
        for number, row in rows:
            parts = [_text(row.get(name), source, number, name) for name in columns]
            text: Text = parts[0] if len(parts) == 1 else (parts[0], parts[1])
            waiting.append((row, text))
            yield text

    for answer in model.stream(texts()):
        row, text = waiting.popleft()
        report.rows += 1
        yield row, text, answer


def _text(value: object, source: Rows, number: int, name: str) -> str:
    """A field as a text. One that is missing is an empty one: a single bad row should not end a long run."""
    if value is None:
        return ""
    if isinstance(value, (str, int, float)):
        return str(value)
    raise DataError(f"{source.place(number)}: '{name}' is {value!r:.40} ({type(value).__name__}), not a text")


def _columns(model: Model, rows: Rows, source: InputOptions) -> tuple[str, ...]:
    first = sample(rows)
    if not isinstance(model, Answerer):
        return choose_columns([first], source.text, source.text_pair, None).texts
    columns = (source.text or "question", source.text_pair or "context")
    for name in columns:
        if name not in first.columns:
            known = suggest(name, first.columns)
            raise DataError(f"{rows.path} has no column '{name}'{known} (--text: questions, --text-pair: contexts)")
    return columns


def _job(model: Model, folder: Path, rows: Rows, columns: tuple[str, ...], answers: AnswerOptions) -> str:
    """A name for everything that decides the output: the model, the input, and how one becomes the other."""
    file = rows.path.stat()
    config = (folder / "config.json").read_bytes()  # has the hash of the weights in it
    input_file = (str(rows.path.resolve()), file.st_size, file.st_mtime_ns)
    how = (columns, model.max_length, answers.every, answers.null_threshold, str(answers.output))
    return hashlib.sha256(config + json.dumps([input_file, how]).encode()).hexdigest()


def _say(report: dict[str, Any], answers: AnswerOptions) -> None:
    if answers.as_json:
        typer.echo(json.dumps({"output": str(answers.output), **report}))
        return
    resumed = f", {report['resumed']:,} of them earlier" if report["resumed"] else ""
    empty = f"; {report['without_text']:,} had no text" if report["without_text"] else ""
    speed = f"{report['rows_per_second']:,.0f} rows/s"
    typer.echo(f"{report['rows']:,} rows{resumed}, {speed}{empty}: {answers.output}", err=True)


class _Bar:
    """A progress bar on a terminal, nothing elsewhere."""

    def __init__(self, rows: Rows, report: Report) -> None:
        self._rows, self._report = rows, report
        self._bar: Progress | None = None

    def __enter__(self) -> _Bar:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        if console.is_terminal:
            columns = (BarColumn(), TextColumn("{task.percentage:3.0f} %"), TextColumn("{task.fields[text]}"))
            self._bar = Progress(*columns, TimeRemainingColumn(), console=console, transient=True)
            self._task = self._bar.add_task("", total=1.0, text="")
            self._bar.start()
        return self

    def move(self) -> None:
        """Show how far the file was read."""
        if self._bar is not None:
            done = self._report.numbers()
            text = f"{done['rows']:,} rows, {done['rows_per_second']:,.0f} rows/s"
            self._bar.update(self._task, completed=self._rows.share, text=text)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
