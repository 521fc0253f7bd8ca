"""What a model's outputs mean: classifiers of texts and of words. Questions are answered in `answerer.py`.

MERGED-DOCS:
A loaded model: texts in, answers out.

A text's answer does not depend on the others: batches are only there to keep the engine busy. Every method may be
called from several threads at a time. What the answers are, `heads.py` says.

---
Question answering: windows over the context, and the best span of all of them (tasks/squad_*.py).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from ternarybert.data.squad.questions import Question
from ternarybert.data.squad.spans import Prediction
from ternarybert.data.squad.task import QuestionAnsweringTask, answering_task
from ternarybert.data.squad.windows import Window, Windower
from ternarybert.errors import (
    DataError,
    InputError,
    PackedConfigError,
    TruncationWarning,
    UnsupportedModelError,
    suggest,
)
from ternarybert.runtime.network import Batch, Floats, Output, Runner
from ternarybert.runtime.results import Answer, Label, Labels, Number, Tags, Word, shares, sigmoid, softmax
from ternarybert.runtime.text import Text, TextEncoder, as_stream, as_texts

POOLINGS = {"mean": Output.MEAN, "cls": Output.FIRST, "pooler": Output.DENSE, "tokens": Output.HIDDEN}

_TOKENS = 2048  # computed together
_FIRST_CHUNK, _LARGEST_CHUNK, _CHUNK_SECONDS = 32, 2048, 0.25  # texts taken in at a time grow until they take so long


class Model:
    """What all models can do; by itself, an encoder without a task."""

    output: ClassVar[Output | None] = None  # of the engine, for `logits`
    needs_offsets: ClassVar[bool] = False

    def __init__(self, runner: Runner, text: TextEncoder, config: Mapping[str, Any], num_threads: int = 1) -> None:
        self.runner, self.text, self.config, self.num_threads = runner, text, config, num_threads
        self.labels = label_names(config, runner.sizes.head)

    @property
    def kernel(self) -> str:
        """What computes: the name of a kernel, or `oracle`."""
        return self.runner.kernel

    @property
    def max_length(self) -> int:
        """How many tokens of an input are read."""
        return self.text.max_length

    def predict(self, texts: Any) -> Any:
        """The answer to a text, a pair, or each of many."""
        given, single = as_texts(texts)
        answers = list(self.stream(given))
        return answers[0] if single else answers

    def stream(self, texts: Iterable[Any]) -> Iterator[Any]:
        """Answer one text after the other, in order, without ever holding all of them."""
        for text, encoding, rows in self._run(as_stream(texts), self._output()):
            yield self._answer(text, encoding, rows)

    def logits(self, texts: Any) -> Any:
        """Unscaled scores: an array with a row per text, or, for heads on every token, an array per text."""
        output = self._output()
        given, single = as_texts(texts)
        rows = [rows for _, _, rows in self._run(given, output)]
        if output == Output.TOKEN_LOGITS:
            return rows[0] if single else rows
        return rows[0][0] if single else _stack(rows, self.runner.sizes.head)

    def encode(self, texts: Any, *, pooling: str = "mean", normalize: bool = False) -> Any:
        """Vectors of texts: the `mean` over tokens, the first token (`cls`), the `pooler`'s output, or all `tokens`.

        One array with a row per text; with `tokens` an array per text with a row per token. `normalize` gives vectors
        of length 1, so that a product of two is their cosine.
        """
        if pooling not in POOLINGS:
            raise InputError(f"unknown pooling '{pooling}'{suggest(pooling, POOLINGS)}")
        given, single = as_texts(texts)
        found = [_unit(rows) if normalize else rows for _, _, rows in self._run(given, POOLINGS[pooling])]
        if pooling == "tokens":
            return found[0] if single else found
        width = self.runner.sizes.dense if pooling == "pooler" else self.runner.sizes.hidden
        return found[0][0] if single else _stack(found, width)

    def close(self) -> None:
        """Free the memory now and not when nobody holds the model any more."""
        self.runner.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _output(self) -> Output:
        if self.output is None:
            names = self.config.get("architectures")
            raise UnsupportedModelError(f"{(names or ['this'])[0]} has no head that answers anything; use encode()")
        return self.output

    def _answer(self, text: Text, encoding: Encoding, rows: Floats) -> Any:
        raise NotImplementedError

    def _run(self, texts: Iterable[Text], output: Output) -> Iterator[tuple[Text, Encoding, Floats]]:
        """Each text with its tokens and its rows of the output, in order; cut texts are counted and told at the end."""
        seen = cut = 0
        for chunk in chunks(iter(texts)):
            encodings = self.text.encode(chunk, offsets=self.needs_offsets, parallel=self.num_threads > 1)
            seen += len(chunk)
            cut += sum(map(self.text.was_cut, encodings))
            types = self.text.has_types
            inputs = [(encoding.ids, encoding.type_ids if types else None) for encoding in encodings]
            yield from zip(chunk, encodings, self._compute(inputs, output), strict=True)
        if cut:
            warnings.warn(
                f"{cut} of {seen} texts are longer than {self.max_length} tokens; the rest of them was not read",
                TruncationWarning,
                stacklevel=3,
            )

    def _compute(self, inputs: Sequence[tuple[Any, Any]], output: Output) -> list[Floats]:
        """The rows of each input (ids, and types or None), computed with others of its length."""
        found: list[Floats | None] = [None] * len(inputs)
        per_token = output in (Output.HIDDEN, Output.TOKEN_LOGITS)
        for places in batches([len(ids) for ids, _ in inputs]):
            types = [inputs[i][1] for i in places]
            batch = Batch.of([inputs[i][0] for i in places], None if types[0] is None else types)
            rows = self.runner.run(batch, output)
            starts = batch.starts() if per_token else range(len(places) + 1)
            for i, ends in zip(places, pairwise(starts), strict=True):
                found[i] = rows[slice(*ends)]
        return found  # type: ignore[return-value]


def batches(lengths: Sequence[int], tokens: int = _TOKENS) -> Iterator[list[int]]:
    """Places of inputs to compute together: of like length, and no more than so many tokens unless one alone is."""
    places: list[int] = []
    total = 0
    for place in np.argsort(lengths, kind="stable").tolist():
        if places and total + lengths[place] > tokens:
            yield places
            places, total = [], 0
        places.append(place)
        total += lengths[place]
    if places:
        yield places


def label_names(config: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """The labels in the order of the head's outputs."""
    names = config.get("id2label")
    if not isinstance(names, Mapping) or not names:
        return tuple(f"LABEL_{i}" for i in range(count))
    by_id = {str(key): str(name) for key, name in names.items()}
    if count and set(by_id) != {str(i) for i in range(count)}:
        raise PackedConfigError(f"config.json names {len(by_id)} labels, but the model has {count} outputs")
    return tuple(by_id[str(i)] for i in range(count))


