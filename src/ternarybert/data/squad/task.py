"""SQuAD 1.1, SQuAD 2.0 and the user's own questions: settings, examples, and the steps from a text to a score.

A `QuestionAnsweringTask` has the three steps around a model, so that training, evaluation and prediction share them:
`windower` splits contexts into inputs, `predict` turns logits into answers, `score` compares them with the references.
A trained model keeps these settings, with the no-answer threshold found for it, in its `config.json` under
`question_answering`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ternarybert.data.readers import Table
from ternarybert.data.squad.metric import normalize, score_squad, score_squad_v2
from ternarybert.data.squad.questions import Question, questions_of, read_questions
from ternarybert.data.squad.spans import Logits, Prediction, answer_questions
from ternarybert.data.squad.windows import Window, Windower
from ternarybert.data.task import Scores, Task, TaskData, import_datasets
from ternarybert.errors import DataError, HubError, suggest

if TYPE_CHECKING:
    from datasets import Dataset
    from tokenizers import Tokenizer

ANSWERING = "question_answering"  # the key in a model's config.json
QUESTION_ANSWERING = "question-answering"  # the kind of task
OWN = "own"  # the version of the user's own questions
_SIZES = ("max_length", "stride", "max_question", "max_answer", "n_best")


@dataclass(frozen=True)
class QuestionAnsweringTask(Task):
    """Settings of the paper (section 4.2) and, where it does not give them, of its released code."""

    name: str
    version: str = "1.1"
    null_threshold: float | None = None  # a number where a question may have no answer
    metrics: tuple[str, ...] = ("f1", "exact")
    max_length: int = 384
    stride: int = 128
    max_question: int = 64
    max_answer: int = 30
    n_best: int = 20
    batch_size: int = 16
    epochs: int = 3

    kind = QUESTION_ANSWERING
    unit = "questions"

    def identity(self) -> object:
        """The sizes of windows and answers, and the threshold."""
        return self.answering()

    def fit(self, data: TaskData[QuestionAnsweringTask], config: Mapping[str, Any]) -> TaskData[QuestionAnsweringTask]:
        """Use the model's windows and threshold."""
        return replace(data, task=data.task.with_model_settings(config))

    def has_references(self, examples: Sequence[Question]) -> bool:
        """Whether every question has answers; an empty list of answers counts as one."""
        return all(question.answers is not None for question in examples)

    def scores(
        self,
        examples: Sequence[Question],
        predictions: Sequence[Prediction],
        teacher: Sequence[Prediction] | None = None,
    ) -> Scores:
        """EM and F1 against the reference answers, and how often the answer is the teacher's."""
        scores: Scores = {}
        if self.has_references(examples):
            every = self.score(examples, predictions)
            names = dict.fromkeys((*self.metrics, *every))  # what models are selected by comes first
            scores.update({name: every[name] for name in names if name in every and not name.endswith("total")})
        if teacher is not None:
            same = [normalize(a.text) == normalize(b.text) for a, b in zip(predictions, teacher, strict=True)]
            scores["agreement"] = 100 * sum(same) / len(same)
        return scores

    def sample(self, examples: Sequence[Question], count: int) -> list[Question]:
        """A random choice, the same for a number of questions."""
        return random.Random(0).sample(list(examples), count)

    def describe(self, data: TaskData[Any]) -> str:
        """How many questions have no answer, and how many have no reference."""
        questions = [question for part in (data.train, *data.evals.values()) for question in part or ()]
        unknown = sum(question.answers is None for question in questions)
        if unknown == len(questions):
            return "no answers"
        counts = {"without an answer": sum(q.answers == () for q in questions), "not labeled": unknown}
        return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count) or "all have answers"

    def windower(self, tokenizer: Tokenizer | str | Path, *, parallel: bool = True) -> Windower:
        """Make the object that splits this task's questions into inputs of a model."""
        return Windower(
            tokenizer,
            max_length=self.max_length,
            stride=self.stride,
            max_question=self.max_question,
            parallel=parallel,
        )

    def predict(self, windows: Sequence[Window], start_logits: Logits, end_logits: Logits) -> list[Prediction]:
        """Turn the logits of windows into an answer per question."""
        return answer_questions(
            windows,
            start_logits,
            end_logits,
            n_best=self.n_best,
            max_answer=self.max_answer,
            null_threshold=self.null_threshold,
        )

    def score(self, questions: Sequence[Question], predictions: Sequence[Prediction]) -> dict[str, float]:
        """EM and F1 in percent, by the rules of the version; for v2.0 also the best thresholds.

        Where every question has an answer there is no best threshold, and none is reported.
        """
        if self.null_threshold is None:
            return score_squad(questions, [prediction.text for prediction in predictions])
        scores = score_squad_v2(
            questions,
            [prediction.best_text for prediction in predictions],
            [prediction.null_difference for prediction in predictions],
            threshold=self.null_threshold,
        )
        has_unanswerable = "NoAns_f1" in scores
        return {name: value for name, value in scores.items() if has_unanswerable or not name.startswith("best_")}

    def with_model_settings(self, config: Mapping[str, object]) -> QuestionAnsweringTask:
        """The same task with the settings in a trained model's config.json.

        Windows are the model's, or shorter ones if this task has shorter ones. Where a question may have no answer the
        model's own threshold applies, also on the user's own questions if all of those have answers. A model without
        a threshold always answers: that is how it will be used.
        """
        if config.get(ANSWERING) is None:
            return self
        known = answering_task(config)
        length = (
            known.max_length
            if self.max_length == QuestionAnsweringTask.max_length
            else min(self.max_length, known.max_length)
        )
        threshold = self.null_threshold
        if self.version != SQUAD["squad"].version:
            never = None if threshold is None else math.inf
            threshold = never if known.null_threshold is None else known.null_threshold
        return replace(
            self,
            max_length=length,
            stride=known.stride,
            max_question=known.max_question,
            max_answer=known.max_answer,
            n_best=known.n_best,
            null_threshold=threshold,
        )

    def answering(self) -> dict[str, int | float | None]:
        """The settings that a model of this task keeps in its config.json."""
        never_abstains = self.null_threshold == math.inf  # JSON has no infinity
        return {name: getattr(self, name) for name in _SIZES} | {
            "null_threshold": None if never_abstains else self.null_threshold
        }


