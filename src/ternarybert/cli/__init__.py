"""The command line: parse, call, print. One module per command; options that several commands share are in `options`.

A user's mistake is one line on standard error, with what was seen and what to do, and exit code 2. Only the module of
the command that runs is imported, so that quick commands start quickly.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Any

import typer

from ternarybert.errors import FULL, TernaryBertError, printable

# In the order of the help. A command is the function of its name in the module of its name, which also has an EXAMPLE.
COMMANDS = (
    *("demo", "finetune", "ternarize", "evaluate", "predict", "inspect", "report", "pack", "unpack", "bundle"),
    *("export", "push"),
    *("augment", "serve", "search", "encode", "bench", "compare", "reproduce", "doctor"),
)


def _version(wanted: bool) -> None:
    if wanted:
        from ternarybert import __version__, native

        features = ", ".join(sorted(native.cpu_features())) or "none that a kernel uses"
        typer.echo(f"ternarybert {__version__} (CPU features: {features})")
        raise typer.Exit


def _cmake_dir(wanted: bool) -> None:
    if wanted:
        from ternarybert import native

        typer.echo(native.cmake_folder())
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    cmake_dir: Annotated[
        bool,
        typer.Option(
            "--cmake-dir", callback=_cmake_dir, is_eager=True, help="Show the folder of the C library's CMake package."
        ),
    ] = False,
) -> None:
    pass


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The `ternarybert` command with these subcommands."""
    app = typer.Typer(
        name="ternarybert",
        help="Make a fine-tuned BERT 15 times smaller: ternary weights, 8-bit activations, no GPU needed.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_options)
    for name in names:
        module = import_module(f"ternarybert.cli.{name}")
        app.command(name, epilog=module.EXAMPLE)(getattr(module, name))
    return app


def __getattr__(name: str) -> Any:
    if name == "app":  # all commands
        return make_app()
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def main() -> None:
    """Entry point of the `ternarybert` command."""
    try:
        first = sys.argv[1:2]
        make_app(first if first and first[0] in COMMANDS else COMMANDS)(prog_name="ternarybert")
    except TernaryBertError as error:
        typer.echo(f"ternarybert: {printable(error)}", err=True)
        try:
            sys.stdout.flush()
        except OSError:  # a full disk, maybe
            _drop_output()
        sys.exit(2)
    except BrokenPipeError:  # the reader, such as `head`, is done
        _drop_output()
        sys.exit(1)
    except OSError as error:  # those of files are handled where the files are written
        if error.errno not in FULL:
            raise
        _drop_output()
        typer.echo(f"ternarybert: the output cannot be printed: {error.strerror}", err=True)
        sys.exit(2)


def _drop_output() -> None:
    """Let what is not printed yet go nowhere: Python would try once more at its end, and complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
