"""What a run found out, as tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

_MOST_CLASSES = 12  # wider tables help nobody; then the most frequent mistakes are listed
_MOST_MISTAKES = 10

Scores = Mapping[str, Mapping[str, float]]  # by evaluation set, then by metric


def show_scores(console: Console, columns: Mapping[str, Scores]) -> None:
    """One row per set and metric, one column per model."""
    table = _table("", *columns)
    rows = dict.fromkeys((part, name) for sets in columns.values() for part, scores in sets.items() for name in scores)
    for part, name in rows:
        values = [sets.get(part, {}).get(name) for sets in columns.values()]
        table.add_row(f"{part} {name}", *("" if value is None else f"{value:.2f}" for value in values))
    console.print(table)


def show_confusion(console: Console, labels: Sequence[str], counts: Sequence[Sequence[int]], title: str) -> None:
    """True classes against answers, by name."""
    if len(labels) > _MOST_CLASSES:
        _show_mistakes(console, labels, counts, title)
        return
    console.print(f"Answers on {title} (rows: true label, columns: answer)")
    table = _table("", *labels)
    for label, row in zip(labels, counts, strict=True):
        table.add_row(label, *map(str, row))
    console.print(table)


def _show_mistakes(console: Console, labels: Sequence[str], counts: Sequence[Sequence[int]], title: str) -> None:
    from ternarybert.tasks.scores import mistakes

    console.print(f"Most frequent mistakes on {title}, of {len(labels)} labels")
    table = _table("true label", "answer", "rows")
    for n, i, j in mistakes(counts)[:_MOST_MISTAKES]:
        table.add_row(labels[i], labels[j], str(n))
    console.print(table)


def _table(*names: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for i, name in enumerate(names):
        table.add_column(name, justify="right" if i else "left", overflow="fold")
    return table


def size_line(mb: float, mib: float, ratio: float, **_: float) -> str:
    """How small a packed model is."""
    return f"{mb:.2f} MB ({mib:.2f} MiB), {ratio:.1f} times smaller than float32"
