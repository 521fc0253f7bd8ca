"""A comparison's folder as rows: one for the teacher, one for each method and bits, seeds taken together."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import mean, stdev
from typing import Any

from ternarybert.compare.cells import Cell
from ternarybert.compare.place import Place
from ternarybert.distill.work import write_json

MIB = 2**20


@dataclass(frozen=True)
class Row:
    """A method at some bits."""

    label: str
    bits: str
    family: str
    bytes: int | None = None
    ratio: float | None = None
    scores: dict[str, float] | None = None  # of the last student, the mean over the seeds
    best: dict[str, float] | None = None  # the same of the best on the evaluation set, which flatters
    sets: dict[str, dict[str, float]] | None = None
    spread: dict[str, float] | None = None  # standard deviation over the seeds, where there are several
    seeds: tuple[int, ...] = ()
    steps: float | None = None
    seconds: float | None = None
    failed: str | None = None
    group: str = ""

    @property
    def mib(self) -> float | None:
        """What the paper calls MB."""
        return None if self.bytes is None else self.bytes / MIB


def rows_of(place: Place, cells: Sequence[Cell], teacher: dict[str, Any]) -> list[Row]:
    """The teacher and every cell that was tried, in the grid's order."""
    rows = [
        Row(
            "teacher",
            "32-32-32",
            "teacher",
            teacher["size"]["bytes"],
            1.0,
            teacher["scores"],
            teacher["scores"],
            teacher["sets"],
        )
    ]
    for group in dict.fromkeys(cell.group for cell in cells):
        same = [cell for cell in cells if cell.group == group]
        found = [(cell, result) for cell in same if (result := place.result(cell)) is not None]
        if found:
            rows.append(_row(found))
    return rows


def _row(found: list[tuple[Cell, dict[str, Any]]]) -> Row:
    cell = found[0][0]
    done = [(each, result) for each, result in found if "failed" not in result]
    if not done:
        return Row(cell.label, cell.bits, cell.family, failed=found[0][1]["failed"], group=cell.group)
    results = [result for _, result in done]
    finals = [result["student"]["final"] for result in results]
    names = finals[0]["scores"]
    return Row(
        cell.label,
        cell.bits,
        cell.family,
        round(mean(result["size"]["bytes"] for result in results)),
        mean(result["size"]["ratio"] for result in results),
        {name: mean(final["scores"][name] for final in finals) for name in names},
        {name: mean(result["student"]["best"]["scores"][name] for result in results) for name in names},
        {
            part: {name: mean(final["sets"][part][name] for final in finals) for name in scores}
            for part, scores in finals[0]["sets"].items()
        },
        {name: stdev(final["scores"][name] for final in finals) for name in names} if len(finals) > 1 else None,
        tuple(each.seed for each, _ in done),
        mean(result["steps"] for result in results),
        mean(result["seconds"] for result in results),
        group=cell.group,
    )


def markdown(rows: Sequence[Row], metrics: Sequence[str]) -> str:
    """The table for a document; a method that could not be run is named below it."""
    head = ["method", "W-E-A", "size, MiB", "smaller", *metrics, "agreement", "steps", "minutes"]
    lines = [f"| {' | '.join(head)} |", "|---|---|" + "---:|" * (len(head) - 2)]
    for row in rows:
        if row.failed is None:
            lines.append(f"| {' | '.join([row.label, row.bits, *figures(row, metrics)])} |")
    missing = [f"Not run: {row.label} {row.bits}: {row.failed}" for row in rows if row.failed is not None]
    return "\n".join([*lines, *([""] if missing else []), *missing]) + "\n"


def figures(row: Row, metrics: Sequence[str]) -> list[str]:
    """A row's numbers as text."""
    scores, spread = row.scores or {}, row.spread or {}
    shown = [
        "" if name not in scores else f"{scores[name]:.1f}" + (f" ± {spread[name]:.1f}" if name in spread else "")
        for name in [*metrics, "agreement"]
    ]
    return [
        "" if row.mib is None else f"{row.mib:.2f}",
        "" if row.ratio is None else f"{row.ratio:.1f}x",
        *shown,
        "" if row.steps is None else f"{row.steps:.0f}",
        "" if row.seconds is None else f"{row.seconds / 60:.1f}",
    ]


def write(place: Place, rows: Sequence[Row], teacher: dict[str, Any]) -> None:
    """The table as Markdown and as JSON, from which a report can be made."""
    metrics = list(teacher["scores"]) or []
    (place.folder / "table.md").write_text(markdown(rows, metrics), encoding="utf-8")
    value = {"task": teacher["task"], "metric": teacher["metric"], "metrics": metrics, "rows": [*map(asdict, rows)]}
    write_json(place.folder / "table.json", json.loads(json.dumps(value)))
