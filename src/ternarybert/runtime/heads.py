"""What a model's outputs mean, one class for each kind of head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tokenizers import Encoding

from ternarybert.errors import InputError, PackedConfigError, suggest
from ternarybert.runtime.model import Model, chunks
from ternarybert.runtime.network import Floats, Output
from ternarybert.runtime.results import Answer, Label, Labels, Number, Tags, Word, named, sigmoid, softmax
from ternarybert.runtime.text import Text
from ternarybert.tasks.squad import SQUAD, SquadTask
from ternarybert.tasks.squad_features import Windower
from ternarybert.tasks.squad_questions import Question


class Classifier(Model):
    """Classes, several classes or a number for a text or a pair."""

    output = Output.LOGITS

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.problem = problem_of(self.config, len(self.labels))

    def _answer(self, text: Text, encoding: Encoding, rows: Floats) -> Label | Labels | Number:
        logits = rows[0]
        if self.problem == "regression":
            values = tuple(logits.tolist())
            return Number(values[0], values)
        if self.problem == "multi_label_classification":
            scores = named(self.labels, sigmoid(logits).tolist())
            return Labels(tuple(name for name, score in scores.items() if score >= 0.5), scores)
        shares = softmax(logits)
        best = int(logits.argmax())
        return Label(self.labels[best], float(shares[best]), named(self.labels, shares.tolist()))


class Tagger(Model):
    """A label for every word of a text."""

    output = Output.TOKEN_LOGITS
    needs_offsets = True

    def _answer(self, text: Text, encoding: Encoding, rows: Floats) -> Tags:
        """A word has the label of its first token, which is the one that models are trained on."""
        if not isinstance(text, str):
            raise InputError("words are labelled in a single text, not in a pair")
        shares, words, spans = softmax(rows), encoding.word_ids, encoding.offsets
        tagged: list[Word] = []
        for token, word in enumerate(words):
            if word is None or (token and words[token - 1] == word):
                continue
            last = token
            while last + 1 < len(words) and words[last + 1] == word:
                last += 1
            start, end = spans[token][0], spans[last][1]
            start += len(text[start:end]) - len(text[start:end].lstrip())  # some tokenizers count the blank before
            best = int(rows[token].argmax())
            tagged.append(Word(text[start:end], self.labels[best], float(shares[token, best]), start, end))
        return Tags(text, tuple(tagged))


class Answerer(Model):
    """Answers questions with a piece of a context, however long that is."""

    output = Output.TOKEN_LOGITS

    def __init__(self, *args: Any, task: SquadTask = SQUAD["squad"], **more: Any) -> None:
        super().__init__(*args, **more)
        self.task = task
        self._windower: Windower | None = None

    def stream(self, texts: Iterator[Text] | Sequence[Text]) -> Iterator[Answer]:
        """Answer pairs of a question and a context."""
        for chunk in chunks(iter(texts)):
            yield from self._answer_all(chunk)

    def _answer_all(self, chunk: Sequence[Text]) -> list[Answer]:
        answers = [Answer(None, 0.0, None, None)] * len(chunk)  # of a context in which there is nothing
        questions = []
        for place, pair in enumerate(chunk):
            if isinstance(pair, str):
                raise InputError(f"a question needs a context to look in: (question, context), not {pair!r:.40}")
            if pair[1].strip():
                questions.append(Question(*pair, id=str(place)))
        windows = self._windows().windows(questions)
        rows = self._compute([(window.input_ids, window.token_type_ids) for window in windows], Output.TOKEN_LOGITS)
        found = self.task.predict(windows, [part[:, 0] for part in rows], [part[:, 1] for part in rows])
        for prediction in found:
            answers[int(prediction.id)] = Answer.of(prediction)
        return answers

    def _windows(self) -> Windower:
        if self._windower is None:  # made when first needed: it copies the tokenizer
            task, longest = self.task, min(self.task.max_length, self.max_length)
            self._windower = Windower(
                self.text.tokenizer, max_length=longest, stride=task.stride, max_question=task.max_question
            )
        return self._windower


def problem_of(config: Mapping[str, Any], labels: int) -> str:
    """What the outputs mean, as transformers trains them."""
    said = config.get("problem_type")
    if said is None:
        return "regression" if labels == 1 else "single_label_classification"
    known = ("regression", "single_label_classification", "multi_label_classification")
    if said not in known:
        raise PackedConfigError(f"config.json has problem_type '{said}'{suggest(said, known)}")
    return str(said)
