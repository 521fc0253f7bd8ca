"""Figures that need no teacher: size against score, training curves, matrices of numbers, levels, confusion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, PercentFormatter

from ternarybert.report.collect import Matrix, Point, Run
from ternarybert.report.picture import COLOURS, HEAT, STUDENT, STYLE, TEACHER, WIDTH, Picture, picture, printable
from ternarybert.report.weights import level_colours

_MARKERS = "osD^vP*X"
_SPAN = 0.15  # half of the least difference that has all colours: small ones must not look large
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


@rc_context(STYLE)
def size_accuracy(points: Sequence[Point], metric: str, name: str, title: str = "Size and score") -> Picture:
    """Models by size and score; the best corner is at the top left."""
    figure = Figure(figsize=(WIDTH, 3.1 + 0.2 * len(points)), layout="constrained")
    axes = figure.subplots()
    others = 0
    for point in points:
        colour, marker = TEACHER, "o"
        if not point.teacher:
            colour, marker = COLOURS[others % len(COLOURS)], _MARKERS[others // len(COLOURS) % len(_MARKERS)]
            others += 1
        label = f"{printable(point.name, 40)}: {point.bytes / 2**20:.1f} MiB, {point.score:.1f}"
        face = "none" if point.teacher else colour
        axes.scatter(
            point.bytes / 2**20, point.score, 64, marker=marker, ec=colour, fc=face, linewidths=1.8, label=label
        )
    axes.set_xscale("log")
    low, high = min(p.bytes for p in points) / 2**20, max(p.bytes for p in points) / 2**20
    axes.set_xlim(low / 1.5, high * 1.5)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    scores = [point.score for point in points]
    room = max(1.0, 0.25 * (max(scores) - min(scores)))  # a tenth of a point must not look like a gulf
    axes.set_ylim(min(scores) - room, max(scores) + room)
    axes.grid(visible=True)
    axes.set_xlabel("size of all tensors, MiB (logarithmic)")
    axes.set_ylabel(printable(metric))
    figure.legend(loc="outside lower left")
    return picture(figure, name, title, f"Size against {metric}; higher and further left is better.")


@rc_context(STYLE)
def score_curve(run: Run, name: str) -> Picture:
    """Scores of every evaluation, the best of them, and the teacher's."""
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
        run.best.step, run.best.scores[run.metric], "o", ms=10, mfc="none", mec=STUDENT, label=f"packed: the {run.kept}"
    )
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(visible=True)
    axes.set_xlabel("step")
    axes.set_ylabel("score")
    figure.legend(loc="outside lower left", ncols=2)
    best = f"The {run.kept}, {run.best.scores[run.metric]:.2f} at step {run.best.step}, is the one that was packed"
    caption = f"Scores on the evaluation rows during training. {best}; the last had {run.final.scores[run.metric]:.2f}."
    return picture(figure, name, "Scores during training", caption)


@rc_context(STYLE)
def loss_curve(run: Run, name: str) -> Picture:
    """The training loss and its terms."""
    figure = Figure(figsize=(WIDTH, 3.1), layout="constrained")
    axes = figure.subplots()
    terms = ["loss", *dict.fromkeys(term for entry in run.losses for term in entry if term not in ("step", "loss"))]
    for term, colour in zip(terms, COLOURS, strict=False):
        found = [(entry["step"], entry[term]) for entry in run.losses if entry.get(term, 0) > 0]
        if found:
            label = "loss: the weighted sum" if term == "loss" else printable(term)
            axes.plot(*zip(*found, strict=True), color=colour, lw=2 if term == "loss" else 1.2, label=label)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.grid(visible=True)
    axes.set_xlabel("step")
    axes.set_ylabel("training loss (logarithmic)")
    figure.legend(loc="outside lower left", ncols=2)
    caption = (
        "The training loss and its terms before their weights, each the mean over the steps since the point before."
    )
    return picture(figure, name, "Training loss", caption)


@rc_context(STYLE)
def matrix_map(values: Mapping[Matrix, float], name: str, title: str, caption: str, *, percent: bool) -> Picture:
    """A number for every matrix of every layer, as colours with the numbers on them."""
    symbols = [symbol for symbol in SYMBOLS if any(symbol == found for found, _ in values)]
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
    """Cells coloured by their place between two ends, each with its label in black or white."""
    low, high = ends
    colours = colormaps[HEAT](0.08 + 0.84 * (grid - low) / (high - low))
    axes.imshow(colours, aspect="auto", interpolation="none")
    for (row, column), label in zip(np.ndindex(*grid.shape), labels, strict=True):
        bright = colours[row, column, :3] @ (0.299, 0.587, 0.114) > 0.55
        if np.isfinite(grid[row, column]):
            axes.text(column, row, label, ha="center", va="center", fontsize=size, color="#111" if bright else "#fff")
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


@rc_context(STYLE)
def levels(shares: Mapping[str, Mapping[int, float]], name: str) -> Picture:
    """For each kind of matrix the shares of its levels, as bars of one length."""
    figure = Figure(figsize=(WIDTH, 0.9 + 0.3 * len(shares)), layout="constrained")
    axes = figure.subplots()
    for row, kind in enumerate(shares.values()):
        start = 0.0
        for (level, share), colour in zip(kind.items(), level_colours(len(kind)), strict=True):
            axes.barh(row, share, 0.74, start, color=colour)
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
        "Share of weights at each level, the lowest at the left, over all layers; for ternary weights -1, 0 and +1."
    )
    return picture(figure, name, "Levels of the weights", caption)


@rc_context(STYLE)
def confusion(counts: Sequence[Sequence[int]], labels: Sequence[str], whose: str, name: str) -> Picture:
    """True classes against answers; the colour is the share of the true class."""
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
    axes.set_xlabel("answer")
    axes.set_ylabel("true label")
    right = np.trace(grid) / max(grid.sum(), 1)
    caption = f"{right:.1%} of {int(grid.sum()):,} rows are right. Colour: share of the rows with that true label."
    return picture(figure, name, f"Answers of the {whose}", caption)
