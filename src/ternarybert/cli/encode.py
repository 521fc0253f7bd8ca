"""The command `encode`: writes the vectors of all texts of a file. Never imports torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from ternarybert.cli.console import ProgressDisplay, handle_errors, make_console, notices
from ternarybert.cli.options import DATA, ENGINE, OUTPUT, JsonOption, option, with_options

EXAMPLE = "Example: ternarybert encode articles.parquet --text body --output vectors.parquet"


class EncodeFileOptions(JsonOption):
    """The model, the texts, and the form of the vectors."""

    model: str = option(ENGINE, "Packed embedder: a folder, an installed model or a hub id.", "MODEL", default="minilm")
    threads: int | None = option(ENGINE, "Number of CPU threads. By default all usable cores.", min=1)
    text: str | None = option(DATA, "Column with the text. Guessed if there is no doubt.", "COLUMN")
    prompt_name: str | None = option(DATA, "Name of the model's prompt to put before every text.", "NAME")
    output: Path = option(OUTPUT, "File to write: .parquet or .npy.", "FILE", flags="--output -o", default=...)
    precision: str = option(
        OUTPUT, "Precision of the vectors: float32, int8, uint8, binary or ubinary.", "NAME", default="float32"
    )
    truncate_dim: int | None = option(OUTPUT, "Keep only the first dimensions.", "NUMBER", min=1)
    normalize: bool = option(OUTPUT, "Scale vectors to length 1, also after --truncate-dim.", default=False)
    force: bool = option(OUTPUT, "Replace an existing --output.", default=False)


@with_options
def encode(
    input: Annotated[Path, typer.Argument(help="CSV, TSV, JSONL, parquet or text file.", metavar="FILE")],
    *,
    options: EncodeFileOptions,
) -> None:
    """Embed every text of a file, for a vector database or a library such as Faiss."""
    with handle_errors(), notices():
        from ternarybert.runtime.encode_file import encode_file
        from ternarybert.search.index import load_embedder

        model = load_embedder(options.model, num_threads=options.threads)
        with model, ProgressDisplay(make_console(errors=True), "encoding", unit="text") as display:
            result = encode_file(
                model,
                input,
                options.output,
                text=options.text,
                precision=options.precision,
                truncate_dim=options.truncate_dim,
                prompt_name=options.prompt_name,
                normalize=options.normalize,
                force=options.force,
                progress=lambda done, total: display.update(done, total, f"{done:,} texts"),
            )
        speed = result.texts / max(result.seconds, 1e-9)
        if options.as_json:
            values = {
                "output": str(options.output),
                "texts": result.texts,
                "without_text": result.empty,
                "width": result.width,
                "dtype": result.dtype,
            }
            typer.echo(json.dumps({**values, "texts_per_second": round(speed, 1)}))
            return
        ranges = f"; ranges in {result.ranges}" if result.ranges else ""
        shape = f"{result.texts:,} vectors of {result.width} {result.dtype}"
        empty = f"; {result.empty:,} had no text" if result.empty else ""
        typer.echo(f"{shape}, {speed:,.0f} texts/s{empty}: {options.output}{ranges}", err=True)