def answering_task(config: Mapping[str, object]) -> QuestionAnsweringTask:
    """The task that a model's config.json describes; without that section, SQuAD 1.1."""
    section = config.get(ANSWERING)
    if section is None:
        return SQUAD["squad"]
    if not isinstance(section, Mapping):
        raise DataError(f"config.json: '{ANSWERING}' is {section!r:.40}, not an object")
    sizes = {name: section[name] for name in _SIZES if name in section}
    threshold = section.get("null_threshold")
    for name, value in sizes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise DataError(f"config.json: '{ANSWERING}.{name}' is {value!r:.40}, not a whole number of at least 1")
    if threshold is None:
        return replace(SQUAD["squad"], **sizes)
    if not isinstance(threshold, (int, float)) or isinstance(threshold, bool) or math.isnan(threshold):
        raise DataError(f"config.json: '{ANSWERING}.null_threshold' is {threshold!r:.40}, not a number")
    return replace(SQUAD["squad_v2"], **sizes, null_threshold=float(threshold))


SQUAD: dict[str, QuestionAnsweringTask] = {
    task.name: task
    for task in (
        QuestionAnsweringTask("squad"),
        QuestionAnsweringTask("squad_v2", version="2.0", null_threshold=0.0),
    )
}


def squad_task(name: str) -> QuestionAnsweringTask:
    """Find a task by name, in any spelling: squad, SQuAD-v2."""
    task = SQUAD.get(name.casefold().replace("-", "_"))
    if task is None:
        raise DataError(f"unknown task '{name}'{suggest(name, SQUAD)}")
    return task


def load_squad(name: str, folder: str | Path | None = None) -> TaskData[QuestionAnsweringTask]:
    """Read SQuAD from a folder with the official files (train-v1.1.json, dev-v1.1.json), or from the hub.

    Files may be zipped, or in a folder of the task's name. Parts whose files are missing are left out.
    """
    task = squad_task(name)
    parts = _from_hub(task) if folder is None else _from_folder(task, Path(folder))
    for part, questions in parts.items():
        _require_answers(task, part, questions)
    return TaskData(task, parts.pop("train", None), parts)


