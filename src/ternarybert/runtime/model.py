"""Loaded models: texts in, predictions out.

`Model` runs texts through an engine and gives vectors; by itself it is an encoder without a task. `Classifier`,
`Tagger` and `Answerer` give meaning to the outputs of a head: classes of a text, labels of its words, answers to
questions.

A prediction does not depend on the other texts: batches only keep the engine busy. Every method may be called from
several threads at a time.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from ternarybert.errors import (
    DataError,
    InputError,
    PackedConfigError,
    TruncationWarning,
    UnsupportedModelError,
    suggest,
)
from ternarybert.packed.labels import label_fault
from ternarybert.runtime.network import Batch, Floats, Output, Runner
from ternarybert.runtime.results import (
    Answer,
    Label,
    Labels,
    Number,
    RankedText,
    Tags,
    Word,
    sigmoid,
    softmax,
    softmax_list,
)
from ternarybert.runtime.text import Text, TextEncoder, as_stream, as_texts

if TYPE_CHECKING:  # only some models need these at run time; others load faster without them
    from ternarybert.data.squad.questions import Question
    from ternarybert.data.squad.spans import Prediction
    from ternarybert.data.squad.task import QuestionAnsweringTask
    from ternarybert.data.squad.windows import Window, Windower
    from ternarybert.data.tagged_sentences import Sentence
    from ternarybert.data.token_classification import TokenClassificationTask
    from ternarybert.data.token_windows import TokenWindow, TokenWindower

POOLINGS = {"mean": Output.MEAN, "cls": Output.FIRST, "pooler": Output.DENSE, "tokens": Output.HIDDEN}
PROBLEMS = ("regression", "single_label_classification", "multi_label_classification")

_BATCH_TOKENS = 2048  # computed together
_FIRST_CHUNK, _LARGEST_CHUNK, _CHUNK_SECONDS = 32, 2048, 0.25  # chunks of texts grow until one takes that long
_QUESTIONS_AT_ONCE = _SENTENCES_AT_ONCE = 256  # whose logits are in memory together when many are scored


class Model:
    """What all models can do. By itself, an encoder without a task."""

    output: ClassVar[Output | None] = None  # what the engine computes for `predict` and `logits`
    needs_offsets: ClassVar[bool] = False

    def __init__(self, runner: Runner, text: TextEncoder, config: Mapping[str, Any], num_threads: int = 1) -> None:
        self.runner, self.text, self.config, self.num_threads = runner, text, config, num_threads
        self.folder: Path | None = None  # set by `load`, as are the options that it was called with
        self.load_options: dict[str, Any] = {}
        self.labels = label_names(config, runner.sizes.head)

    @property
    def kernel(self) -> str:
        """The name of the kernel that runs, or `oracle`."""
        return self.runner.kernel

    @property
    def max_length(self) -> int:
        """How many tokens of an input are read; longer inputs are truncated."""
        return self.text.max_length

    def predict(self, texts: Any) -> Any:
        """The prediction for a text or a pair, or a list of predictions for several."""
        given, single = as_texts(texts)
        predictions = list(self.stream(given))
        return predictions[0] if single else predictions

    def stream(self, texts: Iterable[Any]) -> Iterator[Any]:
        """Predictions for texts one after the other, in order, without holding all of them in memory."""
        for text, encoding, rows in self._run(as_stream(texts), self._output()):
            yield self._prediction(text, encoding, rows)

    def logits(self, texts: Any) -> Any:
        """Unscaled scores: an array with a row per text or, for heads on every token, an array per text."""
        output = self._output()
        given, single = as_texts(texts)
        rows = [rows for _, _, rows in self._run(given, output)]
        if output == Output.TOKEN_LOGITS:
            return rows[0] if single else rows
        return rows[0][0] if single else _stack(rows, self.runner.sizes.head)

    def encode(self, texts: Any, *, pooling: str = "mean", normalize: bool = False) -> Any:
        """Embed texts: the `mean` over tokens, the first token (`cls`), the `pooler`'s output, or all `tokens`.

        One array with a row per text; with `tokens` an array per text with a row per token. `normalize` scales vectors
        to length 1, so that the dot product of two is their cosine.
        """
        if pooling not in POOLINGS:
            raise InputError(f"unknown pooling '{pooling}'{suggest(pooling, POOLINGS)}")
        given, single = as_texts(texts)
        vectors = [unit(rows) if normalize else rows for _, _, rows in self._run(given, POOLINGS[pooling])]
        if pooling == "tokens":
            return vectors[0] if single else vectors
        width = self.runner.sizes.dense if pooling == "pooler" else self.runner.sizes.hidden
        return vectors[0][0] if single else _stack(vectors, width)

    def close(self) -> None:
        """Free the memory now, not with the last reference."""
        self.runner.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, also in other processes, are loaded from the same folder with the same options."""
        if self.folder is None:
            raise InputError("only a model from a folder can be copied or pickled; load it with ternarybert.load")
        return _load_again, (str(self.folder), self.load_options, self.max_length), self._copied_state()

    def _copied_state(self) -> dict[str, Any]:
        return {}

    def _output(self) -> Output:
        if self.output is None:
            names = self.config.get("architectures")
            raise UnsupportedModelError(
                f"{(names or ['this model'])[0]} has no task head; use encode() or `ternarybert encode`, which give "
                "vectors"
            )
        return self.output

    def prediction(self, text: Text, encoding: Encoding | None, rows: Floats) -> Any:
        """The prediction for a text from its rows of `output`, for callers that run the engine themselves.

        Only a tagger reads the text and its tokens.
        """
        return self._prediction(text, encoding, rows)  # type: ignore[arg-type]

    def _prediction(self, text: Text, encoding: Encoding, rows: Floats) -> Any:
        raise NotImplementedError

    def _run(self, texts: Iterable[Text], output: Output) -> Iterator[tuple[Text, Encoding, Floats]]:
        """Each text with its tokens and its rows of the output, in order; warns at the end if texts were truncated."""
        seen = truncated = 0
        for chunk in chunks(iter(texts)):
            encodings = self.text.encode(chunk, offsets=self.needs_offsets, parallel=self.num_threads > 1)
            seen += len(chunk)
            truncated += sum(map(self.text.was_truncated, encodings))
            types = self.text.has_types
            inputs = [(encoding.ids, encoding.type_ids if types else None) for encoding in encodings]
            yield from zip(chunk, encodings, self._compute(inputs, output), strict=True)
        if truncated:
            warnings.warn(
                f"{truncated} of {seen} texts are longer than {self.max_length} tokens and were truncated",
                TruncationWarning,
                stacklevel=3,
            )

    def _compute(self, inputs: Sequence[tuple[Any, Any]], output: Output) -> list[Floats]:
        """The rows of each input (ids, and types or None), computed in batches of similar length."""
        results: list[Floats | None] = [None] * len(inputs)
        per_token = output in (Output.HIDDEN, Output.TOKEN_LOGITS)
        for indices in batches([len(ids) for ids, _ in inputs]):
            types = [inputs[i][1] for i in indices]
            batch = Batch.of([inputs[i][0] for i in indices], None if types[0] is None else types)
            rows = self.runner.run(batch, output)
            starts = batch.starts() if per_token else range(len(indices) + 1)
            for i, ends in zip(indices, pairwise(starts), strict=True):
                results[i] = rows[slice(*ends)]
        return results  # type: ignore[return-value]


