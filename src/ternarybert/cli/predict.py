"""The command `predict`: a model's answers to texts, wherever they come from. Never imports torch."""

from __future__ import annotations

import io
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ternarybert.cli.options import option, with_options
from ternarybert.errors import InputError, OptionError, TruncationWarning

if TYPE_CHECKING:
    from rich.progress import Progress

    from ternarybert.runtime import Model
    from ternarybert.runtime.predict_file import PredictFileResult
    from ternarybert.runtime.text import Text

PREDICT_EXAMPLE = (
    'Example: ternarybert predict my-model-ternary "a fine film"   or   '
    "ternarybert predict my-model-ternary --input mails.csv --output answers.csv"
)

_INPUT, _OUTPUT, _ENGINE = "Input", "Output", "Engine"
_READ = 1 << 16  # bytes of standard input taken at a time


@dataclass(frozen=True)
class InputOptions:
    """Where the texts are."""

    input: Annotated[
        Path | None,
        option("--input", "-i", help="A file: CSV, TSV, JSON, JSONL, parquet or .txt.", panel=_INPUT, metavar="FILE"),
    ] = None
    text: Annotated[
        str | None,
        option("--text", help="Its column of the text; guessed where obvious.", panel=_INPUT, metavar="COLUMN"),
    ] = None
    text_pair: Annotated[
        str | None,
        option("--text-pair", help="Its column of the second text of pairs.", panel=_INPUT, metavar="COLUMN"),
    ] = None
    pair: Annotated[
        bool,
        option("--pair", help="Texts come in pairs: two arguments, or a tab in a line.", panel=_INPUT),
    ] = False
    question: Annotated[
        str | None, option("--question", help="A question to a text.", panel=_INPUT, metavar="TEXT")
    ] = None
    context: Annotated[
        str | None,
        option("--context", help="The text; else standard input is.", panel=_INPUT, metavar="TEXT"),
    ] = None


@dataclass(frozen=True)
class AnswerOptions:
    """How answers are given."""

    output: Annotated[
        Path | None,
        option(
            "--output",
            "-o",
            help="Write the rows of --input with their answers: CSV, TSV, JSONL or parquet. Can be resumed.",
            panel=_OUTPUT,
            metavar="FILE",
        ),
    ] = None
    force: Annotated[bool, option("--force", help="Replace the output, drop an unfinished one.", panel=_OUTPUT)] = False
    null_threshold: Annotated[
        float | None,
        option(
            "--null-threshold",
            help="Questions: give no answer when that scores higher by more than this; 0 suits SQuAD 2.0.",
            panel=_OUTPUT,
            metavar="NUMBER",
        ),
    ] = None
    every: Annotated[bool, option("--all", help="The scores of all labels.", panel=_OUTPUT)] = False
    as_json: Annotated[bool, option("--json", help="One JSON object per text.", panel=_OUTPUT)] = False


@dataclass(frozen=True)
class EngineOptions:
    """What computes."""

    threads: Annotated[
        int | None, option("--threads", help="Processor threads; else all usable cores.", panel=_ENGINE, min=1)
    ] = None
    kernel: Annotated[
        str | None, option("--kernel", help="A kernel by name; else the best here.", panel=_ENGINE, metavar="NAME")
    ] = None
    engine: Annotated[
        str, option("--engine", help="native, or oracle: the same in slow NumPy.", panel=_ENGINE, metavar="NAME")
    ] = "native"
    max_length: Annotated[
        int | None,
        option("--max-length", help="Cut texts at so many tokens; else at what fits.", panel=_ENGINE, metavar="TOKENS"),
    ] = None

    def load(self, folder: Path) -> Model:
        """The model in a folder, run as these options say."""
        # NumPy's own threads are of no use here, and starting them takes as long as loading a model.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        from ternarybert.runtime import load

        return load(
            folder, num_threads=self.threads, kernel=self.kernel, engine=self.engine, max_length=self.max_length
        )


@with_options
def predict(
    folder: Annotated[Path, typer.Argument(help="A packed model.", metavar="FOLDER")],
    texts: Annotated[list[str] | None, typer.Argument(help="Texts; else standard input, one a line.")] = None,
    *,
    source: InputOptions,
    answers: AnswerOptions,
    how: EngineOptions,
) -> None:
    """Answer texts with a packed model: labels, numbers, entities, or answers to questions."""
    given = list(texts or ())
    _check(given, source, answers)
    with _notices(), how.load(folder) as model:
        if answers.null_threshold is not None:
            _allow_no_answer(model, answers.null_threshold)
        if source.input is not None:
            _answer_file(model, source, answers)
        else:
            _answer(model, given, source, _printer(answers))


def _check(texts: list[str], source: InputOptions, answers: AnswerOptions) -> None:
    if source.input is not None and (texts or source.pair or source.question or source.context):
        raise OptionError("--input takes the texts from a file; leave out the others")
    if source.input is None and (source.text or source.text_pair):
        raise OptionError("--text and --text-pair name columns of --input; give texts by themselves, two with --pair")
    if source.input is None and answers.output is not None:
        raise OptionError("--output goes with --input; redirect the output instead: > FILE")
    if source.question is not None and (texts or source.pair):
        raise OptionError("--question goes with --context or standard input, not with other texts")


def _allow_no_answer(model: Model, threshold: float) -> None:
    from ternarybert.runtime.model import Answerer

    if not isinstance(model, Answerer):
        raise OptionError("--null-threshold is for models that answer questions")
    model.task = replace(model.task, null_threshold=threshold)