def load_questions(
    train: str | Path | None, evaluation: str | Path | None = None, *, eval_share: float = 0.1, seed: int = 42
) -> TaskData[QuestionAnsweringTask]:
    """Read the user's own questions from any file that `read_questions` takes.

    Questions without an answer in either file make it a task like SQuAD 2.0. Without an evaluation file, `eval_share`
    of the questions is held out.
    """
    files = {part: path for part, path in (("train", train), ("dev", evaluation)) if path is not None}
    if not files:
        raise DataError("no file with questions is given")
    parts = {part: read_questions(path) for part, path in files.items()}
    unanswerable = any(question.answers == () for questions in parts.values() for question in questions)
    task = SQUAD["squad_v2" if unanswerable else "squad"]
    if "dev" not in parts and eval_share:
        parts["train"], parts["dev"] = hold_out(parts["train"], eval_share, seed)
    named = replace(task, name=Path(next(iter(files.values()))).stem, version=OWN)
    return TaskData(named, parts.pop("train", None), parts)


def hold_out(
    questions: Sequence[Question], share: float = 0.1, seed: int = 42
) -> tuple[list[Question], list[Question]]:
    """Split into kept and held out by article, or by context where articles have no title.

    Questions about one text share its words and often each other's answers: a split within a text would bias scores
    upwards.
    Texts that would take more than twice the share are kept, unless not half of the share would be held out otherwise.
    """
    if not 0 < share < 1:
        raise DataError(f"the held-out share must be above 0 and below 1, not {share}")
    groups: dict[str, list[Question]] = {}
    for question in questions:
        groups.setdefault(question.title or question.context, []).append(question)
    if len(groups) < 2:
        raise DataError("all questions are about one text, so none can be held out; give an evaluation file")
    names = list(groups)
    random.Random(seed).shuffle(names)
    held: set[str] = set()
    count, wanted = 0, share * len(questions)
    for name in names[:-1]:
        if count < wanted and count + len(groups[name]) <= 2 * wanted:
            held.add(name)
            count += len(groups[name])
    rest = sorted((name for name in names if name not in held), key=lambda name: len(groups[name]))
    while count < wanted / 2 and len(rest) > 1:
        count += len(groups[rest[0]])
        held.add(rest.pop(0))
    aside = [(question.title or question.context) in held for question in questions]
    return _select(questions, aside, False), _select(questions, aside, True)


def _select(questions: Sequence[Question], marks: Sequence[bool], wanted: bool) -> list[Question]:
    return [question for question, mark in zip(questions, marks, strict=True) if mark == wanted]


def _require_answers(task: QuestionAnsweringTask, part: str, questions: Sequence[Question]) -> None:
    for question in questions:
        if question.answers is None:
            raise DataError(f"{part}: the questions have no 'answers'; those of {task.name} have")
        if task.null_threshold is None and not question.answers:
            raise DataError(f"{part}: question '{question.id}' has no answer; that is SQuAD 2.0 (squad_v2)")


def _from_folder(task: QuestionAnsweringTask, folder: Path) -> dict[str, list[Question]]:
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder")
    for place in (folder, *(path for path in sorted(folder.iterdir()) if path.is_dir())):
        files = {part: file for part in ("train", "dev") if (file := _official_file(task, place, part))}
        if files:
            return {part: read_questions(path) for part, path in files.items()}
    raise DataError(f"{folder} holds neither train-v{task.version}.json nor dev-v{task.version}.json, zipped or not")


def _official_file(task: QuestionAnsweringTask, folder: Path, part: str) -> Path | None:
    names = (f"{part}-v{task.version}.json{packed}" for packed in ("", ".zip", ".gz"))
    return next((path for name in names if (path := folder / name).is_file()), None)


def _from_hub(task: QuestionAnsweringTask) -> dict[str, list[Question]]:
    name = f"rajpurkar/{task.name}"
    try:
        parts = import_datasets().load_dataset(name)
    except OSError as error:  # no network, or no room for the download
        reason = str(error).strip().split("\n")[0]
        raise HubError(
            f"cannot get {name} from the hub ({reason}); pass a folder with the official files: "
            f"train-v{task.version}.json, dev-v{task.version}.json"
        ) from error
    splits = {"train": "train", "dev": "validation"}
    return {part: _hub_questions(f"{name} {split}", parts[split]) for part, split in splits.items() if split in parts}


def _hub_questions(name: str, rows: Dataset) -> list[Question]:
    columns = {column: list(rows[column]) for column in rows.column_names}
    return questions_of(Table(Path(name), columns, range(1, len(rows) + 1), "row"))