class Classifier(Model):
    """Predicts a class, several classes or a number for a text or a pair."""

    output = Output.LOGITS

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.problem = problem_of(self.config, len(self.labels))
        self.thresholds = self._thresholds()

    def _thresholds(self) -> tuple[float, ...]:
        """From which probability on each of several labels applies."""
        if self.problem == "multi_label_classification" and "multi_label" in self.config:
            from ternarybert.data.multi_label import model_thresholds

            try:
                return model_thresholds(self.config, self.labels) or ()
            except DataError as error:
                raise PackedConfigError(str(error)) from error
        return (0.5,) * len(self.labels)

    def rank(self, query: str, texts: Iterable[str], *, top_k: int | None = None) -> list[RankedText]:
        """Texts by how well they answer the query, best first: for cross-encoders, which have one output for a pair.

        Scores are those of sentence-transformers' CrossEncoder: of the function that config.json names, else sigmoid.
        """
        if len(self.labels) != 1:
            raise UnsupportedModelError(f"ranking needs a model with one output; this one has {len(self.labels)}")
        given = list(texts)
        logits = self.logits([(query, text) for text in given])[:, 0].tolist()
        score = _ranking_function(self.config)
        ranked = sorted(range(len(given)), key=lambda index: -logits[index])  # equal ones stay in their order
        return [RankedText(index, score(logits[index]), given[index]) for index in ranked[:top_k]]

    def _prediction(self, text: Text, encoding: Encoding, rows: Floats) -> Label | Labels | Number:
        logits = rows[0].tolist()
        if self.problem == "regression":
            return Number(logits[0], tuple(logits))
        if self.problem == "multi_label_classification":
            scores = dict(zip(self.labels, map(sigmoid, logits), strict=True))
            applies = zip(scores.items(), self.thresholds, strict=True)
            return Labels(tuple(name for (name, score), threshold in applies if score >= threshold), scores)
        scores = dict(zip(self.labels, softmax_list(logits), strict=True))
        best = self.labels[int(rows[0].argmax())]
        return Label(best, scores[best], scores)


