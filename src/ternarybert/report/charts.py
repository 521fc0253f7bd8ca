"""How every figure looks, how it becomes files and a part of the page, and the figures that need no teacher.

Figures have no background, and axes and text have one grey that is readable on white and on black, so that the PNG
works on both. In the SVG that grey becomes the color of the surrounding text. Figures are narrow enough for a phone;
on larger screens the page puts them side by side.
"""

from __future__ import annotations

import io
import logging
import re
import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import get_font_names
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, PercentFormatter

from ternarybert.report.collect import Matrix, SizeScore, TrainingRun

_log = logging.getLogger(__name__)
INK = "#767676"
TEACHER, STUDENT = "#5b93c7", "#e0762b"
COLOURS = (STUDENT, "#3f9c6d", "#b05cc6", "#c9a227", "#d64f6a", "#3aa6b9", "#8d7ae0", "#8a8f3c")
HEAT = "YlOrBr"  # color map for shares and counts
WIDTH = 4.6  # inches; 440 pixels on a screen

# Fonts for scripts that matplotlib's own font lacks; those that are installed are used.
_MORE_FONTS = (
    *("Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Zen Hei"),
    *("PingFang SC", "Hiragino Sans", "Apple SD Gothic Neo", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic"),
    *("Arial Unicode MS", "Noto Sans Devanagari", "Noto Sans Thai", "Noto Sans"),
)


def fonts(installed: Iterable[str]) -> list[str]:
    """The fonts that a text is drawn with: for each character the first that has it."""
    names = set(installed)
    return ["sans-serif", *(name for name in _MORE_FONTS if name in names)]


STYLE: Any = {  # matplotlib settings; every function that draws is decorated with them
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor", "legend.facecolor"), "none"),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "font.family": fonts(get_font_names()),
    "font.size": 10,
    "grid.alpha": 0.18,
    "grid.color": INK,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: small, sharp, and in scripts that matplotlib's font lacks
    "svg.hashsalt": "ternarybert",  # the same file every time
    "text.parse_math": False,  # a dollar sign in a user's text is not mathematics
}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_STANDALONE_STYLE = "<style>:root{color:#3b4048}@media(prefers-color-scheme:dark){:root{color:#c9ced6}}</style>"

_TERNARY = ("#4a8fca", "#a3a3a3", "#e0813a")  # -1, 0, +1
_MARKERS = "osD^vP*X"
_SPAN = 0.15  # half of the smallest range of the color map, so that small differences do not look large
SYMBOLS = {
    "w_e": "word embedding",
    "w_q": "query",
    "w_k": "key",
    "w_v": "value",
    "w_o": "attention out",
    "w_1": "feed-forward in",
    "w_2": "feed-forward out",
    "w_p": "pooler",
}


@dataclass(frozen=True)
class Picture:
    """A rendered figure with its title and caption."""

    name: str  # of the files
    title: str
    caption: str
    svg: str  # for embedding in a page
    png: bytes
    width: int  # in CSS pixels

    @property
    def files(self) -> dict[str, bytes]:
        """The figure as files, by name."""
        head, _, body = self.svg.partition(">")
        return {f"{self.name}.svg": f"{head}>{_STANDALONE_STYLE}{body}".encode(), f"{self.name}.png": self.png}


def picture(figure: Figure, name: str, title: str, caption: str) -> Picture:
    """Render a figure; `name` must be unique on its page."""
    drawn, pixels = io.StringIO(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # browsers have fonts for glyphs that matplotlib lacks
        figure.savefig(drawn, format="svg", metadata=_NO_METADATA)
        with warnings.catch_warnings(record=True) as missing:
            warnings.filterwarnings("always", "Glyph", UserWarning)
            figure.savefig(pixels, format="png", dpi=160)
    if missing:
        _log.warning("%s.png: no font for some characters; install one, such as Noto Sans CJK, or use the SVG", name)
    text = drawn.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)  # ids are unique within a figure only
    width = round(figure.get_figwidth() * 96)
    return Picture(name, title, caption, text.replace(INK, "currentColor"), pixels.getvalue(), width)


def printable(text: str, max_length: int = 24) -> str:
    """Prepare a user's label or token for an axis: without unprintable characters, and truncated."""
    shown = "".join("�" if unicodedata.category(letter) in ("Cc", "Cs", "Cn") else letter for letter in text)
    return shown if len(shown) <= max_length else f"{shown[: max_length - 1]}…"


@rc_context(STYLE)
def size_accuracy(points: Sequence[SizeScore], metric: str, name: str, title: str = "Size and score") -> Picture:
    """Models by size and score; the best are at the top left."""
    figure = Figure(figsize=(WIDTH, 3.1 + 0.2 * len(points)), layout="constrained")
    axes = figure.subplots()
    students = 0
    for point in points:
        color, marker = TEACHER, "o"
        if not point.teacher:
            color, marker = COLOURS[students % len(COLOURS)], _MARKERS[students // len(COLOURS) % len(_MARKERS)]
            students += 1
        label = f"{printable(point.name, 40)}: {point.bytes / 2**20:.1f} MiB, {point.score:.1f}"
        face = "none" if point.teacher else color
        axes.scatter(
            point.bytes / 2**20, point.score, 64, marker=marker, ec=color, fc=face, linewidths=1.8, label=label
        )
    axes.set_xscale("log")
    low, high = min(p.bytes for p in points) / 2**20, max(p.bytes for p in points) / 2**20
    axes.set_xlim(low / 1.5, high * 1.5)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    scores = [point.score for point in points]
    margin = max(1.0, 0.25 * (max(scores) - min(scores)))  # a tenth of a point must not look large
    axes.set_ylim(min(scores) - margin, max(scores) + margin)
    axes.grid(visible=True)
    axes.set_xlabel("size of all tensors, MiB (log scale)")
    axes.set_ylabel(printable(metric))
    figure.legend(loc="outside lower left")
    return picture(figure, name, title, f"Size against {metric}; higher and further left is better.")


@rc_context(STYLE)
def score_curve(run: TrainingRun, name: str) -> Picture:
    """Scores of all evaluations, the packed one, and the teacher's."""
    figure = Figure(figsize=(WIDTH, 3.1), layout="constrained")
    axes = figure.subplots()
    steps, metric = [evaluation.step for evaluation in run.evaluations], printable(run.metric)
    axes.plot(steps, [e.scores[run.metric] for e in run.evaluations], "-o", color=STUDENT, ms=4, label=metric)
    if run.metric != "agreement" and all("agreement" in e.scores for e in run.evaluations):
        agreement = [e.scores["agreement"] for e in run.evaluations]
        axes.plot(steps, agreement, "--", color=COLOURS[1], label="agreement with the teacher")
    if run.teacher_score is not None:
        axes.axhline(run.teacher_score, color=TEACHER, linewidth=1.2, label=f"teacher's {metric}")
    axes.plot(
        run.best.step, run.best.scores[run.metric], "o", ms=10, mfc="none", mec=STUDENT, label=f"packed: {run.kept}"
    )
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(visible=True)
    axes.set_xlabel("step")
    axes.set_ylabel("score")
    figure.legend(loc="outside lower left", ncols=2)
    packed = f"The {run.kept} evaluation was packed: {run.best.scores[run.metric]:.2f} at step {run.best.step}"
    caption = (
        f"Scores on the evaluation rows during training. {packed}; the last is {run.final.scores[run.metric]:.2f}."
    )
    return picture(figure, name, "Scores during training", caption)


@rc_context(STYLE)
def loss_curve(run: TrainingRun, name: str) -> Picture:
    """The training loss and its terms."""
    figure = Figure(figsize=(WIDTH, 3.1), layout="constrained")
    axes = figure.subplots()
    terms = ["loss", *dict.fromkeys(term for entry in run.losses for term in entry if term not in ("step", "loss"))]
    for term, color in zip(terms, COLOURS, strict=False):
        points = [(entry["step"], entry[term]) for entry in run.losses if entry.get(term, 0) > 0]
        if points:
            label = "loss (weighted sum)" if term == "loss" else printable(term)
            axes.plot(*zip(*points, strict=True), color=color, lw=2 if term == "loss" else 1.2, label=label)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(visible=True)
    axes.set_xlabel("step")
    axes.set_ylabel("training loss (log scale)")
    figure.legend(loc="outside lower left", ncols=2)
    caption = "The training loss and its unweighted terms, each the mean over the steps since the previous point."
    return picture(figure, name, "Training loss", caption)


@rc_context(STYLE)
def matrix_map(values: Mapping[Matrix, float], name: str, title: str, caption: str, *, percent: bool) -> Picture:
    """A heat map with a number for every matrix of every layer."""
    symbols = [symbol for symbol in SYMBOLS if any(symbol == other for other, _ in values)]
    layers = sorted({layer for _, layer in values})
    grid = np.array([[values.get((symbol, layer), np.nan) for symbol in symbols] for layer in layers])
    figure = Figure(figsize=(WIDTH, 1.2 + 0.27 * len(layers)), layout="constrained")
    axes = figure.subplots()
    middle = float(np.nanmean(grid))
    ends = (min(float(np.nanmin(grid)), middle - _SPAN), max(float(np.nanmax(grid)), middle + _SPAN))
    heat_map(axes, grid, ends, [f"{value:.0%}" if percent else f"{value:.2f}" for value in grid.reshape(-1)])
    axes.set_xticks(range(len(symbols)), [SYMBOLS[symbol].replace(" ", "\n").replace("-", "-\n") for symbol in symbols])
    axes.tick_params(axis="x", labelsize=8)
    axes.set_yticks(range(len(layers)), [str(layer + 1) for layer in layers])
    axes.set_ylabel("layer")
    return picture(figure, name, title, caption)


def heat_map(axes: Axes, grid: Any, ends: tuple[float, float], labels: Sequence[str], size: float = 8) -> None:
    """Cells colored by value between two ends, each with a label in black or white."""
    low, high = ends
    colors = colormaps[HEAT](0.08 + 0.84 * (grid - low) / (high - low))
    axes.imshow(colors, aspect="auto", interpolation="none")
    for (row, column), label in zip(np.ndindex(*grid.shape), labels, strict=True):
        bright = colors[row, column, :3] @ (0.299, 0.587, 0.114) > 0.55
        if np.isfinite(grid[row, column]):
            axes.text(column, row, label, ha="center", va="center", fontsize=size, color="#111" if bright else "#fff")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


@rc_context(STYLE)
def levels(shares: Mapping[str, Mapping[int, float]], name: str) -> Picture:
    """Shares of the levels of each kind of matrix, as stacked bars."""
    figure = Figure(figsize=(WIDTH, 0.9 + 0.3 * len(shares)), layout="constrained")
    axes = figure.subplots()
    for row, kind in enumerate(shares.values()):
        start = 0.0
        for (level, share), color in zip(kind.items(), level_colors(len(kind)), strict=True):
            axes.barh(row, share, 0.74, start, color=color)
            if share > 0.09:
                text = f"{share:.0%}" if len(kind) == 3 else str(level)
                axes.text(start + share / 2, row, text, ha="center", va="center", fontsize=8, color="#111")
            start += share
    axes.set_yticks(range(len(shares)), [SYMBOLS[symbol] for symbol in shares])
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))
    axes.spines[:].set_visible(False)
    axes.tick_params(axis="y", length=0)
    caption = (
        "Share of weights at each level over all layers, lowest level on the left; for ternary weights -1, 0 and +1."
    )
    return picture(figure, name, "Weight levels", caption)