def _answer(model: Model, texts: list[str], source: InputOptions, show: Callable[[Text, object], None]) -> None:
    for batch in _batches(texts, source):
        for text, answer in zip(batch, model.stream(batch), strict=True):
            show(text, answer)


def _answer_file(model: Model, source: InputOptions, answers: AnswerOptions) -> None:
    from ternarybert.cli.console import job
    from ternarybert.runtime.predict_file import predict_file, predict_rows

    assert source.input is not None
    columns = {"text": source.text, "text_pair": source.text_pair}
    with job(), _FileProgress() as progress:
        if answers.output is None:
            show = _printer(answers)
            for _, text, answer in predict_rows(model, source.input, **columns):
                show(text, answer)
            return
        try:
            result = predict_file(
                model,
                source.input,
                answers.output,
                **columns,
                all_scores=answers.every,
                force=answers.force,
                progress=progress,
            )
        except KeyboardInterrupt:
            same = "the same command without --force" if answers.force else "the same command"
            typer.echo(f"\nternarybert: stopped after {progress.rows:,} rows; resume with {same}", err=True)
            raise typer.Exit(130) from None  # what a shell calls a command that Ctrl-C ended
    _show_result(result, answers)


def _show_result(result: PredictFileResult, answers: AnswerOptions) -> None:
    if answers.as_json:
        counts = {"rows": result.rows, "resumed": result.resumed, "without_text": result.empty}
        speed = {"seconds": round(result.seconds, 2), "rows_per_second": round(result.rows_per_second, 1)}
        typer.echo(json.dumps({"output": str(answers.output), **counts, **speed}))
        return
    resumed = f", {result.resumed:,} of them earlier" if result.resumed else ""
    empty = f"; {result.empty:,} had no text" if result.empty else ""
    speed_text = f"{result.rows_per_second:,.0f} rows/s"
    typer.echo(f"{result.rows:,} rows{resumed}, {speed_text}{empty}: {answers.output}", err=True)


class _FileProgress:
    """A progress bar on a terminal, nothing elsewhere."""

    rows = 0  # written so far
    _bar: Progress | None = None

    def __enter__(self) -> _FileProgress:
        return self

    def __call__(self, result: PredictFileResult, share: float) -> None:
        self.rows = result.rows
        if self._bar is None and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (BarColumn(), TextColumn("{task.percentage:3.0f} %"), TextColumn("{task.fields[text]}"))
            self._bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("", total=1.0, text="")
            self._bar.start()
        if self._bar is not None:
            text = f"{result.rows:,} rows, {result.rows_per_second:,.0f} rows/s"
            self._bar.update(self._task, completed=share, text=text)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _batches(texts: list[str], source: InputOptions) -> Iterator[list[Text]]:
    """What was given, or whatever comes from standard input."""
    if source.question is not None:
        yield [(source.question, _whole_input() if source.context is None else source.context)]
        return
    for lines in iter([texts]) if texts else _lines():
        if source.context is not None:
            yield [(question, source.context) for question in lines]
        elif source.pair:
            yield _pairs(lines) if texts else [_split(line) for line in lines]
        else:
            yield list(lines)


def _pairs(texts: list[str]) -> list[Text]:
    if len(texts) % 2:
        raise OptionError(f"{len(texts)} texts are not pairs; with --pair give two, four, ...")
    return list(zip(texts[::2], texts[1::2], strict=True))


def _split(line: str) -> Text:
    first, tab, second = line.partition("\t")
    if not tab:
        raise InputError(f"no tab in the line {line!r:.40}; with --pair it separates the two texts")
    return first, second


def _lines() -> Iterator[list[str]]:
    """Lines of standard input: as many at a time as are there, so that a slow source is answered at once."""
    if sys.stdin.isatty():
        yield from _typed()
        return
    rest, number = b"", 0
    source = cast(io.BufferedReader, sys.stdin.buffer)
    while data := source.read1(_READ):
        *whole, rest = (rest + data).split(b"\n")
        yield [_decode(line, number + i) for i, line in enumerate(whole, 1) if line.strip()]
        number += len(whole)
    if rest.strip():
        yield [_decode(rest, number + 1)]


def _whole_input() -> str:
    """All of standard input, whatever the locale says it is; line ends as in any text file."""
    try:
        return io.TextIOWrapper(io.BytesIO(sys.stdin.buffer.read()), encoding="utf-8-sig").read()
    except UnicodeDecodeError:
        raise InputError("standard input is not UTF-8 text") from None


def _decode(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").strip("\r\n")  # a byte order mark comes first
    except UnicodeDecodeError:
        raise InputError(f"line {number} of standard input is not UTF-8 text") from None


def _typed() -> Iterator[list[str]]:
    """Lines that a person types."""
    with suppress(ImportError):  # not everywhere
        import readline  # noqa: F401  (lets `input` edit the line and go back to earlier ones)
    typer.echo("Type a text and press Enter; Ctrl-D ends.", err=True)
    while True:
        try:
            line = input("> ")
        except (EOFError, KeyboardInterrupt):
            typer.echo(err=True)
            return
        if line.strip():
            yield [line]


def _printer(answers: AnswerOptions) -> Callable[[Text, object], None]:
    from ternarybert.cli.format import as_json, as_line

    form = as_json if answers.as_json else as_line

    def show(text: Text, answer: object) -> None:
        typer.echo(form(text, answer, every=answers.every))

    return show


@contextmanager
def _notices() -> Iterator[None]:
    """Show what the library wants to be known, such as texts that are too long, as one line each."""

    def show(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
        typer.echo(f"ternarybert: note: {message}", err=True)

    with warnings.catch_warnings():
        warnings.simplefilter("always", TruncationWarning)
        warnings.showwarning = show
        yield
