"""The command line: parse, call, print. Nothing here computes, and nothing heavy is imported before it is needed.

A user's mistake is one line on standard error that says what was seen and what to do, and exit code 2.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from ternarybert.cli import augment, evaluate, inspect, pack, predict, train
from ternarybert.errors import TernaryBertError

app = typer.Typer(
    name="ternarybert",
    help="Make a fine-tuned BERT 15 times smaller: ternary weights, 8-bit activations, no GPU needed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from ternarybert import __version__, _native

        features = ", ".join(sorted(_native.cpu_features())) or "none that kernels use"
        typer.echo(f"ternarybert {__version__} (CPU features: {features})")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


app.command(epilog=train.FINETUNE_EXAMPLE)(train.finetune)
app.command(epilog=train.TERNARIZE_EXAMPLE)(train.ternarize)
app.command(epilog=evaluate.EVALUATE_EXAMPLE)(evaluate.evaluate)
app.command(epilog=predict.PREDICT_EXAMPLE)(predict.predict)
app.command(epilog=inspect.INSPECT_EXAMPLE)(inspect.inspect)
app.command(epilog=pack.PACK_EXAMPLE)(pack.pack)
app.command(epilog=pack.UNPACK_EXAMPLE)(pack.unpack)
app.command(epilog=augment.EXAMPLE)(augment.augment)


def main() -> None:
    """Entry point of the `ternarybert` command."""
    try:
        app(prog_name="ternarybert")
    except TernaryBertError as error:
        typer.echo(f"ternarybert: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