@rc_context(STYLE)
def confusion(counts: Sequence[Sequence[int]], labels: Sequence[str], whose: str, name: str) -> Picture:
    """True labels against predictions; the color is the share of the true label."""
    grid = np.array(counts, float)
    shares = grid / np.maximum(grid.sum(1, keepdims=True), 1)
    side = 0.42 * len(labels)
    figure = Figure(figsize=(WIDTH, max(1.9, side + 1.0)), layout="constrained")
    axes = figure.subplots()
    heat_map(axes, shares, (0, 1), [f"{int(count)}" for count in grid.reshape(-1)], size=9 if len(labels) < 8 else 7)
    shown = [printable(label, 14) for label in labels]
    axes.set_xticks(
        range(len(labels)), shown, rotation=0 if len(labels) < 4 else 40, ha="center" if len(labels) < 4 else "right"
    )
    axes.set_yticks(range(len(labels)), shown)
    axes.set_xlabel("prediction")
    axes.set_ylabel("true label")
    right = np.trace(grid) / max(grid.sum(), 1)
    caption = f"{right:.1%} of {int(grid.sum()):,} rows are correct. Color: share of the rows with that true label."
    return picture(figure, name, f"Predictions of the {whose}", caption)


def level_colors(levels: int) -> list[Any]:
    """Colors of the levels, from the lowest to the highest."""
    return list(_TERNARY) if levels == 3 else [colormaps["coolwarm"](share) for share in np.linspace(0, 1, levels)]
