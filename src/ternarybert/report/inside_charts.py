"""The parts of a report that run both models on some texts; torch is imported when they are asked for.

MERGED-DOCS:
Figures of what happens inside: distributions of hidden representations, and attention side by side.

Figure 3 and Appendix A of the paper, and its Appendix E.

"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ternarybert.errors import DataError
from ternarybert.report.charts import heat_map
from ternarybert.report.page import Part, Table
from ternarybert.report.picture import HEAT, STUDENT, STYLE, TEACHER, WIDTH, Picture, picture, printable

if TYPE_CHECKING:
    from ternarybert.report.inside import Attention, Inside

Array = npt.NDArray[np.float32]

QUANTILES = (0.0, 0.01, 0.25, 0.5, 0.75, 0.99, 1.0)
MOST_TOKENS = 32  # of a map; more could not be read
_BINS = 96


def quantiles(values: Array) -> tuple[float, ...]:
    """Smallest, 1 %, 25 %, median, 75 %, 99 %, largest."""
    return tuple(float(value) for value in np.quantile(values, QUANTILES))


def skewness(values: Array) -> float:
    """The third standardized moment: negative where the long tail is on the left."""
    centred = values.astype(np.float64) - values.mean(dtype=np.float64)
    return float(np.mean(centred**3) / max(np.mean(centred**2) ** 1.5, 1e-30))


def layer_name(place: int) -> str:
    """What a place among the hidden representations is called."""
    return "embedding" if place == 0 else f"layer {place}"


@rc_context(STYLE)
def hidden(inside: Inside, name: str) -> Picture:
    """A histogram for every layer, teacher and student over each other."""
    rows = len(inside.layers)
    figure = Figure(figsize=(WIDTH, 0.9 + 0.58 * rows), layout="constrained")
    every = figure.subplots(rows, sharex=True, squeeze=False)[:, 0]
    ends = [np.quantile(values, (0.005, 0.995)) for values in (*inside.teacher, *inside.student)]
    edges = np.linspace(min(low for low, _ in ends), max(high for _, high in ends), _BINS + 1)
    for place, axes in enumerate(every):
        for values, colour, filled in ((inside.teacher[place], TEACHER, True), (inside.student[place], STUDENT, False)):
            shares = np.histogram(values, edges)[0] / values.size
            style: dict[str, Any] = {"fill": True, "alpha": 0.55} if filled else {"linewidth": 1.4}
            axes.stairs(shares, edges, color=colour, label="teacher" if filled else "student", **style)
        axes.axvline(0, color=STYLE["text.color"], linewidth=0.6, linestyle=":")
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_ylabel(layer_name(place), rotation=0, ha="right", va="center", fontsize=9)
    every[-1].set_xlabel("hidden value")
    figure.legend(*every[0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    caption = (
        "Values of the hidden representations after each layer, every layer to its own height. In the paper those of a "
        "full-precision BERT lean to the negative side, more so in early layers: the reason for its min-max ranges."
    )
    return picture(figure, name, "Hidden representations", caption)


def shown_layers(layers: int) -> list[int]:
    """Up to four from the first to the last, counted from 0."""
    return sorted({round(layer) for layer in np.linspace(0, layers - 1, 4).tolist()})


@rc_context(STYLE)
def attention_maps(attention: Attention, layer: int, name: str, which: str) -> Picture:
    """Teacher and student side by side, the mean over the heads of one layer."""
    count = min(len(attention.tokens), MOST_TOKENS)
    maps = [side[layer, :, :count, :count].mean(0) for side in (attention.teacher, attention.student)]
    tokens = [printable(token, 12) for token in attention.tokens[:count]]
    size = 8 if count <= 12 else 6.5 if count <= 20 else 5
    label = 0.62 * size / 72 * max(map(len, tokens)) + 0.1  # inches that the tokens take on either axis
    figure = Figure(figsize=(WIDTH, (WIDTH - label) / 2 + label + 0.25), layout="constrained")
    every = figure.subplots(1, 2)
    top = max(float(each.max()) for each in maps)
    for axes, values, whose in zip(every, maps, ("teacher", "student"), strict=True):
        _map(axes, values, tokens, size, top)
        axes.set_title(whose)
    every[1].set_yticks([])
    cut = "" if count == len(attention.tokens) else f" The first {count} of {len(attention.tokens)} tokens."
    caption = f"Layer {layer + 1}, mean over the heads: how much each token (row) looks at each other (column).{cut}"
    return picture(figure, name, f"{which}: attention in layer {layer + 1}", caption)


def _map(axes: Axes, values: Array, tokens: Sequence[str], size: float, top: float) -> None:
    axes.imshow(values, cmap=HEAT, vmin=0, vmax=top, interpolation="none")
    axes.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=size)
    axes.set_yticks(range(len(tokens)), tokens, fontsize=size)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def head_differences(attention: Sequence[Attention]) -> Array:
    """For every layer and head how much of the student's attention lies elsewhere, the mean over all tokens.

    Half the sum of absolute differences of a row: 0 if they look at the same tokens, 1 if at none in common.
    """
    rows = [np.abs(text.teacher - text.student).sum(-1).transpose(2, 0, 1) / 2 for text in attention]
    mean: Array = np.concatenate(rows).mean(0)
    return mean


@rc_context(STYLE)
def head_map(attention: Sequence[Attention], name: str) -> Picture:
    """The differences of all heads as colours with the numbers on them."""
    grid = head_differences(attention)
    layers, heads = grid.shape
    figure = Figure(figsize=(WIDTH, 0.9 + 0.27 * layers), layout="constrained")
    axes = figure.subplots()
    heat_map(
        axes,
        grid,
        (0, max(0.5, float(grid.max()))),
        [f"{value * 100:.0f}" for value in grid.reshape(-1)],
        size=8 if heads <= 12 else 6,
    )
    axes.set_xticks(range(heads), [str(head + 1) for head in range(heads)])
    axes.set_yticks(range(layers), [str(layer + 1) for layer in range(layers)])
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    caption = (
        "Percent of the student's attention that lies on other tokens than the teacher's, the mean over all tokens: "
        "0 is the same, 100 nothing in common."
    )
    return picture(figure, name, "Attention of every head", caption)


Text = tuple[str, ...]  # a text or a pair

# The sentences of the paper's Appendix E.
TEXTS: tuple[Text, ...] = (
    ("this movie is maddening.",),
    ("old-form moviemaking at its best.",),
    ("Who does John visit Sally because he likes?",),
    ("The more pictures of him that appear in the news, the more embarrassed John becomes.",),
)
MOST_TEXTS = 64  # that hidden representations are collected of
_MOST_MAPS = 4  # texts whose attention is shown
_QUANTILE_NAMES = ("smallest", "1 %", "25 %", "median", "75 %", "99 %", "largest")


def read_texts(path: Path) -> list[Text]:
    """One text a line; a tab parts the two texts of a pair."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as text: {error}") from error
    texts = [tuple(line.split("\t")[:2]) for line in lines if line.strip()]
    if not texts:
        raise DataError(f"{path} has no texts; one a line is expected")
    return texts


