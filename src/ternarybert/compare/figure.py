"""The paper's Figure 1 for the user's model: size against score, TernaryBERT in red."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternarybert.compare.tables import ComparisonRow
from ternarybert.errors import MissingExtraError
from ternarybert.storage import replace_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLES: dict[str, dict[str, Any]] = {
    "ours": {"marker": "s", "color": "#c0392b", "label": "TernaryBERT (this package)"},
    "quantization": {"marker": "o", "color": "#2c6fa6", "label": "other quantization"},
    "compression": {"marker": "^", "color": "#6b7b83", "label": "other compression"},
    "teacher": {"marker": "*", "color": "#222222", "label": "teacher, float32"},
}
# Offsets of a label from its marker, in points; the first one that is free is used.
_LABEL_OFFSETS = [
    (7, 4),
    (7, -11),
    (-7, 4),
    (-7, -11),
    (0, 10),
    (0, -16),
    (7, 16),
    (-7, 16),
    (7, -24),
    (-7, -24),
    (0, 24),
]


def require_matplotlib() -> None:
    """Raise an error if matplotlib is missing: better before hours of work than after."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib is missing: pip install 'ternarybert[report]'")


def draw(rows: Sequence[ComparisonRow], metric: str, title: str, *paths: Path) -> None:
    """Write the figure; the suffixes of the paths select the formats."""
    require_matplotlib()
    from matplotlib.figure import Figure

    shown = [row for row in rows if row.mib is not None and row.scores and metric in row.scores]
    figure = Figure(figsize=(8.5, 5.2), layout="constrained")
    axes = figure.subplots()
    for family, style in _STYLES.items():
        points = [row for row in shown if row.family == family]
        size = 110 if family == "teacher" else 42
        axes.scatter(
            [p.mib or 0.0 for p in points], [(p.scores or {})[metric] for p in points], s=size, zorder=3, **style
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.tick_params(axis="x", which="both", labelsize=8)
    axes.margins(x=0.16, y=0.12)
    axes.set_xlabel("size, MiB")
    axes.set_ylabel(metric)
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    figure.canvas.draw()  # computes the positions of points and texts
    _label(axes, shown, metric)
    for path in paths:
        with replace_file(path) as draft:
            figure.savefig(draft, dpi=150)


def _label(axes: Axes, rows: Sequence[ComparisonRow], metric: str) -> None:
    """Label every point, without overlaps where possible."""
    from matplotlib.transforms import Bbox

    points = [axes.transData.transform((row.mib or 0.0, (row.scores or {})[metric])) for row in rows]
    taken = [Bbox.from_bounds(x - 6, y - 6, 12, 12) for x, y in points]
    for row in rows:
        text = row.label if row.family == "teacher" else f"{row.label} {row.bits}"
        for offset in _LABEL_OFFSETS:
            side = "left" if offset[0] > 0 else "right" if offset[0] < 0 else "center"
            label = axes.annotate(
                text,
                (row.mib or 0.0, (row.scores or {})[metric]),
                offset,
                textcoords="offset points",
                ha=side,
                fontsize=7.5,
                color=_STYLES[row.family]["color"],
            )
            box = label.get_window_extent()
            if offset == _LABEL_OFFSETS[-1] or not (box.count_overlaps(taken) or _sticks_out(axes, box)):
                taken.append(box)
                break
            label.remove()


def _sticks_out(axes: Axes, box: Any) -> bool:
    """Whether a label would leave the axes."""
    inside = axes.get_window_extent()
    return bool(box.x0 < inside.x0 or box.x1 > inside.x1 or box.y0 < inside.y0 or box.y1 > inside.y1)
