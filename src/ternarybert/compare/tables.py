"""Results of a comparison: rows of a folder as tables and as Figure 1, and the paper's tables beside our measurements.

A folder has a row for the teacher and one for each method and bits, averaged over seeds.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from ternarybert.compare.cells import Cell
from ternarybert.compare.paper import METRICS, TEACHER, Experiment, PaperRow
from ternarybert.compare.run import ComparisonFolder
from ternarybert.errors import MissingExtraError
from ternarybert.storage import replace_file, write_json

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MIB = 2**20
_BERT_BASE = {"model_type": "bert", "num_hidden_layers": 12, "hidden_size": 768, "vocab_size": 30522}
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


@dataclass(frozen=True)
class ComparisonRow:
    """A method at some bits, averaged over seeds."""

    label: str
    bits: str
    family: str
    bytes: int | None = None
    ratio: float | None = None
    scores: dict[str, float] | None = None  # of the last student
    best: dict[str, float] | None = (
        None  # of the best evaluation; optimistically biased, because it was chosen on the same rows
    )
    sets: dict[str, dict[str, float]] | None = None
    spread: dict[str, float] | None = None  # standard deviation over several seeds
    seeds: tuple[int, ...] = ()
    steps: float | None = None
    seconds: float | None = None
    failed: str | None = None
    group: str = ""

    @property
    def mib(self) -> float | None:
        """Size in MiB, which the paper calls MB."""
        return None if self.bytes is None else self.bytes / MIB


def rows_of(place: ComparisonFolder, cells: Sequence[Cell], teacher: dict[str, Any]) -> list[ComparisonRow]:
    """Return a row for the teacher and for every cell that was tried, in the order of the grid."""
    rows = [
        ComparisonRow(
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
        results = [(cell, result) for cell in same if (result := place.result(cell)) is not None]
        if results:
            rows.append(_row(results))
    return rows


def _row(tried: list[tuple[Cell, dict[str, Any]]]) -> ComparisonRow:
    cell = tried[0][0]
    done = [(each, result) for each, result in tried if "failed" not in result]
    if not done:
        return ComparisonRow(cell.label, cell.bits, cell.family, failed=tried[0][1]["failed"], group=cell.group)
    results = [result for _, result in done]
    finals = [result["student"]["final"] for result in results]
    names = finals[0]["scores"]
    return ComparisonRow(
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


def markdown(rows: Sequence[ComparisonRow], metrics: Sequence[str]) -> str:
    """The table as Markdown; methods that could not be run are listed below it."""
    head = ["method", "W-E-A", "size, MiB", "smaller", *metrics, "agreement", "steps", "minutes"]
    lines = [f"| {' | '.join(head)} |", "|---|---|" + "---:|" * (len(head) - 2)]
    for row in rows:
        if row.failed is None:
            lines.append(f"| {' | '.join([row.label, row.bits, *figures(row, metrics)])} |")
    missing = [f"Not run: {row.label} {row.bits}: {row.failed}" for row in rows if row.failed is not None]
    return "\n".join([*lines, *([""] if missing else []), *missing]) + "\n"


def figures(row: ComparisonRow, metrics: Sequence[str]) -> list[str]:
    """The numbers of a row as text."""
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


def write(place: ComparisonFolder, rows: Sequence[ComparisonRow], teacher: dict[str, Any]) -> None:
    """Write the table as Markdown and as JSON."""
    metrics = list(teacher["scores"]) or []
    with replace_file(place.folder / "table.md") as draft:
        draft.write_text(markdown(rows, metrics), encoding="utf-8")
    value = {"task": teacher["task"], "metric": teacher["metric"], "metrics": metrics, "rows": [*map(asdict, rows)]}
    write_json(place.folder / "table.json", json.loads(json.dumps(value)))


@dataclass(frozen=True)
class TaskFigures:
    """Printed and measured scores of one task, in the order of `METRICS`."""

    printed: tuple[float, ...]
    ours: tuple[float, ...] | None = None

    @property
    def differences(self) -> tuple[float, ...] | None:
        """Measured minus printed scores, where both are known."""
        if self.ours is None:
            return None
        return tuple(ours - printed for ours, printed in zip(self.ours, self.printed, strict=False))


@dataclass(frozen=True)
class PaperComparison:
    """A row of the paper beside our measurements."""

    label: str
    bits: str
    printed_size: int | None
    size: float | None  # MiB, which is what the paper calls MB
    tasks: dict[str, TaskFigures]
    note: str = ""


def compare_with_paper(
    experiment: Experiment, measured: Mapping[str, Sequence[ComparisonRow]]
) -> list[PaperComparison]:
    """Return the rows of the paper beside the measured ones, which are given by task."""
    return [_line(row, measured) for row in experiment.rows]


def _line(printed: PaperRow, measured: Mapping[str, Sequence[ComparisonRow]]) -> PaperComparison:
    ours = {task: row for task, rows in measured.items() if (row := _find(printed, rows)) is not None}
    tasks = dict.fromkeys([*printed.scores, *ours])
    sizes = [row.mib for row in ours.values() if row.mib is not None]
    failed = next((row.failed for row in ours.values() if row.failed is not None), "")
    return PaperComparison(
        printed.label,
        printed.bits,
        printed.size,
        sizes[0] if sizes else None,
        {task: TaskFigures(printed.scores.get(task, ()), _ours(task, ours.get(task))) for task in tasks},
        failed or ("" if printed is TEACHER else printed.why),
    )


def _find(printed: PaperRow, rows: Sequence[ComparisonRow]) -> ComparisonRow | None:
    if printed is TEACHER:
        return next((row for row in rows if row.family == "teacher"), None)
    return next((row for row in rows if printed.cell is not None and row.group == printed.cell.group), None)


def _ours(task: str, row: ComparisonRow | None) -> tuple[float, ...] | None:
    if row is None or row.scores is None or row.sets is None:
        return None
    known = METRICS[task]
    return tuple(row.scores[name] if part is None else row.sets[part][name] for part, name in known)


def reproduce_markdown(
    experiment: Experiment, lines: Sequence[PaperComparison], tasks: Sequence[str], notes: Sequence[str]
) -> str:
    """The comparison with the paper as Markdown."""
    head = ["method", "W-E-A", "MB, printed", "MiB, ours"]
    for task in tasks:
        names = "/".join(name for _, name in METRICS[task])
        head += [f"{task} ({names}), printed", "ours", "difference"]
    out = [f"# {experiment.title}", "", *[f"{note}\n" for note in notes]]
    out += [f"| {' | '.join(head)} |", "|---|---|" + "---:|" * (len(head) - 2)]
    for line in lines:
        cells = [line.label, line.bits, _or_blank(line.printed_size), _or_blank(line.size, ".2f")]
        for task in tasks:
            figures = line.tasks.get(task, TaskFigures(()))
            cells += [_joined(figures.printed), _joined(figures.ours), _joined(figures.differences, "+.1f")]
        out.append(f"| {' | '.join(cells)} |")
    missing = [f"- {line.label} {line.bits}: {line.note}" for line in lines if line.note]
    return "\n".join([*out, *(["", "Not run here:", "", *missing] if missing else [])]) + "\n"


def as_dict(experiment: Experiment, lines: Sequence[PaperComparison], notes: Sequence[str]) -> dict[str, Any]:
    """The comparison with the paper as plain values for JSON."""
    rows = [
        asdict(line)
        | {"tasks": {task: asdict(each) | {"differences": each.differences} for task, each in line.tasks.items()}}
        for line in lines
    ]
    return {"title": experiment.title, "notes": list(notes), "rows": rows}


def scale_notes(
    configs: Mapping[str, Mapping[str, Any]],
    rows: Mapping[str, int],
    effort: str | None,
    augmented: Mapping[str, int] | None = None,
) -> list[str]:
    """Notes on how far the scores are comparable; `configs` maps model names to their configurations.

    `rows` and `augmented` are numbers of training rows by task.
    """
    notes = []
    for model, config in configs.items():
        if any(config.get(name) != value for name, value in _BERT_BASE.items()):
            shape = f"{config.get('num_hidden_layers')} layers x {config.get('hidden_size')}"
            notes.append(
                f"The model is {model} ({shape}), not BERT-base. This shows that the code works; the differences say "
                "nothing about the paper."
            )
    if effort is not None:
        notes.append(f"{effort}; the paper trains 3 epochs, or 1 with augmented data.")
    trained = ", ".join(f"{task} {count:,}" for task, count in rows.items())
    notes.append(
        f"Training rows: {trained}. Scores are those of the last student on the development set; the released code "
        f"reports the best of many evaluations on it. {_augmentation_note(augmented or {})}"
    )
    return notes


def _augmentation_note(rows: Mapping[str, int]) -> str:
    if not rows:
        return "No data augmentation."
    return (
        f"Rows with augmentation, for distilled students: {', '.join(f'{t} {count:,}' for t, count in rows.items())}."
    )


def _joined(numbers: Sequence[float] | None, form: str = ".1f") -> str:
    return " / ".join(format(number, form) for number in numbers or ())


def _or_blank(number: float | None, form: str = "d") -> str:
    return "" if number is None else format(number, form)


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
