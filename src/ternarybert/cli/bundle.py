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
    """Write a packed model as one file, for C programs that load it from a path or from memory."""
    from ternarybert.packed.bundle import write_bundle
    from ternarybert.runtime.installed import local_folder

    with handle_errors():
        size = write_bundle(local_folder(folder), out, force=options.force)
    typer.echo(f"{out}: {size:,} bytes, weights, configuration and vocabulary")
