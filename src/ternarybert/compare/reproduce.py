"""A table of the paper beside what was measured here: printed, ours, difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ternarybert.compare.paper import METRICS, TEACHER, Experiment, Printed
from ternarybert.compare.table import Row

BASE = {"model_type": "bert", "num_hidden_layers": 12, "hidden_size": 768, "vocab_size": 30522}


@dataclass(frozen=True)
class Figures:
    """One task of one row, in the order of `METRICS`."""

    printed: tuple[float, ...]
    ours: tuple[float, ...] | None = None

    @property
    def differences(self) -> tuple[float, ...] | None:
        """Ours less the printed ones, where both are known."""
        if self.ours is None:
            return None
        return tuple(ours - printed for ours, printed in zip(self.ours, self.printed, strict=False))


@dataclass(frozen=True)
class Line:
    """A row of the paper and ours."""

    label: str
    bits: str
    printed_size: int | None
    size: float | None  # MiB, which is what the paper calls MB
    tasks: dict[str, Figures]
    note: str = ""


def beside(experiment: Experiment, measured: Mapping[str, Sequence[Row]]) -> list[Line]:
    """The paper's rows with the measured ones, which are given by task."""
    return [_line(row, measured) for row in experiment.rows]


def _line(printed: Printed, measured: Mapping[str, Sequence[Row]]) -> Line:
    found = {task: row for task, rows in measured.items() if (row := _find(printed, rows)) is not None}
    tasks = dict.fromkeys([*printed.scores, *found])
    sizes = [row.mib for row in found.values() if row.mib is not None]
    failed = next((row.failed for row in found.values() if row.failed is not None), "")
    return Line(
        printed.label,
        printed.bits,
        printed.size,
        sizes[0] if sizes else None,
        {task: Figures(printed.scores.get(task, ()), _ours(task, found.get(task))) for task in tasks},
        failed or ("" if printed is TEACHER else printed.why),
    )


def _find(printed: Printed, rows: Sequence[Row]) -> Row | None:
    if printed is TEACHER:
        return next((row for row in rows if row.family == "teacher"), None)
    return next((row for row in rows if printed.cell is not None and row.group == printed.cell.group), None)


def _ours(task: str, row: Row | None) -> tuple[float, ...] | None:
    if row is None or row.scores is None or row.sets is None:
        return None
    known = METRICS[task]
    return tuple(row.scores[name] if part is None else row.sets[part][name] for part, name in known)


def markdown(experiment: Experiment, lines: Sequence[Line], tasks: Sequence[str], notes: Sequence[str]) -> str:
    """The table as a document."""
    head = ["method", "W-E-A", "MB, printed", "MiB, ours"]
    for task in tasks:
        names = "/".join(name for _, name in METRICS[task])
        head += [f"{task} ({names}), printed", "ours", "difference"]
    out = [f"# {experiment.title}", "", *[f"{note}\n" for note in notes]]
    out += [f"| {' | '.join(head)} |", "|---|---|" + "---:|" * (len(head) - 2)]
    for line in lines:
        cells = [line.label, line.bits, _or_blank(line.printed_size), _or_blank(line.size, ".2f")]
        for task in tasks:
            figures = line.tasks.get(task, Figures(()))
            cells += [_joined(figures.printed), _joined(figures.ours), _joined(figures.differences, "+.1f")]
        out.append(f"| {' | '.join(cells)} |")
    missing = [f"- {line.label} {line.bits}: {line.note}" for line in lines if line.note]
    return "\n".join([*out, *(["", "Not run here:", "", *missing] if missing else [])]) + "\n"


def as_dict(experiment: Experiment, lines: Sequence[Line], notes: Sequence[str]) -> dict[str, Any]:
    """The same for JSON."""
    rows = [
        asdict(line)
        | {"tasks": {task: asdict(each) | {"differences": each.differences} for task, each in line.tasks.items()}}
        for line in lines
    ]
    return {"title": experiment.title, "notes": list(notes), "rows": rows}


def scale_notes(configs: Mapping[str, Mapping[str, Any]], rows: Mapping[str, int], effort: str | None) -> list[str]:
    """How far the figures can be compared at all; `configs` are those of the models by name."""
    notes = []
    for model, config in configs.items():
        if any(config.get(name) != value for name, value in BASE.items()):
            shape = f"{config.get('num_hidden_layers')} layers x {config.get('hidden_size')}"
            notes.append(
                f"The model is {model} ({shape}), not BERT-base: this checks that the machinery works. The differences "
                "say nothing about the paper."
            )
    if effort is not None:
        notes.append(f"{effort}; the paper trains 3 epochs, or 1 with augmented data.")
    trained = ", ".join(f"{task} {count:,}" for task, count in rows.items())
    notes.append(
        f"Training rows: {trained}. Figures are the last student's on the development set; the released code reports "
        "the best of many evaluations on it. No data augmentation."
    )
    return notes


def _joined(numbers: Sequence[float] | None, form: str = ".1f") -> str:
    return " / ".join(format(number, form) for number in numbers or ())


def _or_blank(number: float | None, form: str = "d") -> str:
    return "" if number is None else format(number, form)