def chunks(texts: Iterator[Text], first: int = _FIRST_CHUNK) -> Iterator[list[Text]]:
    """Texts to take in at a time: few at first, more while they take little time, fewer again where they take long."""
    size, start = first, time.monotonic()
    while chunk := list(islice(texts, size)):
        yield chunk
        now = time.monotonic()
        if now - start < _CHUNK_SECONDS:
            size = min(2 * size, _LARGEST_CHUNK)
        elif now - start > 4 * _CHUNK_SECONDS:
            size = max(1, size // 2)
        start = now


def _stack(rows: Sequence[Floats], width: int) -> NDArray[np.float32]:
    return np.concatenate(rows) if rows else np.empty((0, width), np.float32)


def _unit(rows: Floats) -> Floats:
    length = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows / np.maximum(length, np.finfo(np.float32).tiny))


_AT_ONCE = 256  # questions whose logits are in memory together when many are scored


class Answerer(Model):
    """Answers questions with a piece of a context, however long that is."""

    output = Output.TOKEN_LOGITS

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        # What the model was trained on: after SQuAD 2.0 it may say that there is no answer.
        self.task: QuestionAnsweringTask = answering_task(self.config)
        self._windower: tuple[QuestionAnsweringTask, Windower] | None = None

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

    def predictions(self, questions: Sequence[Question], task: QuestionAnsweringTask) -> Iterator[Prediction]:
        """What is said to each question, by the rules of a task, for scoring."""
        windower = self._windower_of(task)
        for first in range(0, len(questions), _AT_ONCE):
            yield from self._predict(windower.windows(questions[first : first + _AT_ONCE]), task)

    def _predict(self, windows: list[Window], task: QuestionAnsweringTask) -> list[Prediction]:
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

    def _windower_of(self, task: QuestionAnsweringTask) -> Windower:
        fitting = replace(task, max_length=min(task.max_length, self.max_length))
        return fitting.windower(self.text.tokenizer, parallel=self.num_threads > 1)


class Classifier(Model):
    """Classes, several classes or a number for a text or a pair."""

    output = Output.LOGITS

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.problem = problem_of(self.config, len(self.labels))

    def _answer(self, text: Text, encoding: Encoding, rows: Floats) -> Label | Labels | Number:
        logits = rows[0].tolist()
        if self.problem == "regression":
            return Number(logits[0], tuple(logits))
        if self.problem == "multi_label_classification":
            scores = dict(zip(self.labels, map(sigmoid, logits), strict=True))
            return Labels(tuple(name for name, score in scores.items() if score >= 0.5), scores)
        scores = dict(zip(self.labels, shares(logits), strict=True))
        best = self.labels[int(rows[0].argmax())]
        return Label(best, scores[best], scores)


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


def problem_of(config: Mapping[str, Any], labels: int) -> str:
    """What the outputs mean, as transformers trains them."""
    said = config.get("problem_type")
    if said is None:
        return "regression" if labels == 1 else "single_label_classification"
    known = ("regression", "single_label_classification", "multi_label_classification")
    if said not in known:
        raise PackedConfigError(f"config.json has problem_type '{said}'{suggest(said, known)}")
    return str(said)
