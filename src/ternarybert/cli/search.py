"""The command `search`: finds passages of files by meaning. Never imports torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ternarybert.cli.console import ProgressDisplay, handle_errors, make_console
from ternarybert.cli.options import DATA, ENGINE, OUTPUT, OptionGroup, option, with_options
from ternarybert.errors import OptionError

if TYPE_CHECKING:
    from ternarybert.runtime import Embedder
    from ternarybert.search import SearchResult

EXAMPLE = (
    'Example: ternarybert search notes/ "how do I choose a recipe"   or   '
    'ternarybert search mails.csv "late delivery" --column body'
)
_SHOWN = 300  # characters of a passage


class SearchOptions(OptionGroup):
    """The model, the column, and what is printed."""

    model: str = option(ENGINE, "Packed embedder: a folder, an installed model or a hub id.", "MODEL", default="minilm")
    threads: int | None = option(ENGINE, "Number of CPU threads. By default all usable cores.", min=1)
    column: str | None = option(DATA, "Tables: column with the texts; every row is a passage.", "COLUMN")
    top: int = option(OUTPUT, "Number of passages to print.", "NUMBER", flags="--top -k", default=5, min=1)
    as_json: bool = option(OUTPUT, "Print one JSON object per passage.", flags="--json", default=False)


@with_options
def search(
    words: Annotated[
        list[str], typer.Argument(help="Files or folders, and last the question.", metavar="PATHS... QUESTION")
    ],
    *,
    options: SearchOptions,
) -> None:
    """Find the passages of files that answer a question, by meaning instead of words.

    Vectors of the passages are kept beside the files, in .ternarybert-index, and only new text is embedded again.
    """
    *paths, question = words
    if not paths or not question.strip():
        raise OptionError(f"search takes files or folders, and then a question; got '{' '.join(words)}'")
    with handle_errors():
        from ternarybert.search.index import load_embedder

        model = load_embedder(options.model, num_threads=options.threads)
        with model:
            found = [each for path in paths for each in _search(Path(path), question, model, options)]
        for result in sorted(found, key=lambda result: -result.score)[: options.top]:
            typer.echo(json.dumps(result.as_dict(), ensure_ascii=False) if options.as_json else _line(result))


def _search(path: Path, question: str, model: Embedder, options: SearchOptions) -> list[SearchResult]:
    from ternarybert.search import VectorIndex

    index = VectorIndex(path, options.column)
    with ProgressDisplay(make_console(errors=True), "indexing", unit="passage") as display:
        new = index.update(model, lambda done, total: display.update(done, total, f"{done:,} passages"))
    for message in [*index.messages, *index.notes.lines()]:
        typer.echo(f"ternarybert: note: {message}", err=True)
    if new:
        typer.echo(f"{path}: {new:,} new passages of {index.passages:,} in {len(index.files):,} files", err=True)
    if not index.passages:
        typer.echo(f"ternarybert: note: {path} has no text to search in ({len(index.files):,} files)", err=True)
    return index.search(model, question, options.top)


def _line(result: SearchResult) -> str:
    text = result.text if len(result.text) <= _SHOWN else f"{result.text[: _SHOWN - 1]}…"
    return f"{result.score:.3f}  {result.path}:{result.line}\n       {text}"
