"""The command `report`: a page and pictures about packed models."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from ternarybert.cli.console import job, make_console, quiet
from ternarybert.cli.options import option, with_options
from ternarybert.errors import MissingExtraError, OptionError

REPORT_EXAMPLE = (
    "Example: ternarybert report my-model-ternary --teacher my-model\n\n"
    "Several: ternarybert report small smaller --output side-by-side"
)
_WHAT, _OUTPUT = "What it shows", "Output"


@with_options
def report(
    folders: Annotated[list[Path], typer.Argument(help="Packed folders; several are compared.", metavar="FOLDER...")],
    *,
    teacher: Annotated[
        list[Path] | None,
        option("--teacher", help="The plain folder it was made from. Repeatable: one for each.", panel=_WHAT),
    ] = None,
    text: Annotated[
        list[str] | None,
        option("--text", help="With --teacher: a text to look at attention with. Repeatable.", panel=_WHAT),
    ] = None,
    texts: Annotated[
        Path | None,
        option("--texts", help="The same, one a line; a tab parts the two of a pair.", panel=_WHAT, metavar="FILE"),
    ] = None,
    bench: Annotated[
        Path | None, option("--bench", help="What `bench --json` printed: adds speed.", panel=_WHAT, metavar="FILE")
    ] = None,
    output: Annotated[
        Path | None,
        option(
            "--output",
            "-o",
            help="Where it goes: FOLDER/report by default, ./report for several.",
            panel=_OUTPUT,
            metavar="FOLDER",
        ),
    ] = None,
    as_json: Annotated[bool, option("--json", help="Print one JSON object, last.", panel=_OUTPUT)] = False,
) -> None:
    """Write one HTML page, and every figure as PNG and SVG, about packed models.

    Scores, sizes, training curves, weights and mistakes need the packed folder only. With the teacher it also shows
    weights before and after, hidden representations and attention.
    """
    with job():
        if (text or texts) and not teacher:
            raise OptionError("--text and --texts are what teacher and student are compared on, and need --teacher")
        try:
            from ternarybert.report.activations import TEXTS, read_texts
            from ternarybert.report.build import build, link_figures
            from ternarybert.report.page import check_output, write_page
        except ImportError as error:
            raise MissingExtraError("reports need more: pip install 'ternarybert[report]'") from error
        from ternarybert.storage import REPORT, REPORT_PAGE

        place = output or (folders[0] / REPORT if len(folders) == 1 else Path(REPORT))
        check_output(place)
        said = [tuple(line.split("\t")[:2]) for line in text or ()] + ([] if texts is None else read_texts(texts))
        console = make_console(errors=True)
        with console.status("reading") as status, quiet() if teacher else nullcontext():
            page = build(folders, teacher or (), texts=said or TEXTS, bench=bench, on_progress=status.update)
        write_page(place, page)
        linked = len(folders) == 1 and link_figures(folders[0], place, page.pictures)
        where = place / REPORT_PAGE
        if as_json:
            figures = [str(place / f"{picture.name}.png") for picture in page.pictures]
            typer.echo(json.dumps({"report": str(where), "figures": figures, "card": bool(linked)}))
        else:
            also = "; the model card links them" if linked else ""
            console.print(f"The report is {where}, with {len(page.pictures)} figures beside it{also}.", soft_wrap=True)