def inside_parts(student: Path, teacher: Path, texts: Sequence[Text], prefix: str) -> list[Part]:
    """Hidden representations and attention."""
    from ternarybert.report.inside import look_inside

    inside = look_inside(student, teacher, texts[:MOST_TEXTS])
    return [_inside(inside, len(texts), prefix), *_maps(inside, texts, prefix)]


def _inside(inside: Inside, texts: int, prefix: str) -> Part:
    rows = []
    for place, pair in enumerate(zip(inside.teacher, inside.student, strict=True)):
        for whose, values in zip(("teacher", "student"), pair, strict=True):
            numbers = [f"{value:.2f}" for value in (*quantiles(values), skewness(values))]
            rows.append([f"{layer_name(place)}, {whose}", *numbers])
    table = Table("Quantiles and skewness of the hidden values", ["", *_QUANTILE_NAMES, "skewness"], rows)
    tokens, used = sum(len(text.tokens) for text in inside.attention), len(inside.attention)
    text = f"Measured on {tokens} tokens of {f'the first {used} of ' if used < texts else ''}{texts} texts."
    if used > _MOST_MAPS:
        text += f" Attention is drawn for the first {_MOST_MAPS}."
    pictures = [hidden(inside, f"{prefix}hidden"), head_map(inside.attention, f"{prefix}heads")]
    return Part("Inside teacher and student", [text], pictures=pictures, long_tables=[table])


def _maps(inside: Inside, texts: Sequence[Text], prefix: str) -> list[Part]:
    parts = []
    for number, attention in enumerate(inside.attention[:_MOST_MAPS], 1):
        pictures = [
            attention_maps(attention, layer, f"{prefix}attention-{number}-layer-{layer + 1}", f"Text {number}")
            for layer in shown_layers(len(inside.layers) - 1)
        ]
        parts.append(Part(f"Attention in text {number}", [f"“{'” and “'.join(texts[number - 1])}”"], pictures=pictures))
    return parts