class Tagger(Model):
    """Predicts a label for every word of a text, however long it is (data/token_windows.py)."""

    output = Output.TOKEN_LOGITS
    needs_offsets = True

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._windower: TokenWindower | None = None

    def word_tags(self, sentences: Sequence[Sentence], task: TokenClassificationTask) -> Iterator[list[str]]:
        """The tags of given words, in windows of the task's length, for scoring."""
        from ternarybert.data.token_classification import cut_sentences

        length = min(task.max_length, self.max_length)
        for first in range(0, len(sentences), _SENTENCES_AT_ONCE):
            cut = list(cut_sentences(sentences[first : first + _SENTENCES_AT_ONCE], self.text.tokenizer, length))
            rows = self._window_rows([each.windows for each in cut], Output.TOKEN_LOGITS)
            yield from (task.tags_of(own, each.words) for own, each in zip(rows, cut, strict=True))

    def _run(self, texts: Iterable[Text], output: Output) -> Iterator[tuple[Text, Encoding, Floats]]:
        """As of any model, but texts that are too long are read in windows."""
        if output not in (Output.TOKEN_LOGITS, Output.HIDDEN):
            yield from super()._run(texts, output)
            return
        for chunk in chunks(iter(texts)):
            encodings = self.text.encode(chunk, offsets=True, parallel=self.num_threads > 1)
            long = {i: self._whole(chunk[i]) for i, each in enumerate(encodings) if self.text.was_truncated(each)}
            whole = [long.get(i, encoding) for i, encoding in enumerate(encodings)]
            if long:
                cut = self._current_windower().windows
                rows = self._window_rows([cut(encoding.ids) for encoding in whole], output)
            else:
                rows = self._compute([(encoding.ids, None) for encoding in whole], output)
            yield from zip(chunk, whole, rows, strict=True)

    def _whole(self, text: Text) -> Encoding:
        return self._current_windower().encode(_single(text))

    def _current_windower(self) -> TokenWindower:
        from ternarybert.data.token_windows import TokenWindower

        if self._windower is None or self._windower.max_length != self.max_length:  # made on first use: it is a copy
            self._windower = TokenWindower(self.text.tokenizer, self.max_length)
        return self._windower

    def _window_rows(self, cut: Sequence[Sequence[TokenWindow]], output: Output) -> list[Floats]:
        """The rows of whole texts, from those of their windows."""
        computed = iter(self._compute([(window.ids, None) for windows in cut for window in windows], output))
        return [np.concatenate([window.own_rows(next(computed)) for window in windows]) for windows in cut]

    def _prediction(self, text: Text, encoding: Encoding, rows: Floats) -> Tags:
        """A word has the label of its first token, the one that models are trained on."""
        text = _single(text)
        probabilities, words, spans = softmax(rows), encoding.word_ids, encoding.offsets
        tagged: list[Word] = []
        for token, word in enumerate(words):
            if word is None or (token and words[token - 1] == word):
                continue
            last = token
            while last + 1 < len(words) and words[last + 1] == word:
                last += 1
            start, end = spans[token][0], spans[last][1]
            start += len(text[start:end]) - len(text[start:end].lstrip())  # some tokenizers include the space before
            best = int(rows[token].argmax())
            tagged.append(Word(text[start:end], self.labels[best], float(probabilities[token, best]), start, end))
        return Tags(text, tuple(tagged))


