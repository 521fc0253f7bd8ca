"""The command `predict`: runs a packed model on texts, a file or standard input. Never imports torch."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ternarybert.cli.console import AGAIN, RERUN, ProgressDisplay, handle_errors, make_console, notices
from ternarybert.cli.options import AnswerOptions, EngineOptions, InputOptions, refuse, with_options
from ternarybert.errors import InputError, OptionError

if TYPE_CHECKING:
    from ternarybert.runtime import Model
    from ternarybert.runtime.predict_file import NoAnswer, PredictFileResult
    from ternarybert.runtime.text import Text

EXAMPLE = (
    'Example: ternarybert predict my-model-ternary "a fine film"   or   '
    "ternarybert predict my-model-ternary --input mails.csv --output answers.csv"
)

_CHUNK = 1 << 16  # bytes of standard input read at a time


@with_options
def predict(
    folder: Annotated[
        Path, typer.Argument(help="Packed model: a folder, an installed model or a hub id.", metavar="FOLDER")
    ],
    texts: Annotated[
        list[str] | None, typer.Argument(help="Texts. By default read from standard input, one per line.")
    ] = None,
    *,
    source: InputOptions,
    answers: AnswerOptions,
    engine: EngineOptions,
) -> None:
    """Predict with a packed model: labels, numbers, entities, or answers to questions."""
    given = list(texts or ())
    _check(given, source, answers)
    resume = RERUN if answers.output else AGAIN
    with handle_errors(resume=resume), notices(), engine.load(folder) as model:
        _check_scores(model, answers)
        if answers.null_threshold is not None:
            _allow_no_answer(model, answers.null_threshold)
        if source.input is not None:
            _answer_file(model, source, answers)
        else:
            _answer(model, given, source, _printer(answers))


def _check(texts: list[str], source: InputOptions, answers: AnswerOptions) -> None:
    if source.input is not None and (texts or source.pair or source.question or source.context):
        raise OptionError(f"--input {source.input} excludes other texts; leave them out")
    if source.input is None and (source.text or source.text_pair):
        raise OptionError(
            "--text and --text-pair name columns of --input; give texts as arguments, or pairs with --pair"
        )
    if source.input is None and answers.output is not None:
        raise OptionError("--output needs --input; redirect the output instead: > FILE")
    if source.question is not None and (texts or source.pair):
        raise OptionError("--question takes its text from --context or standard input; leave out other texts")


def _check_scores(model: Model, answers: AnswerOptions) -> None:
    """Refuse --all where a model has no other scores to show; a tagger has those of its words, in JSON."""
    from ternarybert.runtime.model import Answerer, Classifier, Tagger

    if isinstance(model, Answerer):
        refuse("on answers to questions", all=answers.every)
    if isinstance(model, Classifier) and model.problem == "regression":
        refuse("on numbers", all=answers.every)
    if isinstance(model, Tagger) and not (answers.as_json and answers.output is None):
        refuse("on words, unless they are printed with --json", all=answers.every)


def _allow_no_answer(model: Model, threshold: float) -> None:
    from ternarybert.runtime.model import Answerer

    if not isinstance(model, Answerer):
        raise OptionError("--null-threshold needs a model that answers questions")
    model.task = replace(model.task, null_threshold=threshold)


def _answer(model: Model, texts: list[str], source: InputOptions, show: Callable[[Text, object], None]) -> None:
    for batch in _batches(texts, source):
        for text, answer in zip(batch, model.stream(batch), strict=True):
            show(text, answer)


def _answer_file(model: Model, source: InputOptions, answers: AnswerOptions) -> None:
    from ternarybert.data.locations import open_location
    from ternarybert.runtime.predict_file import (
        NoAnswer,
        bad_rows_file,
        check_bad_rows_file,
        predict_file,
        predict_rows,
    )

    assert source.input is not None
    how: dict[str, Any] = {"text": source.text, "text_pair": source.text_pair, "strict": source.strict}
    if answers.output is None:
        show = _printer(answers)
        if answers.bad_rows is not None:
            check_bad_rows_file(answers.bad_rows, open_location(source.input), force=answers.force)
        with nullcontext() if answers.bad_rows is None else bad_rows_file(answers.bad_rows) as on_bad_row:
            for _, text, answer in predict_rows(model, source.input, **how, on_bad_row=on_bad_row):
                if isinstance(answer, NoAnswer):
                    typer.echo(_no_answer(text, answer, json_wanted=answers.as_json))
                else:
                    show(text, answer)
        return
    rows = 0
    with ProgressDisplay(make_console(errors=True), "predict") as display:

        def progress(result: PredictFileResult, share: float) -> None:
            nonlocal rows
            rows = result.rows
            display.update(share, 1.0, f"{rows:,} rows, {result.rows_per_second:,.0f} rows/s")

        try:
            result = predict_file(
                model,
                source.input,
                answers.output,
                **how,
                bad_rows=answers.bad_rows,
                all_scores=answers.every,
                force=answers.force,
                progress=progress,
            )
        except KeyboardInterrupt:
            same = "the same command without --force" if answers.force else "the same command"
            raise KeyboardInterrupt(f"stopped after {rows:,} rows; resume with {same}") from None
    _show_result(result, answers)


def _no_answer(text: Text, answer: NoAnswer, *, json_wanted: bool) -> str:
    """The line of a row that has no answer."""
    if json_wanted:
        return json.dumps({"text": text, **answer.as_dict()}, ensure_ascii=False)
    return f"-\t\t{text if isinstance(text, str) else ' | '.join(text)}"


def _show_result(result: PredictFileResult, answers: AnswerOptions) -> None:
    if answers.as_json:
        counts = {"rows": result.rows, "resumed": result.resumed, "without_text": result.empty, "bad": result.bad}
        speed = {"seconds": round(result.seconds, 2), "rows_per_second": round(result.rows_per_second, 1)}
        typer.echo(json.dumps({"output": str(answers.output), **counts, **speed}))
        return
    resumed = f", {result.resumed:,} of them earlier" if result.resumed else ""
    empty = f"; {result.empty:,} had no text" if result.empty else ""
    listed = f" ({answers.bad_rows})" if answers.bad_rows else " (list them with --bad-rows FILE)"
    bad = f"; {result.bad:,} could not be read{listed}" if result.bad else ""
    speed_text = f"{result.rows_per_second:,.0f} rows/s"
    typer.echo(f"{result.rows:,} rows{resumed}, {speed_text}{empty}{bad}: {answers.output}", err=True)
    for usual, name in result.renamed.items():
        typer.echo(f"ternarybert: note: the input has a column '{usual}'; answers are in '{name}'", err=True)


def _batches(texts: list[str], source: InputOptions) -> Iterator[list[Text]]:
    """The texts that were given, or the lines of standard input."""
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
        raise OptionError(f"--pair needs an even number of texts; got {len(texts)}")
    return list(zip(texts[::2], texts[1::2], strict=True))


def _split(line: str) -> Text:
    first, tab, second = line.partition("\t")
    if not tab:
        raise InputError(f"no tab in the line {line!r:.40}; with --pair a tab separates the two texts")
    return first, second


def _lines() -> Iterator[list[str]]:
    """Lines of standard input, as many at a time as are available, so that a slow source gets its answers at once."""
    if sys.stdin.isatty():
        yield from _typed()
        return
    rest, number, blank = b"", 0, 0
    source = cast(io.BufferedReader, sys.stdin.buffer)
    while data := source.read1(_CHUNK):
        *whole, rest = (rest + data).split(b"\n")
        lines = [_decode(line, number + i) for i, line in enumerate(whole, 1) if line.strip()]
        yield lines
        number += len(whole)
        blank += len(whole) - len(lines)
    if rest.strip():
        yield [_decode(rest, number + 1)]
    if blank:
        typer.echo(f"ternarybert: note: {blank:,} blank lines were left out", err=True)


def _whole_input() -> str:
    """All of standard input as UTF-8, whatever the locale; line ends as in any text file."""
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
        import readline  # noqa: F401  (gives `input` line editing and a history)
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
        typer.echo(form(text, answer, every=answers.every))  # which drops colors where the output is no terminal

    return show
