"""The command `report`: an HTML page with figures about packed models."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Annotated

import typer

from ternarybert.cli.console import handle_errors, make_console, print_json, quiet
from ternarybert.cli.options import OUTPUT, JsonOption, option, with_options

EXAMPLE = (
    "Example: ternarybert report my-model-ternary --teacher my-model\n\n"
    "Several: ternarybert report small smaller --output side-by-side"
)
_CONTENT = "Content"


class ReportOptions(JsonOption):
    """What the page shows, and where it is written."""

    teacher: list[Path] | None = option(
        _CONTENT,
        "Plain folder that the packed one was made from. Repeatable, once for each packed folder.",
        "FOLDER",
    )
    text: list[str] | None = option(
        _CONTENT, "Text to show attention for, with --teacher. Repeatable. By default some film reviews.", "TEXT"
    )
    texts: Path | None = option(
        _CONTENT, "File with such texts, one per line, with a tab between the two texts of a pair.", "FILE"
    )
    bench: Path | None = option(_CONTENT, "Output of `bench --json`: adds speed.", "FILE")
    output: Path | None = option(
        OUTPUT,
        "Folder to write. By default FOLDER/report, or ./report for several packed folders.",
        "FOLDER",
        flags="--output -o",
    )


@with_options
def report(
    folders: Annotated[
        list[Path], typer.Argument(help="Packed folders or hub ids. Several are compared.", metavar="FOLDER...")
    ],
    *,
    options: ReportOptions,
) -> None:
    """Write an HTML page about packed models, with every figure as PNG and SVG.

    Scores, sizes, training curves, weights and mistakes need the packed folder only. With the teacher the page also
    shows weights before and after, hidden representations and attention.
    """
    with handle_errors(), ExitStack() as stack:
        from ternarybert.report.activations import TEXTS, read_texts
        from ternarybert.report.build import build, link_figures
        from ternarybert.report.page import check_output, write_page
        from ternarybert.runtime.installed import local_folder
        from ternarybert.storage import REPORT, REPORT_PAGE, lock_output

        on_hub = not all(named.is_dir() for named in folders)  # the hub's cache is not a place for a report
        folders = [local_folder(named) for named in folders]
        folder = options.output or (folders[0] / REPORT if len(folders) == 1 and not on_hub else Path(REPORT))
        if folder.absolute().parent.is_dir():  # else there is nobody to mix with
            stack.enter_context(lock_output(folder.absolute()))
        check_output(folder)
        texts = [tuple(line.split("\t")[:2]) for line in options.text or ()]
        texts += [] if options.texts is None else read_texts(options.texts)
        console = make_console(errors=True)
        with console.status("reading") as status, quiet() if options.teacher else nullcontext():
            page = build(
                folders, options.teacher or (), texts=texts or TEXTS, bench=options.bench, on_progress=status.update
            )
        write_page(folder, page)
        linked = len(folders) == 1 and link_figures(folders[0], folder, page.pictures)
        path = folder / REPORT_PAGE
        if options.as_json:
            figures = [str(folder / f"{picture.name}.png") for picture in page.pictures]
            print_json({"report": str(path), "figures": figures, "card": bool(linked)})
        else:
            also = "; the model card links to them" if linked else ""
            console.print(f"The report is {path}, with {len(page.pictures)} figures beside it{also}.", soft_wrap=True)
