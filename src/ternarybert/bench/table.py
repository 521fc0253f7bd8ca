"""A run in words: the rows of its table, for the terminal and for reports."""

from __future__ import annotations

from typing import Any


def machine(report: dict[str, Any]) -> str:
    """What was timed, and on what."""
    return f"{report['model']}, {threads(report)}, kernel {report['kernel']}, {report['cpu']}"


def threads(report: dict[str, Any]) -> str:
    """How many."""
    count = report["threads"]
    return f"{count} thread{'' if count == 1 else 's'}"


def headings(report: dict[str, Any]) -> list[str]:
    """Of the columns."""
    return ["ms (times ours)", *report["batches"], "memory MB", "peak MB", "error"]


def rows(report: dict[str, Any]) -> list[list[str]]:
    """One for each engine that was timed."""
    timed = [engine for engine in report["engines"] if engine["failed"] is None]
    return [[engine["name"], *_cells(engine, report["batches"])] for engine in timed]


def failures(report: dict[str, Any]) -> list[str]:
    """Why the others were not."""
    return [
        f"{engine['name']}: not timed, {engine['failed']}"
        for engine in report["engines"]
        if engine["failed"] is not None
    ]


def _cells(engine: dict[str, Any], batches: list[str]) -> list[str]:
    cells = []
    for name in batches:
        ratio = engine["ratios"].get(name)
        cells.append(f"{engine['ms'][name]:.2f}" + (f" ({ratio:.2f}x)" if ratio is not None else ""))
    for size in (engine["memory"], engine["peak"]):
        cells.append("" if not size else f"{size / 1e6:.0f}")
    return [*cells, f"{engine['error']:.1e}"]
