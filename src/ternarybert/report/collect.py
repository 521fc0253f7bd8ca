"""The data of a report, read from packed folders without torch: weights, sizes and the metrics of the training run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ternarybert import packed
from ternarybert.data.metrics import mean_scores
from ternarybert.errors import DataError, OptionError
from ternarybert.families import MATRICES, find_matrix
from ternarybert.packed import PackedModel, PackedTensor
from ternarybert.packed.hf_folder import read_config, read_tensors
from ternarybert.packed.inspect import Inspection, inspect_model

Scores = dict[str, float]
Floats = npt.NDArray[np.floating[Any]]
Matrix = tuple[str, int]  # symbol of the paper and layer

FEW_LEVELS = 16  # can still be told apart in a figure
_DEPTH = ("num_hidden_layers", "n_layers")


@dataclass(frozen=True)
class RunEvaluation:
    """Scores at a step: means over the evaluation sets, and the scores of each set."""

    step: int
    scores: Scores
    sets: dict[str, Scores]


@dataclass(frozen=True)
class TrainingRun:
    """The metrics.json that `ternarize` writes."""

    task: str
    recipe: str
    metric: str
    teacher: dict[str, Scores]  # by set
    best: RunEvaluation  # the one that was packed
    final: RunEvaluation
    evaluations: tuple[RunEvaluation, ...]
    losses: tuple[Scores, ...]  # `step`, `loss` and its terms
    labels: tuple[str, ...]
    confusion: dict[str, list[list[int]]]  # of teacher and student: true classes by predictions
    seconds: float
    seed: int
    versions: dict[str, str]
    calibration: dict[str, list[list[float]]]  # of teacher and student: count, mean probability, share that is true
    teacher_bytes: int | None = None  # in float32
    kept: str = "best"  # which evaluation was packed: the best or the last

    @property
    def teacher_score(self) -> float | None:
        """The teacher's mean score over the sets; None without labels."""
        return mean_scores(self.teacher).get(self.metric) if self.teacher else None


@dataclass(frozen=True, eq=False)
class ReportModel:
    """A packed folder, and its teacher if that is known."""

    name: str
    folder: Path
    packed: PackedModel
    inspection: Inspection
    run: TrainingRun | None
    teacher: Path | None = None
    before: Mapping[str, Floats] | None = None  # the teacher's weights, if the student was initialized from them


@dataclass(frozen=True)
class SizeScore:
    """A point in the plot of size against score."""

    name: str
    bytes: int
    score: float
    teacher: bool = False


def read_models(folders: Sequence[Path], teachers: Sequence[Path] = ()) -> list[ReportModel]:
    """Read packed folders and their teachers: none, one for all, or one for each."""
    if len(teachers) not in (0, 1, len(folders)):
        raise OptionError(
            f"--teacher was given {len(teachers)} times for {len(folders)} folders; give it once, or once per folder"
        )
    per_folder: list[Path | None] = list(teachers) or [None]
    if len(per_folder) < len(folders):
        per_folder *= len(folders)
    return [
        _read_model(name, folder, teacher)
        for name, folder, teacher in zip(names_of(folders), folders, per_folder, strict=True)
    ]


def names_of(folders: Sequence[Path]) -> list[str]:
    """Name each folder by as many of its last path components as needed to tell them apart."""
    parts = [folder.resolve().parts for folder in folders]
    if len(set(parts)) < len(parts):
        twice = next(folder for folder in folders if parts.count(folder.resolve().parts) > 1)
        raise OptionError(f"{twice} was given twice")
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            break
    return names


def _read_model(name: str, folder: Path, teacher: Path | None) -> ReportModel:
    model = packed.read(folder)
    before = None if teacher is None else _weights_before(model, teacher)
    return ReportModel(
        name, folder, model, inspect_model(model, before), read_run(folder, model.metrics), teacher, before
    )


def _weights_before(model: PackedModel, teacher: Path) -> Mapping[str, Floats] | None:
    """The teacher's weights; None if the student has fewer layers and was not initialized from them."""
    if packed.is_packed(teacher):
        raise OptionError(
            f"{teacher} is a packed folder; --teacher takes the plain folder that the packed one was made from"
        )
    before: dict[str, Any] = read_tensors(teacher)
    theirs = read_config(teacher)
    return before if all(model.config.get(key) == theirs.get(key) for key in _DEPTH) else None


def read_run(folder: Path, metrics: Mapping[str, Any]) -> TrainingRun | None:
    """Parse the metrics of a folder; None if it was not written by a training run, but by `pack`."""
    if "student" not in metrics:
        return None
    try:
        return _run(metrics)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{folder}: unexpected content of metrics.json ({error!r})") from error


