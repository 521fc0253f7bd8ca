"""The paper's Figure 1 for the model at hand: size against score, ours in red."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternarybert.compare.tables import Row
from ternarybert.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLES: dict[str, dict[str, Any]] = {
    "ours": {"marker": "s", "color": "#c0392b", "label": "TernaryBERT (this package)"},
    "quantization": {"marker": "o", "color": "#2c6fa6", "label": "other quantization"},
    "compression": {"marker": "^", "color": "#6b7b83", "label": "other compression"},
    "teacher": {"marker": "*", "color": "#222222", "label": "teacher, float32"},
}
# Where a label may go, in points from its marker; the first place that is free is taken.
_PLACES = [(7, 4), (7, -11), (-7, 4), (-7, -11), (0, 10), (0, -16), (7, 16), (-7, 16), (7, -24), (-7, -24), (0, 24)]


def require_matplotlib() -> None:
    """Better before hours of work than after them."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtraError("matplotlib is missing: pip install 'ternarybert[report]'")


def draw(rows: Sequence[Row], metric: str, title: str, *paths: Path) -> None:
    """Write the figure in the formats that the files' names end with."""
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
    figure.canvas.draw()  # only now is it known where points and texts are
    _label(axes, shown, metric)
    for path in paths:
        figure.savefig(path, dpi=150)


def _label(axes: Axes, rows: Sequence[Row], metric: str) -> None:
    """A name at every point, none over another where there is room."""
    from matplotlib.transforms import Bbox

    points = [axes.transData.transform((row.mib or 0.0, (row.scores or {})[metric])) for row in rows]
    taken = [Bbox.from_bounds(x - 6, y - 6, 12, 12) for x, y in points]
    for row in rows:
        text = row.label if row.family == "teacher" else f"{row.label} {row.bits}"
        for place in _PLACES:
            side = "left" if place[0] > 0 else "right" if place[0] < 0 else "center"
            note = axes.annotate(
                text,
                (row.mib or 0.0, (row.scores or {})[metric]),
                place,
                textcoords="offset points",
                ha=side,
                fontsize=7.5,
                color=_STYLES[row.family]["color"],
            )
            box = note.get_window_extent()
            if place == _PLACES[-1] or not (box.count_overlaps(taken) or _leaves(axes, box)):
                taken.append(box)
                break
            note.remove()


def _leaves(axes: Axes, box: Any) -> bool:
    """Whether a label would stick out."""
    inside = axes.get_window_extent()
    return bool(box.x0 < inside.x0 or box.x1 > inside.x1 or box.y0 < inside.y0 or box.y1 > inside.y1)
