"""The command `push`: uploads a packed folder to the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ternarybert.cli.console import handle_errors
from ternarybert.cli.options import OUTPUT, OptionGroup, option, with_options

EXAMPLE = "Example: ternarybert push my-model-ternary my-name/my-model-ternary"


class PushOptions(OptionGroup):
    """How the model is uploaded."""

    private: bool = option(OUTPUT, "Make a new model visible to you only.", default=False)
    message: str | None = option(OUTPUT, "Message of the commit.", "TEXT")


@with_options
def push(
    folder: Annotated[Path, typer.Argument(help="Packed folder to upload.")],
    name: Annotated[str, typer.Argument(help="Hub id: user/model, or user/model@branch.")],
    *,
    options: PushOptions,
) -> None:
    """Upload a packed model with its card, exports and report to the Hugging Face Hub.

    The token is that of huggingface_hub: HF_TOKEN, or `hf auth login`.
    """
    with handle_errors():
        from ternarybert.runtime.hub import push as push_folder

        address = push_folder(folder, name, private=options.private, message=options.message)
    typer.echo(f"{address}\nUse it: ternarybert predict {name} TEXT, or ternarybert.load({name!r})")
