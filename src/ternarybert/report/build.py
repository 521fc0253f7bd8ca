"""From folders to a page: all models side by side, a chapter for each, and speed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ternarybert.bench import table as bench_table
from ternarybert.errors import DataError
from ternarybert.report import charts
from ternarybert.report.chapter import chapter_of, score_text
from ternarybert.report.collect import Model, points_of, read_models
from ternarybert.report.inside_part import TEXTS, Text
from ternarybert.report.page import Chapter, Page, Part, Table


def build(
    folders: Sequence[Path],
    teachers: Sequence[Path] = (),
    *,
    texts: Sequence[Text] = TEXTS,
    bench: Path | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Page:
    """The report on packed folders; with the teachers they were made from, also what happens inside."""
    speed = None if bench is None else speed_part(bench)
    tell("reading the weights")
    models = read_models(folders, teachers)
    chapters = [] if len(models) == 1 else [_comparison(models)]
    for number, model in enumerate(models, 1):
        tell(f"drawing {model.name}")
        chapters.append(chapter_of(model, "" if len(models) == 1 else f"{number}-", texts))
    if speed is not None:
        chapters.append(Chapter("Speed", [speed]))
    title = models[0].name if len(models) == 1 else f"{len(models)} models side by side"
    bits = ", ".join(sorted({model.packed.bits for model in models}))
    return Page(f"Report on {title}", f"Packed at {bits} bits for weights, word embedding and activations.", chapters)


def _comparison(models: Sequence[Model]) -> Chapter:
    rows = [[model.name, *_summary(model)] for model in models]
    headings = ["model", "task", "metric", "teacher", "best", "last", "agreement", "MiB", "smaller", "bits", "recipe"]
    table = Table("Scores on each task's evaluation rows, and sizes of all tensors", headings, rows)
    pictures = [
        charts.size_accuracy(points, metric, f"size-{number}", f"Size and score: {task}")
        for number, ((task, metric), points) in enumerate(points_of(models).items(), 1)
    ]
    return Chapter("All models", [Part("Score and size", tables=[table], pictures=pictures)])


def _summary(model: Model) -> list[str]:
    sizes, run = model.inspection, model.run
    size = [f"{sizes.mib:.2f}", f"{sizes.ratio:.1f}x", sizes.bits]
    if run is None:
        return [*[""] * 6, *size, ""]
    scores = [run.teacher_score, run.best.scores[run.metric], run.final.scores[run.metric]]
    scores.append(run.best.scores.get("agreement"))
    return [run.task, run.metric, *map(score_text, scores), *size, run.recipe]


def speed_part(path: Path) -> Part:
    """The table of a file that `ternarybert bench --json` wrote."""
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        headings, rows = bench_table.headings(report), bench_table.rows(report)
        text = [bench_table.machine(report), *bench_table.failures(report)]
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not what `ternarybert bench --json` prints ({error!r})") from error
    return Part("Engines side by side", text, [Table("Medians over the rounds, the engines by turns", headings, rows)])
