"""The table as a picture: for each batch, how many times as long as ours the others take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ternarybert.bench.table import threads
from ternarybert.errors import MissingExtraError

_COLOURS = {"ternarybert": "#c0392b"}
_OTHERS = ("#34495e", "#5d7389", "#8aa0b4", "#b3c2cf", "#d5dde4")


def draw(report: dict[str, Any], path: Path) -> None:
    """Write the chart in the format that the file's name ends with."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtraError("matplotlib is missing: pip install 'ternarybert[report]'") from error
    engines = [engine for engine in report["engines"] if engine["failed"] is None]
    figure = Figure(figsize=(1.8 * len(report["batches"]) + 2, 4.2), layout="constrained")
    axes = figure.subplots()
    others = iter(_OTHERS * 2)
    width = 0.8 / max(1, len(engines))
    for i, engine in enumerate(engines):
        colour = _COLOURS.get(engine["name"]) or next(others)
        places = [j + (i - (len(engines) - 1) / 2) * width for j in range(len(report["batches"]))]
        heights = [engine["ratios"].get(name) or engine["ms"][name] for name in report["batches"]]
        bars = axes.bar(places, heights, width * 0.92, label=engine["name"], color=colour)
        axes.bar_label(bars, [_short(engine["ms"][name]) for name in report["batches"]], fontsize=6, padding=1)
    axes.set_xticks(range(len(report["batches"])), report["batches"])
    axes.axhline(1, color="#c0392b", linewidth=0.8, linestyle=":")
    axes.set_ylabel("time, as multiples of ternarybert's")
    axes.set_title(f"{report['model']}, {threads(report)}; numbers: milliseconds", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, ncols=3)
    figure.savefig(path, dpi=150)


def _short(ms: float) -> str:
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"
