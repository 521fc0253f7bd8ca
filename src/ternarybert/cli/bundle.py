"""The command `bundle`: writes a packed folder as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ternarybert.cli.console import handle_errors
from ternarybert.cli.options import OUTPUT, OptionGroup, option, with_options

EXAMPLE = "Example: ternarybert bundle my-model-ternary my-model.tbert"


class BundleOptions(OptionGroup):
    """How the file is written."""

    force: bool = option(OUTPUT, "Replace an existing file.", default=False)


@with_options
def bundle(
    folder: Annotated[Path, typer.Argument(help="Packed model to read: a folder or a hub id.")],
    out: Annotated[Path, typer.Argument(help="File to write.")],
    *,
    options: BundleOptions,
) -> None:
    """Write a packed model as one file, for C and JavaScript programs; Python reads the folder itself."""
    from ternarybert.packed.bundle import embedder_settings, write_bundle
    from ternarybert.runtime.installed import local_folder

    with handle_errors():
        source = local_folder(folder)
        size = write_bundle(source, out, force=options.force)
        needed = embedder_settings(source)
    typer.echo(f"{out}: {size:,} bytes, weights, configuration and vocabulary")
    for setting in needed:
        typer.echo(f"ternarybert: note: for Python's vectors pass {setting}", err=True)
