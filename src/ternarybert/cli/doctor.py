"""The command `doctor`: what is installed, the CPU, and whether the engine computes correctly."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from ternarybert.cli.console import print_json
from ternarybert.cli.options import ENGINE, JsonOption, option, with_options

if TYPE_CHECKING:
    from ternarybert.doctor import DoctorReport

EXAMPLE = "Example: ternarybert doctor --json > report.json"
_BROKEN = 1


class DoctorOptions(JsonOption):
    """What is examined."""

    selftest: bool = option(
        ENGINE,
        "Check the engine against NumPy and time it. Takes some seconds.",
        flags="--selftest/--no-selftest",
        default=True,
    )


@with_options
def doctor(options: DoctorOptions) -> None:
    """Show versions, CPU, kernels and extras, and test the native engine. Exits with 1 if something is broken."""
    from ternarybert.doctor import examine

    finding = examine(selftest=options.selftest)
    if options.as_json:
        print_json(asdict(finding))
    else:
        _show(finding)
    if finding.problems:
        raise typer.Exit(_BROKEN)


def _show(finding: DoctorReport) -> None:
    for title, values in (("Versions", finding.versions), ("Machine", finding.machine), ("Engine", finding.engine)):
        _show_section(title, {name: value for name, value in values.items() if value is not None})
    _show_section("Extras", {name: _extra(name, packages) for name, packages in finding.extras.items()})
    if finding.selftest:
        _show_section("Self-test", _selftest(finding.selftest))
    for problem in finding.problems:
        typer.echo(f"problem: {problem}")
    typer.echo("Something is broken; see above." if finding.problems else "Everything works.")


def _show_section(title: str, values: dict[str, Any]) -> None:
    if not values:
        return
    typer.echo(title)
    width = max(map(len, values))
    for name, value in values.items():
        typer.echo(f"  {name:{width}}  {', '.join(value) if isinstance(value, list) else value}")


def _extra(name: str, packages: dict[str, str | None]) -> str:
    missing = [package for package, version in packages.items() if version is None]
    if not missing:
        return "installed: " + ", ".join(f"{package} {version}" for package, version in packages.items())
    return f"incomplete (missing {', '.join(missing)}): pip install 'ternarybert[{name}]'"


def _selftest(result: dict[str, Any]) -> dict[str, str]:
    lines = {"all kernels": "equal to NumPy, bit for bit" if result["bits"] else "DIFFER from NumPy"}
    for speed in result["speed"]:
        threads = "1 thread" if speed["threads"] == 1 else f"{speed['threads']} threads"
        lines[f"speed, {threads}"] = f"{speed['tokens per second']:,} tokens/s (6 layers x 384, {speed['kernel']})"
    return lines | {"took": f"{result['seconds']} s"}
