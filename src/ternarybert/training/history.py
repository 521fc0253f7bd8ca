"""Evaluations during a run: scores on the task's own sets, and which model they make the one to keep.

Every process evaluates everything: the sets are small, and the scores then do not depend on the number of processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from ternarybert.data.metrics import mean_scores
from ternarybert.errors import OutputError
from ternarybert.storage import read_json, write_json
from ternarybert.training.batches import TokenizedData, predict_sets
from ternarybert.training.heads import Head
from ternarybert.training.report import StepEvaluation

HISTORY = "history.json"  # in the work folder
BEST = "best"  # the kept model, in the work folder


@dataclass
class History:
    """Every evaluation of a run, and whose model is kept: the best one's, or the last one's."""

    metric: str = ""
    evaluations: list[StepEvaluation] = field(default_factory=list)
    confusion: dict[str, Any] = field(default_factory=dict)  # of the kept model, on each labeled set
    calibration: list[list[float]] | None = None  # of the kept model, on the first set
    seconds: float = 0.0  # of training until the last evaluation, also before the run was resumed
    keep_last: bool = False

    @property
    def best(self) -> StepEvaluation:
        """The evaluation with the highest score; ties go to agreement with the teacher, then to the later one."""

        def rank(evaluation: StepEvaluation) -> tuple[float, float, int]:
            scores = evaluation.scores
            return scores[self.metric], scores.get("agreement", 0.0), evaluation.step

        return max(self.evaluations, key=rank)

    @property
    def kept(self) -> StepEvaluation:
        """The evaluation whose model is kept."""
        return self.evaluations[-1] if self.keep_last else self.best

    def add(self, evaluation: StepEvaluation) -> bool:
        """Add an evaluation; whether its model is the one to keep."""
        # A resumed run repeats the steps after its checkpoint.
        self.evaluations = [*(e for e in self.evaluations if e.step < evaluation.step), evaluation]
        return self.kept.step == evaluation.step

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> History:
        """Read what was written to the work folder."""
        evaluations = [StepEvaluation(**each) for each in values["evaluations"]]
        return cls(**{**values, "evaluations": evaluations})


class RunEvaluator:
    """Evaluates a model in training and keeps the best one."""

    def __init__(
        self,
        head: Head[Any],
        tokenized: TokenizedData,
        work: Path,
        *,
        keep_last: bool = False,
        teacher_predictions: Mapping[str, Any] | None = None,
        save: Callable[[PreTrainedModel, Path], None] | None = None,
        is_intact: Callable[[Path], bool] = lambda _: True,
    ) -> None:
        """`save` writes the model to keep to a folder, and `is_intact` checks that it can still be read."""
        self.head, self.tokenized, self.work, self.save = head, tokenized, work, save
        self.teacher_predictions = teacher_predictions
        self.history = History(keep_last=keep_last)
        if (work / HISTORY).is_file():
            self.history = History.from_dict(read_json(work / HISTORY) | {"keep_last": keep_last})
        if self.history.evaluations and not is_intact(work / BEST):
            raise OutputError(f"{work / BEST}, the best model so far, is damaged or missing; use --force to start over")
        self._started = time.perf_counter() - self.history.seconds

    @property
    def last_step(self) -> int | None:
        """After which step the last evaluation was."""
        return self.history.evaluations[-1].step if self.history.evaluations else None

    def evaluate(
        self, model: PreTrainedModel, step: int, precision: AbstractContextManager[Any], *, writes: bool
    ) -> dict[str, float]:
        """Scores of the model as it is, as means over the sets, and `best`; of several processes only one `writes`."""
        head, tokenized, history = self.head, self.tokenized, self.history
        with precision:
            logits = predict_sets(model, tokenized, head.logits)
        sets = head.score_sets(tokenized, logits, self.teacher_predictions)
        scores = mean_scores(sets)
        history.metric = head.task.main_metric(scores)
        is_kept = history.add(StepEvaluation(step, scores, sets))
        history.seconds = time.perf_counter() - self._started
        if is_kept and head.task.class_names:
            tables = {name: head.confusion(tokenized, name, each) for name, each in logits.items()}
            history.confusion = {name: table for name, table in tables.items() if table is not None}
        if is_kept:
            first = next(iter(logits))
            history.calibration = head.calibration(tokenized, first, logits[first])
        if writes:
            if is_kept and self.save is not None:
                head.update_config(model.config, tokenized, sets)
                self.save(model, self.work / BEST)
            write_json(self.work / HISTORY, asdict(history))
        return scores | {"best": history.best.scores[history.metric]}
