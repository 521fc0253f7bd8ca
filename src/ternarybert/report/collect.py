"""What a report is made of, read from packed folders without torch: weights, sizes, and what the training run noted."""

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

FEW_LEVELS = 16  # that can still be told apart
_DEPTH = ("num_hidden_layers", "n_layers")


@dataclass(frozen=True)
class Evaluation:
    """Scores at a step: their means over the sets, and each set's own."""

    step: int
    scores: Scores
    sets: dict[str, Scores]


@dataclass(frozen=True)
class Run:
    """What `ternarize` wrote into metrics.json."""

    task: str
    recipe: str
    metric: str
    teacher: dict[str, Scores]  # by set
    best: Evaluation  # the one that was packed
    final: Evaluation
    evaluations: tuple[Evaluation, ...]
    losses: tuple[Scores, ...]  # `step`, `loss` and its terms
    labels: tuple[str, ...]
    confusion: dict[str, list[list[int]]]  # teacher, student: true classes by answers
    seconds: float
    seed: int
    versions: dict[str, str]
    teacher_bytes: int | None = None  # in float32
    kept: str = "best"  # which evaluation was packed: the best or the last

    @property
    def teacher_score(self) -> float | None:
        """The teacher's mean over the sets; None where there were no labels to score it by."""
        return mean_scores(self.teacher).get(self.metric) if self.teacher else None


@dataclass(frozen=True, eq=False)
class Model:
    """A packed folder, and what it came from if that is known."""

    name: str
    folder: Path
    packed: PackedModel
    inspection: Inspection
    run: Run | None
    teacher: Path | None = None
    before: Mapping[str, Floats] | None = None  # the teacher's weights, where the student started from them


@dataclass(frozen=True)
class Point:
    """A model in the plot of size against score."""

    name: str
    bytes: int
    score: float
    teacher: bool = False


def read_models(folders: Sequence[Path], teachers: Sequence[Path] = ()) -> list[Model]:
    """Read packed folders, and the teachers they were made from: none, one for all, or one for each."""
    if len(teachers) not in (0, 1, len(folders)):
        raise OptionError(
            f"--teacher was given {len(teachers)} times for {len(folders)} folders; give it once or for each"
        )
    theirs: list[Path | None] = list(teachers) or [None]
    if len(theirs) < len(folders):
        theirs *= len(folders)
    return [
        _read_model(name, folder, teacher)
        for name, folder, teacher in zip(names_of(folders), folders, theirs, strict=True)
    ]


def names_of(folders: Sequence[Path]) -> list[str]:
    """The last parts of the paths, as many as it takes to tell them apart."""
    parts = [folder.resolve().parts for folder in folders]
    if len(set(parts)) < len(parts):
        raise OptionError("the same folder was given twice")
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-count:]) for part in parts]
        if len(set(names)) == len(names):
            break
    return names


def _read_model(name: str, folder: Path, teacher: Path | None) -> Model:
    model = packed.read(folder)
    before = None if teacher is None else _weights_before(model, teacher)
    return Model(name, folder, model, inspect_model(model, before), read_run(folder, model.metrics), teacher, before)


def _weights_before(model: PackedModel, teacher: Path) -> Mapping[str, Floats] | None:
    """The teacher's weights; None if the student has fewer layers, and so began as something else."""
    if packed.is_packed(teacher):
        raise OptionError(f"{teacher} is packed, too; --teacher takes the plain folder that a packed one came from")
    before: dict[str, Any] = read_tensors(teacher)
    theirs = read_config(teacher)
    return before if all(model.config.get(key) == theirs.get(key) for key in _DEPTH) else None


def read_run(folder: Path, metrics: Mapping[str, Any]) -> Run | None:
    """The run that made a folder; None if it was not made by one, as `pack` does."""
    if "student" not in metrics:
        return None
    try:
        return _run(metrics)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{folder}: metrics.json is not as ternarize writes it ({error!r})") from error


def _run(metrics: Mapping[str, Any]) -> Run:
    confusion = metrics.get("confusion") or {}
    run = Run(
        task=str(metrics["task"]),
        recipe=str(metrics["recipe"]),
        metric=str(metrics["metric"]),
        teacher={str(name): _scores(scores) for name, scores in metrics["teacher"].items()},
        best=_evaluation(metrics["student"]["best"]),
        final=_evaluation(metrics["student"]["final"]),
        evaluations=tuple(map(_evaluation, metrics["evaluations"])),
        losses=tuple(map(_scores, metrics.get("losses") or ())),  # folders of older versions have none
        labels=tuple(map(str, confusion.get("labels") or ())),
        confusion={
            whose: [[int(count) for count in row] for row in confusion[whose]]
            for whose in ("teacher", "student")
            if confusion.get(whose)
        },
        seconds=float(metrics["seconds"]),
        seed=int(metrics["seed"]),
        versions={str(name): str(value) for name, value in metrics["versions"].items()},
        kept=str(metrics.get("kept", "best")),
        teacher_bytes=None if metrics.get("teacher_bytes") is None else int(metrics["teacher_bytes"]),
    )
    _check(run)
    return run


def _check(run: Run) -> None:
    """What the figures rely on."""
    for evaluation in (run.best, run.final, *run.evaluations):
        evaluation.scores[run.metric]
    for entry in run.losses:
        entry["step"], entry["loss"]
    for counts in run.confusion.values():
        if {len(counts), *map(len, counts)} != {len(run.labels)}:
            raise ValueError(f"{len(run.labels)} labels, but other counts of them")


def _evaluation(entry: Mapping[str, Any]) -> Evaluation:
    sets = {str(name): _scores(scores) for name, scores in entry["sets"].items()}
    return Evaluation(int(entry["step"]), _scores(entry["scores"]), sets)


def _scores(entry: Mapping[str, Any]) -> Scores:
    return {str(name): float(value) for name, value in entry.items()}


def points_of(models: Sequence[Model]) -> dict[tuple[str, str], list[Point]]:
    """What can be compared: for each task and metric the models with their size and score, teachers last."""
    groups: dict[tuple[str, str], list[Point]] = {}
    teachers: dict[tuple[str, str], set[Point]] = {}
    for model in models:
        if model.run is not None:
            run, key = model.run, (model.run.task, model.run.metric)
            groups.setdefault(key, []).append(Point(model.name, model.inspection.bytes, run.best.scores[run.metric]))
            if run.teacher_score is not None:
                size = run.teacher_bytes or model.inspection.float32_bytes  # older runs did not note it
                teachers.setdefault(key, set()).add(Point("teacher, float32", size, run.teacher_score, teacher=True))
    return {key: [*points, *sorted(teachers.get(key, ()), key=lambda p: p.score)] for key, points in groups.items()}


def per_matrix(inspection: Inspection, field: str) -> dict[Matrix, float]:
    """A number of every packed matrix of the layers, such as its share of zeros."""
    found = {}
    for tensor in inspection.tensors:
        matrix, value = find_matrix(tensor.name), getattr(tensor, field)
        if matrix is not None and matrix.layer is not None and value is not None:
            found[matrix.symbol, matrix.layer] = float(value)
    return found


def level_shares(model: PackedModel) -> dict[str, dict[int, float]]:
    """For each kind of matrix, over all layers, the share of weights at each level; kinds of 8 bits are left out."""
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
