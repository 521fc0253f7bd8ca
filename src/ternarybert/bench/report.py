"""The result of a bench run as one JSON value (`--json`), as rows of a table and as a chart."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ternarybert import native, packed
from ternarybert.bench.engines import OURS
from ternarybert.bench.inputs import lengths_of
from ternarybert.bench.random_model import ModelShape, multiply_adds
from ternarybert.bench.run import BenchPlan, Timing, ratios
from ternarybert.errors import MissingExtraError
from ternarybert.native import peak_gmacs
from ternarybert.storage import replace_file

_COLOURS = {OURS: "#c0392b"}
_OTHER_COLOURS = ("#34495e", "#5d7389", "#8aa0b4", "#b3c2cf", "#d5dde4")
_SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")


def make_report(timings: Sequence[Timing], folder: Path, plan: BenchPlan) -> dict[str, Any]:
    """Times, ratios, and which share of the machine's peak our engine reaches."""
    config = packed.read(folder).config
    shape = ModelShape(*(int(config[key]) for key in _SIZES))
    ours = next((timing.ms for timing in timings if timing.name == OURS), {})
    longest = int(config["max_position_embeddings"])
    return {
        "model": f"{shape.layers} layers x {shape.hidden}",
        "cpu": f"{native.cpu_name()} ({', '.join(sorted(native.cpu_features()))})",
        "kernel": plan.kernel,
        "threads": plan.threads,
        "rounds": plan.rounds,
        "batches": list(plan.shapes),
        "engines": [
            {
                **{key: getattr(timing, key) for key in ("name", "ms", "rounds", "error", "memory", "peak", "failed")},
                "ratios": {name: ratios(timings, name).get(timing.name) for name in timing.ms},
            }
            for timing in timings
        ],
        "gmacs": {name: multiply_adds(shape, lengths_of(name, longest)) / ms / 1e6 for name, ms in ours.items()},
        "peak_gmacs": peak_gmacs(plan.kernel) * plan.threads,
    }


def machine(report: dict[str, Any]) -> str:
    """What was timed, and on which machine."""
    return f"{report['model']}, {threads(report)}, kernel {report['kernel']}, {report['cpu']}"


def threads(report: dict[str, Any]) -> str:
    """The number of threads in words."""
    count = report["threads"]
    return f"{count} thread{'' if count == 1 else 's'}"


def headings(report: dict[str, Any]) -> list[str]:
    """The column headings of the table."""
    return ["ms (times ours)", *report["batches"], "memory MB", "peak MB", "error"]


def rows(report: dict[str, Any]) -> list[list[str]]:
    """A table row for each engine that was timed."""
    timed = [engine for engine in report["engines"] if engine["failed"] is None]
    return [[engine["name"], *_cells(engine, report["batches"])] for engine in timed]


def failures(report: dict[str, Any]) -> list[str]:
    """A line for each engine that was not timed."""
    return [
        f"{engine['name']}: not timed, {engine['failed']}"
        for engine in report["engines"]
        if engine["failed"] is not None
    ]


def draw(report: dict[str, Any], path: Path) -> None:
    """Write a bar chart of all times as multiples of ours; the file suffix selects the format."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtraError("matplotlib is missing: pip install 'ternarybert[report]'") from error
    engines = [engine for engine in report["engines"] if engine["failed"] is None]
    figure = Figure(figsize=(1.8 * len(report["batches"]) + 2, 4.2), layout="constrained")
    axes = figure.subplots()
    other_colors = iter(_OTHER_COLOURS * 2)
    width = 0.8 / max(1, len(engines))
    for i, engine in enumerate(engines):
        color = _COLOURS.get(engine["name"]) or next(other_colors)
        positions = [j + (i - (len(engines) - 1) / 2) * width for j in range(len(report["batches"]))]
        heights = [engine["ratios"].get(name) or engine["ms"][name] for name in report["batches"]]
        bars = axes.bar(positions, heights, width * 0.92, label=engine["name"], color=color)
        axes.bar_label(bars, [_short(engine["ms"][name]) for name in report["batches"]], fontsize=6, padding=1)
    axes.set_xticks(range(len(report["batches"])), report["batches"])
    axes.axhline(1, color=_COLOURS[OURS], linewidth=0.8, linestyle=":")
    axes.set_ylabel("time as a multiple of ternarybert's")
    axes.set_title(f"{report['model']}, {threads(report)}; numbers: milliseconds", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, ncols=3)
    with replace_file(path) as draft:
        figure.savefig(draft, dpi=150)


def _short(ms: float) -> str:
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"


def _cells(engine: dict[str, Any], batches: list[str]) -> list[str]:
    cells = []
    for name in batches:
        ratio = engine["ratios"].get(name)
        cells.append(f"{engine['ms'][name]:.2f}" + (f" ({ratio:.2f}x)" if ratio is not None else ""))
    for size in (engine["memory"], engine["peak"]):
        cells.append("" if not size else f"{size / 1e6:.0f}")
    return [*cells, f"{engine['error']:.1e}"]
