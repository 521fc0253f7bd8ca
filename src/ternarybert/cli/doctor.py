"""The command `doctor`: what is installed, what it runs on, and whether it computes what it should."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ternarybert.doctor import DoctorReport

DOCTOR_EXAMPLE = "Example: ternarybert doctor --json > report.json"
_BROKEN = 1


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON object.")] = False,
    selftest: Annotated[bool, typer.Option(help="Compare and time the engine; takes some seconds.")] = True,
) -> None:
    """Show versions, CPU, kernels and extras, and test the native engine. Exit code 1 when something is broken."""
    from ternarybert.doctor import examine

    found = examine(selftest=selftest)
    if as_json:
        typer.echo(json.dumps(asdict(found)))
    else:
        _show(found)
    if found.problems:
        raise typer.Exit(_BROKEN)


def _show(found: DoctorReport) -> None:
    for title, values in (("Versions", found.versions), ("Machine", found.machine), ("Engine", found.engine)):
        _section(title, {name: value for name, value in values.items() if value is not None})
    _section("Extras", {name: _extra(name, packages) for name, packages in found.extras.items()})
    if found.selftest:
        _section("Self-test", _tested(found.selftest))
    for problem in found.problems:
        typer.echo(f"problem: {problem}")
    typer.echo("Something is broken; see above." if found.problems else "All is well.")


def _section(title: str, values: dict[str, Any]) -> None:
    if not values:
        return
    typer.echo(title)
    width = max(map(len, values))
    for name, value in values.items():
        typer.echo(f"  {name:{width}}  {', '.join(value) if isinstance(value, list) else value}")


def _extra(name: str, packages: dict[str, str | None]) -> str:
    missing = [package for package, version in packages.items() if version is None]
    if not missing:
        return "there: " + ", ".join(f"{package} {version}" for package, version in packages.items())
    return f"not complete ({', '.join(missing)}): pip install 'ternarybert[{name}]'"


def _tested(tested: dict[str, Any]) -> dict[str, str]:
    said = {"every kernel": "equal to NumPy, bit for bit" if tested["bits"] else "DIFFERS from NumPy"}
    for one in tested["speed"]:
        threads = "1 thread" if one["threads"] == 1 else f"{one['threads']} threads"
        said[f"speed, {threads}"] = f"{one['tokens per second']:,} tokens/s (6 layers x 384, {one['kernel']})"
    return said | {"took": f"{tested['seconds']} s"}