class Answerer(Model):
    """Answers a question with a span of its context, however long that is (data/squad)."""

    output = Output.TOKEN_LOGITS

    def __init__(self, *args: Any, **more: Any) -> None:
        from ternarybert.data.squad.task import answering_task

        super().__init__(*args, **more)
        self.task: QuestionAnsweringTask = answering_task(self.config)  # a model trained on SQuAD 2.0 may abstain
        self._windower: tuple[QuestionAnsweringTask, Windower] | None = None

    def _copied_state(self) -> dict[str, Any]:
        return {"task": self.task}

    def stream(self, texts: Iterable[Any]) -> Iterator[Answer]:
        """Answers for pairs of a question and a context."""
        for chunk in chunks(as_stream(texts), first=1):  # a single context may take seconds
            yield from self._answer_all(chunk)

    def predictions(self, questions: Sequence[Question], task: QuestionAnsweringTask) -> Iterator[Prediction]:
        """The prediction for each question by the rules of a task, for scoring."""
        windower = self._windower_of(task)
        for first in range(0, len(questions), _QUESTIONS_AT_ONCE):
            yield from self._predict(windower.windows(questions[first : first + _QUESTIONS_AT_ONCE]), task)

    def _answer_all(self, chunk: Sequence[Text]) -> list[Answer]:
        from ternarybert.data.squad.questions import Question

        answers = [Answer(None, 1.0, None, None)] * len(chunk)  # for empty contexts, which have no answer
        questions = []
        for index, pair in enumerate(chunk):
            if isinstance(pair, str):
                raise InputError(f"expected a pair (question, context), got {pair!r:.40}")
            if pair[1].strip():
                try:
                    questions.append(Question(*pair, id=str(index)))
                except DataError as error:
                    raise InputError(f"{pair!r:.60}: {error}") from error
        for prediction in self._predict(self._windows(questions), self.task):
            answers[int(prediction.id)] = Answer.of(prediction)
        return answers

    def _predict(self, windows: list[Window], task: QuestionAnsweringTask) -> list[Prediction]:
        # Windows have token types even if the folder's tokenizer gives none in transformers.
        types = self.text.model_has_types
        inputs = [(window.input_ids, window.token_type_ids if types else None) for window in windows]
        rows = self._compute(inputs, Output.TOKEN_LOGITS)
        return task.predict(windows, [part[:, 0] for part in rows], [part[:, 1] for part in rows])

    def _windows(self, questions: list[Question]) -> list[Window]:
        windower = self._current_windower()
        try:
            return windower.windows(questions)
        except DataError:  # a context may have no tokens, such as one of control characters only
            encode = self.text.tokenizer.encode
            return windower.windows([q for q in questions if encode(q.context, add_special_tokens=False).ids])

    def _current_windower(self) -> Windower:
        if self._windower is None or self._windower[0] != self.task:  # made on first use: it copies the tokenizer
            self._windower = self.task, self._windower_of(self.task)
        return self._windower[1]

    def _windower_of(self, task: QuestionAnsweringTask) -> Windower:
        fitting = replace(task, max_length=min(task.max_length, self.max_length))
        return fitting.windower(self.text.tokenizer, parallel=self.num_threads > 1)


