"""What a training run returns and writes: `RunReport`, as `finetune.json` in a teacher, `metrics.json` in a student."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import ternarybert

Scores = Mapping[str, float]
Confusion = Sequence[Sequence[int]]  # a row per true class, a column per predicted one


@dataclass(frozen=True)
class StepEvaluation:
    """The scores of a model after some steps: of every evaluation set, and their means."""

    step: int
    scores: Scores
    sets: Mapping[str, Scores]


@dataclass(frozen=True)
class TeacherReport:
    """What a distilled student is compared with."""

    scores: Mapping[str, Scores]  # by evaluation set
    size: int | None = None  # bytes in float32
    confusion: Confusion | None = None  # on the first evaluation set


@dataclass(frozen=True)
class RunReport:
    """A finished run. With a `teacher` it is of a student, without one of a fine-tuned model."""

    task: str
    metric: str  # models are selected by it
    kept: str  # "best" or "last": which evaluation's model is kept
    best: StepEvaluation  # of the kept model
    final: StepEvaluation  # after the last step
    evaluations: tuple[StepEvaluation, ...]
    steps: int
    seconds: float
    train_rows: int
    seed: int
    versions: Mapping[str, str]
    labels: tuple[str, ...] = ()  # names of the classes
    confusion: Confusion | None = None  # of the kept model, on the first evaluation set
    calibration: Mapping[str, Any] | None = None  # of teacher and student, on the first evaluation set
    losses: tuple[Mapping[str, float], ...] | None = None  # loss and its terms; means since the entry before
    train_loss: float | None = None  # mean over all steps
    examples_per_second: float | None = None
    teacher: TeacherReport | None = None
    bits: str | None = None  # W-E-A
    recipe: str | None = None
    precision: str | None = None  # float32 or bf16
    augmentation: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)  # keys of a file that this version does not know

    def to_dict(self) -> dict[str, Any]:
        """The contents of metrics.json or finetune.json; what is None was not measured and is left out."""
        best, final = asdict(self.best), asdict(self.final)
        measured: dict[str, Any] = {
            "evaluations": [asdict(evaluation) for evaluation in self.evaluations],
            "losses": None if self.losses is None else [dict(entry) for entry in self.losses],
            "confusion": self._confusion(),
            "calibration": self.calibration,
            "steps": self.steps,
            "seconds": self.seconds,
            "examples_per_second": self.examples_per_second,
            "train_loss": self.train_loss,
            "train_rows": self.train_rows,
            "seed": self.seed,
            "versions": dict(self.versions),
        }
        if self.teacher is None:
            head: dict[str, Any] = {
                "task": self.task,
                "metric": self.metric,
                "kept": self.kept,
                "best": best,
                "final": final,
            }
        else:
            head = {
                "task": self.task,
                "bits": self.bits,
                "recipe": self.recipe,
                "metric": self.metric,
                "teacher": {name: dict(scores) for name, scores in self.teacher.scores.items()},
                "teacher_bytes": self.teacher.size,
                "kept": self.kept,
                "student": {"best": best, "final": final},
            }
        known = {name: value for name, value in (head | measured).items() if value is not None}
        if self.precision is not None:
            known |= {"augmentation": self.augmentation, "precision": self.precision}
        return known | dict(self.extra)

    def _confusion(self) -> dict[str, Any] | None:
        if self.losses is None:  # nothing was trained, and only scores were measured
            return None
        if self.teacher is None:
            return {"labels": list(self.labels), "model": self.confusion}
        return {"labels": list(self.labels), "teacher": self.teacher.confusion, "student": self.confusion}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunReport:
        """Read what `to_dict` wrote; a missing key raises KeyError."""
        rest = dict(values)
        confusion = rest.pop("confusion", None) or {}
        teacher, chosen = None, rest
        if "student" in rest:
            teacher = TeacherReport(rest.pop("teacher"), rest.pop("teacher_bytes", None), confusion.get("teacher"))
            chosen = rest.pop("student")
        losses = rest.pop("losses", None)
        best, final = (StepEvaluation(**chosen[name]) for name in ("best", "final"))
        for name in ("best", "final"):
            rest.pop(name, None)
        return cls(
            best=best,
            final=final,
            evaluations=tuple(StepEvaluation(**each) for each in rest.pop("evaluations")),
            labels=tuple(confusion.get("labels", ())),
            confusion=confusion.get("student" if teacher else "model"),
            losses=None if losses is None else tuple(losses),
            teacher=teacher,
            **{name: rest.pop(name) for name in _SCALARS if name in rest},
            extra=rest,
        )


_SCALARS = (
    "task",
    "metric",
    "kept",
    "steps",
    "seconds",
    "train_rows",
    "seed",
    "versions",
    "train_loss",
    "examples_per_second",
    "bits",
    "recipe",
    "precision",
    "augmentation",
    "calibration",
)


def versions() -> dict[str, str]:
    """The software and the machine that a figure was measured with."""
    import torch
    import transformers

    return {
        "ternarybert": ternarybert.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {torch.get_num_threads()} threads",
    }
