"""Figures of weights before and after quantization.

Weights are shown in units of their scale, so that a layer with one scale and an embedding with one scale per row look
alike and the levels are integers. The upper panel shows the original weights, colored by their final level; dashed
lines are half way between levels. The lower panel shows the share of weights at each level. Where colors cross the
dashed lines, training has moved weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib import rc_context, rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from ternarybert.errors import PackedError
from ternarybert.families import find_matrix
from ternarybert.packed import PackedModel, PackedTensor
from ternarybert.report.charts import STYLE, WIDTH, Picture, level_colors, picture
from ternarybert.report.collect import FEW_LEVELS, Floats
from ternarybert.storage import replace_file

_SHOWN = {"w_e": "word embedding", "w_q": "query", "w_1": "feed-forward in", "w_2": "feed-forward out"}
_SAMPLE = 1 << 21  # weights per panel; more would not change its shape
_BINS = 121
_MANY = "#7a7a7a"
_UNIT = "weight ÷ scale"
_CAPTION = "color: final level of a weight; dashed: half way between levels"


def draw(path: Path, model: PackedModel, before: Mapping[str, Floats], title: str) -> None:
    """Write one figure with the word embedding and three matrices of a middle layer."""
    names = _choose(model, before)
    figure = Figure(figsize=(3.4 * len(names) + 0.6, 6), layout="constrained")
    axes = figure.subplots(2, len(names), squeeze=False)
    for column, (name, label) in enumerate(names.items()):
        tensor = model.tensors[name]
        assert isinstance(tensor, PackedTensor)
        _panel(axes[0, column], axes[1, column], tensor, before[name])
        axes[0, column].set_title(f"{label}\n{_kind(tensor)}", fontsize=10)
    axes[0, 0].set_ylabel("before: share of weights")
    axes[1, 0].set_ylabel("after: share of weights")
    figure.align_ylabels()
    figure.suptitle(f"{title}: weights before and after, {model.bits}", fontsize=12)
    if model.bits.split("-")[:2] != ["8", "8"]:
        figure.supxlabel(_CAPTION, fontsize=9)
    try:
        with replace_file(path) as draft:
            figure.savefig(draft, dpi=150)
    except (OSError, ValueError) as error:  # no such folder, or an unsupported format
        raise PackedError(f"cannot write {path}: {error}") from error


def pictures(model: PackedModel, before: Mapping[str, Floats], prefix: str) -> list[Picture]:
    """Return one figure per matrix, for a page."""
    return [
        _picture(model.tensors[name], before[name], label, prefix) for name, label in _choose(model, before).items()
    ]


@rc_context(STYLE)
def _picture(tensor: PackedTensor | Floats, before: Floats, label: str, prefix: str) -> Picture:
    assert isinstance(tensor, PackedTensor)
    figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
    above, below = figure.subplots(2)
    _panel(above, below, tensor, before)
    above.set_ylabel("before")
    below.set_ylabel("after")
    name = f"{prefix}weights-{label.replace(', ', '-').replace(' ', '-')}"
    caption = f"{_kind(tensor)}. Above: the teacher's weights, colored by final level. Below: the levels."
    if len(tensor.coding.alphabet) <= FEW_LEVELS:
        caption += " Dashed: half way between levels (±α/2 if ternary), the exact thresholds; TWN's are close."
    return picture(figure, name, f"Weights: {label}", caption)


def _kind(tensor: PackedTensor) -> str:
    scales = "one scale per row" if tensor.granularity == "row" else f"scale {tensor.scale[0]:.3g}"
    return f"{' × '.join(map(str, tensor.shape))}, {scales}"


def _choose(model: PackedModel, before: Mapping[str, Floats]) -> dict[str, str]:
    """The tensors to show and their labels, in the order of `_SHOWN`."""
    drawable: dict[tuple[str, int | None], str] = {}
    for name, tensor in model.tensors.items():
        has_scale = isinstance(tensor, PackedTensor) and name in before and tensor.scale.any()
        if has_scale and (matrix := find_matrix(name)):
            drawable[matrix.symbol, matrix.layer] = name
    layers = sorted({layer for _, layer in drawable if layer is not None})
    middle = layers[len(layers) // 2] if layers else None
    chosen = {}
    for symbol, label in _SHOWN.items():
        layer = None if symbol == "w_e" else middle
        if (symbol, layer) in drawable:
            chosen[drawable[symbol, layer]] = label if layer is None else f"{label}, layer {layer + 1}"
    if not chosen:
        raise PackedError("nothing to draw: the weights to compare with contain none of the packed tensors")
    return chosen


def _panel(above: Axes, below: Axes, tensor: PackedTensor, before: Floats) -> None:
    units, codes = _sample(tensor, before)
    levels = tensor.coding.alphabet.astype(np.int64)
    end = float(np.quantile(np.abs(units), 0.9995))  # a few outliers would compress everything else
    fine = np.linspace(-end, end, _BINS + 1)
    if len(levels) <= FEW_LEVELS:
        _colored(above, units, codes, levels, fine)
        _shares(below, codes, levels)
    else:
        step = -(-2 * end // _BINS)  # whole levels in every bar, or some would stand for more of them than others
        _bars(above, units, fine)
        _bars(below, codes, np.arange(-end // step, end // step + 2) * step - 0.5)
    for axis in (above, below):
        axis.yaxis.set_major_formatter(PercentFormatter(1, decimals=1, symbol=" %"))
        axis.spines[["top", "right"]].set_visible(False)


def _bars(axis: Axes, values: npt.NDArray[Any], edges: Floats) -> None:
    axis.stairs(np.histogram(values, edges)[0] / values.size, edges, fill=True, color=_MANY)
    axis.set_xlabel(_UNIT)


def _colored(
    axis: Axes, units: Floats, codes: npt.NDArray[np.int8], levels: npt.NDArray[np.int64], edges: Floats
) -> None:
    bottom = np.zeros(len(edges) - 1)
    for level, color in zip(levels, level_colors(len(levels)), strict=True):
        top = bottom + np.histogram(units[codes == level], edges)[0] / units.size
        axis.stairs(top, edges, baseline=bottom, fill=True, color=color)
        bottom = top
    for half_way in (levels[1:] + levels[:-1]) / 2:
        axis.axvline(half_way, color=rcParams["text.color"], linewidth=1.1, linestyle="--")
    axis.set_xlabel(_UNIT)


def _shares(axis: Axes, codes: npt.NDArray[np.int8], levels: npt.NDArray[np.int64]) -> None:
    shares = [float(np.mean(codes == level)) for level in levels]
    bars = axis.bar([str(level) for level in levels], shares, 0.7, color=level_colors(len(levels)))
    size = 9 if len(levels) < 8 else 6
    axis.bar_label(bars, [f"{share:.0%}" for share in shares], padding=2, fontsize=size)
    axis.tick_params(axis="x", labelsize=size)
    axis.set_yticks([])  # the shares stand on the bars
    axis.set_xlabel("level")
    axis.margins(y=0.12)


def _sample(tensor: PackedTensor, before: Floats) -> tuple[Floats, npt.NDArray[np.int8]]:
    """Weights in units of their scale and their codes, from evenly spaced rows; rows of zeros have no unit."""
    step = -(-before.size // _SAMPLE)
    scale = np.broadcast_to(tensor.scale, tensor.shape[0])[::step]
    used = scale > 0
    units = before[::step][used] / scale[used][:, None]
    return units.reshape(-1), tensor.unpack()[::step][used].reshape(-1)
