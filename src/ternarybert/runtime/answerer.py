"""Question answering: windows over the context, and the best span of all of them (tasks/squad_*.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ternarybert.errors import DataError, InputError
from ternarybert.runtime.model import Model, chunks
from ternarybert.runtime.network import Output
from ternarybert.runtime.results import Answer
from ternarybert.runtime.text import Text, as_stream
from ternarybert.tasks.squad import SquadTask, answering_task
from ternarybert.tasks.squad_answers import Prediction
from ternarybert.tasks.squad_features import Window, Windower
from ternarybert.tasks.squad_questions import Question

_AT_ONCE = 256  # questions whose logits are in memory together when many are scored


class Answerer(Model):
    """Answers questions with a piece of a context, however long that is."""

    output = Output.TOKEN_LOGITS

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        # What the model was trained on: after SQuAD 2.0 it may say that there is no answer.
        self.task: SquadTask = answering_task(self.config)
        self._windower: tuple[SquadTask, Windower] | None = None

    def stream(self, texts: Iterable[Any]) -> Iterator[Answer]:
        """Answer pairs of a question and a context."""
        for chunk in chunks(as_stream(texts), first=1):  # a single context may take seconds
            yield from self._answer_all(chunk)

    def _answer_all(self, chunk: Sequence[Text]) -> list[Answer]:
        answers = [Answer(None, 1.0, None, None)] * len(chunk)  # of a context in which there surely is nothing
        questions = []
        for place, pair in enumerate(chunk):
            if isinstance(pair, str):
                raise InputError(f"a question needs a context to look in: (question, context), not {pair!r:.40}")
            if pair[1].strip():
                try:
                    questions.append(Question(*pair, id=str(place)))
                except DataError as error:
                    raise InputError(f"{pair!r:.60}: {error}") from error
        for prediction in self._predict(self._cut(questions), self.task):
            answers[int(prediction.id)] = Answer.of(prediction)
        return answers

    def predictions(self, questions: Sequence[Question], task: SquadTask) -> Iterator[Prediction]:
        """What is said to each question, by the rules of a task, for scoring."""
        windower = self._windower_of(task)
        for first in range(0, len(questions), _AT_ONCE):
            yield from self._predict(windower.windows(questions[first : first + _AT_ONCE]), task)

    def _predict(self, windows: list[Window], task: SquadTask) -> list[Prediction]:
        # Windows have types of their own, whatever the folder's tokenizer would give in transformers.
        types = self.text.model_has_types
        inputs = [(window.input_ids, window.token_type_ids if types else None) for window in windows]
        rows = self._compute(inputs, Output.TOKEN_LOGITS)
        return task.predict(windows, [part[:, 0] for part in rows], [part[:, 1] for part in rows])

    def _cut(self, questions: list[Question]) -> list[Window]:
        try:
            return self._windows().windows(questions)
        except DataError:  # a context may hold nothing that the tokenizer sees, such as control characters only
            encode = self.text.tokenizer.encode
            seen = [one for one in questions if encode(one.context, add_special_tokens=False).ids]
            return self._windows().windows(seen)

    def _windows(self) -> Windower:
        if self._windower is None or self._windower[0] != self.task:  # made when needed: it copies the tokenizer
            self._windower = self.task, self._windower_of(self.task)
        return self._windower[1]

    def _windower_of(self, task: SquadTask) -> Windower:
        fitting = replace(task, max_length=min(task.max_length, self.max_length))
        return fitting.windower(self.text.tokenizer, parallel=self.num_threads > 1)
