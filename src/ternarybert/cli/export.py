"""The command `export`: writes a packed model for other engines. Never imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ternarybert.cli.console import handle_errors, print_json
from ternarybert.cli.options import DATA, OUTPUT, JsonOption, option, with_options

EXAMPLE = "Example: ternarybert export my-model-ternary --to onnx"


class ExportOptions(JsonOption):
    """The format, and what the result is checked on."""

    texts: Path | None = option(
        DATA, "File with texts on which the answers are compared with ours. By default a few sentences.", "FILE"
    )
    text: str | None = option(DATA, "Column of --texts with the text. Guessed if there is no doubt.", "COLUMN")
    to: str = option(OUTPUT, "Format: onnx (2 bits and int8) or gguf.", "NAME", default=...)
    gguf_type: str | None = option(
        OUTPUT, "GGUF's type of the weights: q2_0 (by default), or tq2_0 for older llama.cpp.", "NAME"
    )
    output: Path | None = option(
        OUTPUT,
        "Folder to write to. By default the packed folder itself, or ./model for user/model.",
        "FOLDER",
        flags="--output -o",
    )
    force: bool = option(OUTPUT, "Replace existing files.", default=False)


@with_options
def export(
    folder: Annotated[str, typer.Argument(help="Packed model: a folder, an installed model or a hub id.")],
    *,
    options: ExportOptions,
) -> None:
    """Write a packed model for ONNX Runtime, transformers.js or llama.cpp, and compare the answers with ours."""
    with handle_errors():
        from ternarybert.export import export_model
        from ternarybert.runtime.encode_file import file_texts

        made = export_model(
            folder,
            options.to,
            output=options.output,
            texts=None if options.texts is None else file_texts(options.texts, options.text),
            gguf_type=options.gguf_type,
            force=options.force,
        )
    for file in made:
        if options.as_json:
            found = vars(file.agreement)
            print_json({"file": str(file.path), "bytes": file.size, **found})
        else:
            typer.echo(f"{file.path}: {file.size / 1e6:.2f} MB; {file.agreement}")