def _single(text: Text) -> str:
    if not isinstance(text, str):
        raise InputError(f"words are labeled in a single text, not in a pair such as {text!r:.40}")
    return text


def _load_again(folder: str, options: dict[str, Any], max_length: int) -> Model:
    from ternarybert.runtime.load import load  # it imports this module

    model = load(folder, **options)
    if model.max_length != max_length:
        model.text.limit(max_length)
    return model


def batches(lengths: Sequence[int], tokens: int = _BATCH_TOKENS) -> Iterator[list[int]]:
    """Indices of inputs to compute together: of similar length, at most `tokens` in all unless one input has more."""
    indices: list[int] = []
    total = 0
    for index in np.argsort(lengths, kind="stable").tolist():
        if indices and total + lengths[index] > tokens:
            yield indices
            indices, total = [], 0
        indices.append(index)
        total += lengths[index]
    if indices:
        yield indices


def chunks(texts: Iterator[Text], first: int = _FIRST_CHUNK) -> Iterator[list[Text]]:
    """Texts in chunks that grow while they are processed quickly and shrink when that takes long."""
    size, start = first, time.monotonic()
    while chunk := list(islice(texts, size)):
        yield chunk
        now = time.monotonic()
        if now - start < _CHUNK_SECONDS:
            size = min(2 * size, _LARGEST_CHUNK)
        elif now - start > 4 * _CHUNK_SECONDS:
            size = max(1, size // 2)
        start = now


def label_names(config: Mapping[str, Any], count: int) -> tuple[str, ...]:
    """The names of the labels, in the order of the head's outputs."""
    names = config.get("id2label")
    if not isinstance(names, Mapping) or not names:
        return tuple(f"LABEL_{i}" for i in range(count))
    by_id = {str(key): str(name) for key, name in names.items()}
    if count and set(by_id) != {str(i) for i in range(count)}:
        raise PackedConfigError(f"id2label in config.json has {len(by_id)} labels, but the model has {count} outputs")
    for name in by_id.values():
        if fault := label_fault(name):
            raise PackedConfigError(f"the label {name!a:.80} in config.json {fault}; rename it")
    return tuple(by_id[str(i)] for i in range(count))


def problem_of(config: Mapping[str, Any], labels: int) -> str:
    """What the outputs of a classifier mean, by the rules of transformers."""
    problem = config.get("problem_type")
    if problem is None:
        return "regression" if labels == 1 else "single_label_classification"
    if problem not in PROBLEMS:
        raise PackedConfigError(f"config.json has problem_type '{problem}'{suggest(problem, PROBLEMS)}")
    return str(problem)


def _ranking_function(config: Mapping[str, Any]) -> Callable[[float], float]:
    """What a cross-encoder makes of its output, by the configuration of sentence-transformers."""
    section = config.get("sentence_transformers")
    name = section.get("activation_fn") if isinstance(section, Mapping) else None
    name = str(name or config.get("sbert_ce_default_activation_function") or "Sigmoid").rpartition(".")[2]
    functions: dict[str, Callable[[float], float]] = {"Sigmoid": sigmoid, "Identity": float}
    if name not in functions:
        raise UnsupportedModelError(f"the activation function '{name}' of this cross-encoder is not supported")
    return functions[name]


def _stack(rows: Sequence[Floats], width: int) -> NDArray[np.float32]:
    return np.concatenate(rows) if rows else np.empty((0, width), np.float32)


def unit(rows: Floats) -> Floats:
    """Rows scaled to length 1; rows of zeros stay as they are."""
    length = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows / np.maximum(length, np.finfo(np.float32).tiny))
