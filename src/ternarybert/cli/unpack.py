"""The command `unpack`: writes a packed model as a plain float32 folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ternarybert.cli.console import handle_errors
from ternarybert.cli.options import OUTPUT, OptionGroup, option, with_options

EXAMPLE = "Example: ternarybert unpack my-model-ternary my-model-float"


class UnpackOptions(OptionGroup):
    """How the folder is written."""

    force: bool = option(OUTPUT, "Replace an existing model.", default=False)


@with_options
def unpack(
    folder: Annotated[Path, typer.Argument(help="Packed model to read: a folder or a hub id.")],
    out: Annotated[Path, typer.Argument(help="Plain folder to write.")],
    *,
    options: UnpackOptions,
) -> None:
    """Write a packed model as a plain float32 folder, for tools that cannot read packed ones."""
    from ternarybert import packed
    from ternarybert.packed.hf_folder import write_plain
    from ternarybert.runtime.installed import local_folder

    with handle_errors():
        source = local_folder(folder)
        model = packed.read(source)
        write_plain(out, model, tokenizer=source, force=options.force)
    typer.echo(f"{out}: the same weights in float32, readable by any tool that reads Hugging Face folders")
    bits = model.bits.rpartition("-")[2]
    if bits != "32":
        typer.echo(
            f"Note: a plain folder does not round activations to {bits} bits, so answers differ a little from the "
            "packed model's; measure its scores again."
        )
