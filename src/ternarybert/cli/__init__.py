"""The command line: parse, call, print. Nothing here computes, and nothing heavy is imported before it is needed.

A user's mistake is one line on standard error that says what was seen and what to do, and exit code 2. Of the commands
only the one that was asked for is imported, so that a quick one is quick.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Any

import typer

from ternarybert.errors import TernaryBertError

# Every command, in the order of the help: its module, and the name of its example there.
COMMANDS = {
    "demo": ("demo", "DEMO_EXAMPLE"),
    "finetune": ("train", "FINETUNE_EXAMPLE"),
    "ternarize": ("train", "TERNARIZE_EXAMPLE"),
    "evaluate": ("evaluate", "EVALUATE_EXAMPLE"),
    "predict": ("predict", "PREDICT_EXAMPLE"),
    "inspect": ("inspect", "INSPECT_EXAMPLE"),
    "report": ("report", "REPORT_EXAMPLE"),
    "pack": ("pack", "PACK_EXAMPLE"),
    "unpack": ("pack", "UNPACK_EXAMPLE"),
    "augment": ("augment", "EXAMPLE"),
    "bench": ("bench", "BENCH_EXAMPLE"),
    "compare": ("compare", "COMPARE_EXAMPLE"),
    "reproduce": ("reproduce", "REPRODUCE_EXAMPLE"),
    "doctor": ("doctor", "DOCTOR_EXAMPLE"),
}


def _version(wanted: bool) -> None:
    if wanted:
        from ternarybert import __version__, native

        features = ", ".join(sorted(native.cpu_features())) or "none that kernels use"
        typer.echo(f"ternarybert {__version__} (CPU features: {features})")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command with some of its subcommands."""
    app = typer.Typer(
        name="ternarybert",
        help="Make a fine-tuned BERT 15 times smaller: ternary weights, 8-bit activations, no GPU needed.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for name in names:
        module, example = COMMANDS[name]
        commands = import_module(f"ternarybert.cli.{module}")
        app.command(name, epilog=getattr(commands, example))(getattr(commands, name))
    return app


def __getattr__(name: str) -> Any:
    if name == "app":  # all commands
        return make_app()
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def main() -> None:
    """Entry point of the `ternarybert` command."""
    try:
        asked = sys.argv[1:2]
        make_app(asked if asked and asked[0] in COMMANDS else COMMANDS)(prog_name="ternarybert")
    except TernaryBertError as error:
        typer.echo(f"ternarybert: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
