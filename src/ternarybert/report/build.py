"""Build a report: read packed folders, and make a page with all models side by side, a chapter for each, and speed.

`link_figures` lists the figures in the folder's model card.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ternarybert
from ternarybert.bench import report as bench_report
from ternarybert.data.metrics import MAX_CONFUSION_CLASSES, mistakes
from ternarybert.errors import DataError, OutputError
from ternarybert.families import HeadKind, head_kind, natural_order, short_name
from ternarybert.packed.inspect import TensorStats
from ternarybert.report import charts, weights
from ternarybert.report.activations import TEXTS, Text, activation_parts
from ternarybert.report.charts import Picture
from ternarybert.report.collect import ReportModel, TrainingRun, level_shares, per_matrix, points_of, read_models
from ternarybert.report.page import Chapter, Fact, Page, Part, ReportTable
from ternarybert.runtime.results import Tags
from ternarybert.storage import REPORT_PAGE, replace_file

_MAX_MISTAKES = 15
_MAX_TAGGED = 20  # texts whose entities are shown
_TEACHER_HINT = (
    "With its teacher, a report also shows the weights before and after quantization, the error of every tensor, the "
    "distributions of hidden representations, and attention side by side: ternarybert report FOLDER --teacher TEACHER"
)

CARD = "README.md"
_BEGIN, _END = "<!-- figures of ternarybert report -->", "<!-- end of figures -->"


def build(
    folders: Sequence[Path],
    teachers: Sequence[Path] = (),
    *,
    texts: Sequence[Text] = TEXTS,
    bench: Path | None = None,
    on_progress: Callable[[str], None] = lambda _: None,
) -> Page:
    """Build the report on packed folders; with their teachers, also on hidden representations and attention."""
    speed = None if bench is None else speed_part(bench)
    on_progress("reading the weights")
    models = read_models(folders, teachers)
    chapters = [] if len(models) == 1 else [_comparison(models)]
    for number, model in enumerate(models, 1):
        on_progress(f"drawing {model.name}")
        chapters.append(chapter_of(model, "" if len(models) == 1 else f"{number}-", texts))
    if speed is not None:
        chapters.append(Chapter("Speed", [speed]))
    title = models[0].name if len(models) == 1 else f"{len(models)} models side by side"
    bits = ", ".join(sorted({model.packed.bits for model in models}))
    return Page(f"Report on {title}", f"Packed at {bits} bits for weights, word embedding and activations.", chapters)


def _comparison(models: Sequence[ReportModel]) -> Chapter:
    rows = [[model.name, *_summary(model)] for model in models]
    headings = ["model", "task", "metric", "teacher", "best", "last", "agreement", "MiB", "smaller", "bits", "recipe"]
    table = ReportTable("Scores on each task's evaluation rows, and sizes of all tensors", headings, rows)
    pictures = [
        charts.size_accuracy(points, metric, f"size-{number}", f"Size and score: {task}")
        for number, ((task, metric), points) in enumerate(points_of(models).items(), 1)
    ]
    return Chapter("All models", [Part("Score and size", tables=[table], pictures=pictures)])


def _summary(model: ReportModel) -> list[str]:
    sizes, run = model.inspection, model.run
    size = [f"{sizes.mib:.2f}", f"{sizes.ratio:.1f}x", sizes.bits]
    if run is None:
        return [*[""] * 6, *size, ""]
    scores = [run.teacher_score, run.best.scores[run.metric], run.final.scores[run.metric]]
    scores.append(run.best.scores.get("agreement"))
    return [run.task, run.metric, *map(score_text, scores), *size, run.recipe]


def speed_part(path: Path) -> Part:
    """The table of a file written by `ternarybert bench --json`."""
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        headings, rows = bench_report.headings(report), bench_report.rows(report)
        text = [bench_report.machine(report), *bench_report.failures(report)]
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not an output of `ternarybert bench --json` ({error!r})") from error
    return Part(
        "Engines side by side", text, [ReportTable("Medians over the rounds; engines took turns", headings, rows)]
    )


def chapter_of(model: ReportModel, prefix: str, texts: Sequence[Text]) -> Chapter:
    """The chapter about a model; the names of its figures start with `prefix`."""
    parts = [_score_part(model, prefix)]
    if model.run is not None:
        parts += [_curves(model.run, prefix), *_confusion(model.run, prefix), *_calibration(model.run)]
    parts.append(_weights(model, prefix))
    if model.before is not None:
        parts.append(Part("Weights before and after", pictures=weights.pictures(model.packed, model.before, prefix)))
    parts += _entities(model, texts)
    if model.teacher is not None:
        parts += activation_parts(model.folder, model.teacher, texts, prefix)
    else:
        parts.append(Part("More with the teacher", [_TEACHER_HINT]))
    return Chapter(model.name, parts, _facts(model))


def _facts(model: ReportModel) -> list[Fact]:
    sizes, run = model.inspection, model.run
    facts = [
        Fact(
            "size of all tensors",
            f"{sizes.mib:.2f} MiB",
            f"{sizes.mb:.2f} MB; float32 {sizes.float32_bytes / 2**20:.1f} MiB",
        ),
        Fact("smaller than float32", f"{sizes.ratio:.1f}x", f"{sizes.bits} bits"),
    ]
    if run is not None:
        teacher = "" if run.teacher_score is None else f"teacher {run.teacher_score:.2f}"
        facts.append(Fact(f"{run.metric}, best", score_text(run.best.scores[run.metric]), teacher))
        facts.append(
            Fact(f"{run.metric}, last", score_text(run.final.scores[run.metric]), f"after {run.final.step} steps")
        )
        if "agreement" in run.best.scores and run.metric != "agreement":
            facts.append(Fact("agreement", score_text(run.best.scores["agreement"]), "with the teacher"))
    return facts


def _score_part(model: ReportModel, prefix: str) -> Part:
    run = model.run
    size = ReportTable(
        "Size of all tensors",
        ["", "bytes", "MB", "MiB"],
        [[name, f"{n:,}", f"{n / 1e6:.2f}", f"{n / 2**20:.2f}"] for name, n in _sizes(model)],
    )
    if run is None:
        return Part(
            "Score and size", ["metrics.json of this folder has no scores: it was not written by ternarize."], [size]
        )
    rows = []
    for part, scores in run.best.sets.items():
        for metric, best in scores.items():
            values = [run.teacher.get(part, {}).get(metric), best, run.final.sets.get(part, {}).get(metric)]
            rows.append([f"{part}: {metric}", *map(score_text, values)])
    headings = ["", "teacher", "packed", "last"]
    by_type = [row for row in rows if ": f1 " in row[0]]  # of entities or tags
    tables = [ReportTable(f"Scores of task {run.task}", headings, [row for row in rows if row not in by_type])]
    if by_type:
        tables.append(ReportTable("F1 by type", headings, by_type))
    text = [
        f"The best of {len(run.evaluations)} evaluations by {run.metric} was packed. It was chosen on the same rows, "
        "so its score is optimistically biased; that of the last evaluation is not."
        if run.kept == "best"
        else f"The student of the last of {len(run.evaluations)} evaluations was packed, regardless of its score."
    ]
    [points] = points_of([model]).values()
    pictures = [charts.size_accuracy(points, run.metric, f"{prefix}size")]
    settings = f"Recipe {run.recipe}, seed {run.seed}, {run.seconds / 60:.0f} minutes of training"
    versions = ", ".join(f"{name} {value}" for name, value in run.versions.items())
    return Part("Score and size", [*text, f"{settings}; {versions}."], [*tables, size], pictures)


def _sizes(model: ReportModel) -> list[tuple[str, int]]:
    quantized = sum(tensor.bytes for tensor in model.inspection.tensors if tensor.granularity is not None)
    total = model.inspection.bytes
    return [
        ("packed weights", quantized),
        ("float weights", total - quantized),
        ("total", total),
        ("in float32", model.inspection.float32_bytes),
    ]


def _curves(run: TrainingRun, prefix: str) -> Part:
    if run.losses:
        return Part(
            "Training", pictures=[charts.score_curve(run, f"{prefix}scores"), charts.loss_curve(run, f"{prefix}loss")]
        )
    missing = "metrics.json of this folder has no training losses: it was written by an older version of ternarize."
    return Part("Training", [missing], pictures=[charts.score_curve(run, f"{prefix}scores")])


def _confusion(run: TrainingRun, prefix: str) -> list[Part]:
    if not run.confusion:
        return []
    labels, first = run.labels, next(iter(run.best.sets))
    text = [f"Predictions on {first}: rows are true labels, columns predictions."]
    if len(labels) <= MAX_CONFUSION_CLASSES:
        drawn = [
            charts.confusion(counts, labels, whose, f"{prefix}confusion-{whose}")
            for whose, counts in run.confusion.items()
        ]
        return [Part("Confusion", text, pictures=drawn)]
    tables = [
        ReportTable(
            f"Most frequent mistakes of the {whose} ({len(labels)} labels)", ["true label", "prediction", "rows"], rows
        )
        for whose, counts in run.confusion.items()
        if (rows := [[labels[i], labels[j], str(n)] for n, i, j in mistakes(counts)[:_MAX_MISTAKES]])
    ]
    return [Part("Confusion", tables=tables)]


def _calibration(run: TrainingRun) -> list[Part]:
    """Of several labels per text: how often a label applies that has a probability of so much."""
    headings = ["decisions", "mean probability", "share that applies"]
    tables = [
        ReportTable(
            f"Probabilities of the {whose}",
            headings,
            [[f"{count:,.0f}", f"{probability:.3f}", f"{share:.3f}"] for count, probability, share in rows],
        )
        for whose, rows in run.calibration.items()
    ]
    first = next(iter(run.best.sets))
    text = [f"All labels of {first} together, by tenths of the probability; the two shares of a row should be equal."]
    return [Part("Calibration", text, tables)] if tables else []


def _entities(model: ReportModel, texts: Sequence[Text]) -> list[Part]:
    """What a tagger finds in the texts: entities in brackets, with their types."""
    if head_kind(model.packed.config) != HeadKind.TOKEN_CLASSIFICATION:
        return []
    with ternarybert.load(model.folder) as tagger:
        found = [tagger.predict(" ".join(text)) for text in texts[:_MAX_TAGGED]]
    return [Part("Entities", ["Found in some texts by the packed model, in brackets."], [_tagged(found)])]


def _tagged(found: Sequence[Tags]) -> ReportTable:
    rows = [[str(i), _bracketed(tags), ", ".join(e.label for e in tags.entities)] for i, tags in enumerate(found, 1)]
    return ReportTable("Entities in texts", ["text", "entities in brackets", "types"], rows)


def _bracketed(tags: Tags) -> str:
    parts, at = [], 0
    for entity in tags.entities:
        parts += [tags.text[at : entity.start], f"[{entity.text}]"]
        at = entity.end
    return "".join([*parts, tags.text[at:]])


def _weights(model: ReportModel, prefix: str) -> Part:
    zeros, error = per_matrix(model.inspection, "zeros"), per_matrix(model.inspection, "relative_error")
    pictures = []
    if shares := level_shares(model.packed):
        pictures.append(charts.levels(shares, f"{prefix}levels"))
    caption = "Share of zero weights in every matrix. A third to a half is usual; near 0 or 1, the threshold is wrong."
    pictures.append(charts.matrix_map(zeros, f"{prefix}zeros", "Zeros", caption, percent=True))
    text = []
    if model.before is not None:
        caption = (
            "Relative L2 error ‖ŵ - w‖ / ‖w‖ of every matrix against the teacher's; part of it is due to training."
        )
        pictures.append(charts.matrix_map(error, f"{prefix}error", "Error", caption, percent=False))
    elif model.teacher is not None:
        text = ["The teacher has a different number of layers, so the student was not initialized from its weights."]
    return Part("Weights", text, pictures=pictures, long_tables=[_tensors(model)])


def _tensors(model: ReportModel) -> ReportTable:
    listed = sorted((t for t in model.inspection.tensors if t.granularity), key=lambda t: natural_order(t.name))
    headings = ["tensor", "shape", "bits", "bytes", "zeros", "scale", "per"]
    compared = model.before is not None
    rows = [_tensor_row(tensor, compared) for tensor in listed]
    return ReportTable(
        f"All {len(listed)} packed tensors (layers in names are numbered from 0)",
        [*headings, *(["error", "cosine"] if compared else [])],
        rows,
    )


def _tensor_row(tensor: TensorStats, compared: bool) -> list[str]:
    assert tensor.scale_min is not None and tensor.scale_max is not None
    scale = f"{tensor.scale_min:.3g}"
    if tensor.scale_max != tensor.scale_min:
        scale += f" … {tensor.scale_max:.3g}"
    row = [short_name(tensor.name), " × ".join(map(str, tensor.shape)), str(tensor.bits), f"{tensor.bytes:,}"]
    row += [f"{tensor.zeros:.1%}", scale, tensor.granularity or ""]
    if compared:
        row += ["" if value is None else f"{value:.3f}" for value in (tensor.relative_error, tensor.cosine)]
    return row


def score_text(value: float | None) -> str:
    """Format a score; an empty string for None."""
    return "" if value is None else f"{value:.2f}"


def link_figures(folder: Path, output: Path, pictures: Sequence[Picture]) -> bool:
    """List the figures in the folder's model card; False if there is no card, or the report is in another folder."""
    card, report = folder / CARD, output.resolve()
    if not card.is_file() or not report.is_relative_to(folder.resolve()):
        return False
    try:
        text = card.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise OutputError(f"{card} is not UTF-8 text; cannot add links to the figures") from error
    block = _block(report.relative_to(folder.resolve()).as_posix(), pictures)
    pattern = re.compile(re.escape(_BEGIN) + ".*?" + re.escape(_END) + r"\n?", re.DOTALL)
    updated = pattern.sub(lambda _: block, text) if pattern.search(text) else f"{text.rstrip()}\n\n{block}"
    with replace_file(card) as draft:
        draft.write_text(updated, encoding="utf-8")
    return True


def _block(folder: str, pictures: Sequence[Picture]) -> str:
    links = "\n".join(f"- [{picture.title}]({folder}/{picture.name}.png)" for picture in pictures)
    return f"{_BEGIN}\n## Figures\n\n[All on one page]({folder}/{REPORT_PAGE}), or one by one:\n\n{links}\n{_END}\n"