def _run(metrics: Mapping[str, Any]) -> TrainingRun:
    confusion = metrics.get("confusion") or {}
    run = TrainingRun(
        task=str(metrics["task"]),
        recipe=str(metrics["recipe"]),
        metric=str(metrics["metric"]),
        teacher={str(name): _scores(scores) for name, scores in metrics["teacher"].items()},
        best=_evaluation(metrics["student"]["best"]),
        final=_evaluation(metrics["student"]["final"]),
        evaluations=tuple(map(_evaluation, metrics["evaluations"])),
        losses=tuple(map(_scores, metrics.get("losses") or ())),  # older folders have none
        labels=tuple(map(str, confusion.get("labels") or ())),
        confusion={
            whose: [[int(count) for count in row] for row in confusion[whose]]
            for whose in ("teacher", "student")
            if confusion.get(whose)
        },
        seconds=float(metrics["seconds"]),
        seed=int(metrics["seed"]),
        versions={str(name): str(value) for name, value in metrics["versions"].items()},
        calibration={
            whose: [[float(count), float(probability), float(share)] for count, probability, share in rows]
            for whose in ("teacher", "student")
            if (rows := (metrics.get("calibration") or {}).get(whose))
        },
        kept=str(metrics.get("kept", "best")),
        teacher_bytes=None if metrics.get("teacher_bytes") is None else int(metrics["teacher_bytes"]),
    )
    _check(run)
    return run


def _check(run: TrainingRun) -> None:
    """Check what the figures rely on."""
    for evaluation in (run.best, run.final, *run.evaluations):
        evaluation.scores[run.metric]
    for entry in run.losses:
        entry["step"], entry["loss"]
    for counts in run.confusion.values():
        if {len(counts), *map(len, counts)} != {len(run.labels)}:
            raise ValueError(f"{len(run.labels)} labels, but a confusion matrix of another size")


def _evaluation(entry: Mapping[str, Any]) -> RunEvaluation:
    sets = {str(name): _scores(scores) for name, scores in entry["sets"].items()}
    return RunEvaluation(int(entry["step"]), _scores(entry["scores"]), sets)


def _scores(entry: Mapping[str, Any]) -> Scores:
    return {str(name): float(value) for name, value in entry.items()}


def points_of(models: Sequence[ReportModel]) -> dict[tuple[str, str], list[SizeScore]]:
    """Size and score of the models, grouped by task and metric, teachers last."""
    groups: dict[tuple[str, str], list[SizeScore]] = {}
    teachers: dict[tuple[str, str], set[SizeScore]] = {}
    for model in models:
        if model.run is not None:
            run, key = model.run, (model.run.task, model.run.metric)
            groups.setdefault(key, []).append(
                SizeScore(model.name, model.inspection.bytes, run.best.scores[run.metric])
            )
            if run.teacher_score is not None:
                size = run.teacher_bytes or model.inspection.float32_bytes  # older runs did not store it
                teachers.setdefault(key, set()).add(
                    SizeScore("teacher, float32", size, run.teacher_score, teacher=True)
                )
    return {key: [*points, *sorted(teachers.get(key, ()), key=lambda p: p.score)] for key, points in groups.items()}


def per_matrix(inspection: Inspection, field: str) -> dict[Matrix, float]:
    """A statistic of every packed matrix in the layers, such as its share of zeros."""
    values = {}
    for tensor in inspection.tensors:
        matrix, value = find_matrix(tensor.name), getattr(tensor, field)
        if matrix is not None and matrix.layer is not None and value is not None:
            values[matrix.symbol, matrix.layer] = float(value)
    return values


def level_shares(model: PackedModel) -> dict[str, dict[int, float]]:
    """The share of weights at each level, by kind of matrix, over all layers; 8-bit matrices are left out."""
    counts: dict[str, dict[int, int]] = {}
    for name, tensor in model.tensors.items():
        matrix = find_matrix(name)
        if matrix is None or not isinstance(tensor, PackedTensor) or len(tensor.coding.alphabet) > FEW_LEVELS:
            continue
        codes = tensor.unpack()
        kind = counts.setdefault(matrix.symbol, {})
        for level in tensor.coding.alphabet.tolist():
            kind[level] = kind.get(level, 0) + int(np.count_nonzero(codes == level))
    ordered = {symbol: counts[symbol] for symbol in MATRICES if symbol in counts}
    return {
        symbol: {level: count / sum(kind.values()) for level, count in sorted(kind.items())}
        for symbol, kind in ordered.items()
    }
