"""A tag for every word of a text: named entities, parts of speech.

Examples are a list of `Sentence` (tagged_sentences.py), predictions a list of tags for each. A word has the tag of its
first piece, as in BERT; one that the tokenizer splits into parts, such as `U.S.`, has a tag for each part. Long texts
are read in windows (token_windows.py), so that no word is left out. Entities are scored as by seqeval (entities.py).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from ternarybert.data import entities
from ternarybert.data.entities import (
    OUTSIDE,
    Scheme,
    Tags,
    gathered,
    has_prefix,
    kind_of,
    scheme_of,
    spread,
    tag_parts,
)
from ternarybert.data.labels import is_generic, listed, sorted_names
from ternarybert.data.metrics import confusion_matrix
from ternarybert.data.table import hold_out_rows
from ternarybert.data.tagged_sentences import Sentence, read_sentences
from ternarybert.data.task import Scores, Task, TaskData
from ternarybert.data.token_windows import TokenWindow, TokenWindower, word_tokens
from ternarybert.errors import DataError, LabelError

_log = logging.getLogger(__name__)
TOKEN_CLASSIFICATION = "token-classification"
_ENTITY_METRICS = ("f1", "precision", "recall", "strict_f1", "accuracy")
_WORD_METRICS = ("accuracy", "macro_f1")

Sentences: TypeAlias = Sequence[Sentence]


@dataclass(frozen=True)
class TokenClassificationTask(Task):
    """A tag for every word."""

    name: str
    labels: tuple[str, ...] | None = None  # tags in the order of their ids; None when unknown
    metrics: tuple[str, ...] = _ENTITY_METRICS
    max_length: int = 128  # of a window
    batch_size: int = 32
    epochs: int = 5

    kind = TOKEN_CLASSIFICATION
    unit = "sentences"

    @property
    def scheme(self) -> Scheme:
        """How the tags write entities."""
        return scheme_of(self.labels or ())

    @property
    def class_names(self) -> tuple[str, ...]:
        """What a word can be, without prefixes: O and the types."""
        return tuple(dict.fromkeys(kind_of(label, self.scheme) for label in self.labels or ()))

    def identity(self) -> object:
        """The tags in their order."""
        return self.labels

    def fit(
        self, data: TaskData[TokenClassificationTask], config: Mapping[str, Any]
    ) -> TaskData[TokenClassificationTask]:
        """Use the model's tags, in its order."""
        names = tuple(str(name) for _, name in sorted((int(i), name) for i, name in config["id2label"].items()))
        if is_generic(names) and self.labels is not None and len(names) == len(self.labels):
            return data
        for part in (data.train, *data.evals.values()):
            require_known(part or (), names, "the model")
        never = sorted_names(set(names) - {tag for part in _parts(data) for each in part for tag in each.tags or ()})
        if self.labels is not None and never:
            _log.warning("%d tags of the model never occur in the data: %s", len(never), listed(never))
        return replace(data, task=replace(self, labels=names, metrics=metrics_of(names)))

    def has_references(self, examples: Sentences) -> bool:
        """Whether every sentence has tags."""
        return all(sentence.tags is not None for sentence in examples)

    def scores(self, examples: Sentences, predictions: Sequence[Tags], teacher: Sequence[Tags] | None = None) -> Scores:
        """Precision, recall and F1 of entities as by seqeval, also by type; agreement is the F1 with the teacher's.

        Of tags without prefixes, the share of right words and the mean F1 of the tags.
        """
        scores: Scores = {}
        if self.has_references(examples):
            wanted = [sentence.tags or () for sentence in examples]
            scores = self._plain_scores(predictions, wanted)
            if self.scheme != "plain":
                scores = self._entity_scores(predictions, wanted) | scores
        if teacher is not None:
            scores |= self._agreement(predictions, teacher)
        return {name: 100 * value for name, value in scores.items()}

    def _plain_scores(self, predictions: Sequence[Tags], wanted: Sequence[Tags]) -> Scores:
        scores = {"accuracy": entities.word_accuracy(predictions, wanted)}
        if self.scheme == "plain":
            counts = entities.word_counts(predictions, wanted)
            scores["macro_f1"] = float(np.mean([count.f1 for count in counts.values()]))
            scores |= {f"f1 {tag}": count.f1 for tag, count in counts.items()}
        return scores

    def _entity_scores(self, predictions: Sequence[Tags], wanted: Sequence[Tags]) -> Scores:
        counts = entities.count_entities(predictions, wanted, self.scheme)
        strict = entities.in_all(entities.count_entities(predictions, wanted, self.scheme, strict=True))
        total = entities.in_all(counts)
        scores = {"f1": total.f1, "precision": total.precision, "recall": total.recall, "strict_f1": strict.f1}
        return scores | {f"f1 {kind}": count.f1 for kind, count in counts.items()}

    def _agreement(self, predictions: Sequence[Tags], teacher: Sequence[Tags]) -> Scores:
        words = entities.word_accuracy(predictions, teacher)
        if self.scheme == "plain":
            return {"agreement": words}
        total = entities.in_all(entities.count_entities(predictions, teacher, self.scheme))
        return {"agreement": total.f1 if total.wanted + total.predicted else 1.0, "word_agreement": words}

    def confusion(self, examples: Sentences, predictions: Sequence[Tags]) -> list[list[int]] | None:
        """Words by what they are and what they were taken for, without prefixes."""
        if not self.has_references(examples) or not self.class_names:
            return None
        ids = {name: i for i, name in enumerate(self.class_names)}

        def of(sentences: Iterable[Tags]) -> list[int]:
            return [ids[kind_of(tag, self.scheme)] for tags in sentences for tag in tags]

        counts = confusion_matrix(of(predictions), of(each.tags or () for each in examples), len(ids))
        table: list[list[int]] = counts.tolist()
        return table

    def sample(self, examples: Sentences, count: int) -> list[Sentence]:
        """A random choice, the same for a number of sentences."""
        return random.Random(0).sample(list(examples), count)

    def describe(self, data: TaskData[Any]) -> str:
        """The types of entities, or the tags."""
        if self.labels is None or not any(each.tags for part in _parts(data) for each in part):
            return "words without tags"
        what = "tags" if self.scheme == "plain" else f"{self.scheme} entities"
        return f"{what}: {', '.join(name for name in self.class_names if name != OUTSIDE)}"

    def tags_of(self, rows: NDArray[Any], words: Sequence[Sequence[int]]) -> list[str]:
        """The tags of a text's words, from the logits (tokens, labels) and the tokens of each word's parts."""
        labels = self.labels or ()
        missing = OUTSIDE if OUTSIDE in labels else labels[0]
        best = [labels[i] for i in rows.argmax(-1).tolist()]
        return [gathered([best[token] for token in tokens]) if tokens else missing for tokens in words]

    def part_ids(self, sentence: Sentence, words: Sequence[Sequence[int]], ignored: int) -> list[list[int]]:
        """The ids of the tags of all parts of a sentence's words; `ignored` where the model has no such tag."""
        ids = {name: i for i, name in enumerate(self.labels or ())}
        return [
            [ids.get(part, ignored) for part in spread(tag, len(tokens))]
            for tag, tokens in zip(sentence.tags or (), words, strict=True)
        ]


@dataclass(frozen=True, slots=True)
class SentenceWindows:
    """The inputs that a sentence is read in, and the tokens that carry the tags of its words."""

    windows: list[TokenWindow]
    words: list[list[int]]  # the first token of each part of each word, in tokens of the whole sentence

    def labels(self, window: TokenWindow, ids: Sequence[Sequence[int]], ignored: int) -> list[int]:
        """The label of each token of a window: `ids` are those of the words' parts, other tokens are `ignored`."""
        labels = [ignored] * len(window.ids)
        start, end = window.owned
        pairs = zip(chain.from_iterable(self.words), chain.from_iterable(ids), strict=True)
        for token, label in reversed(list(pairs)):  # where two words share a token, the first one's label stays
            if start <= token < end:
                labels[token - window.shift] = label
        return labels


def cut_sentences(sentences: Sentences, tokenizer: Tokenizer, max_length: int) -> Iterator[SentenceWindows]:
    """The windows of every sentence."""
    windower = TokenWindower(tokenizer, max_length)
    for sentence in sentences:
        encoding = windower.encode(sentence.text)
        yield SentenceWindows(windower.windows(encoding.ids), word_tokens(encoding, sentence.words))


def metrics_of(labels: Iterable[str]) -> tuple[str, ...]:
    """By what tags are scored; models are selected by the first."""
    return _WORD_METRICS if scheme_of(labels) == "plain" else _ENTITY_METRICS


def load_tags(
    train: str | Path | None,
    evaluation: str | Path | None = None,
    *,
    labels: Sequence[str] | None = None,
    text: str | None = None,
    conll: bool = False,
    labeled: bool = False,
    eval_share: float = 0.1,
    seed: int = 42,
) -> TaskData[TokenClassificationTask]:
    """Read words with tags: CoNLL columns, or JSON lines with `tokens` and `tags`, or with `text` and `spans`.

    Files without tags give sentences to distill on; `text` names their column. `labels` are the teacher's tags in the
    order of its ids. `conll` reads columns whatever the suffix of the file is. `labeled` refuses training sentences
    without tags. Without an evaluation file, `eval_share` of the sentences is held out.
    """
    files = {part: path for part, path in (("train", train), ("dev", evaluation)) if path is not None}
    if not files:
        raise DataError("no data: give a training file, an evaluation file or both")
    parts = {part: read_sentences(path, text, conll=conll) for part, path in files.items()}
    if labeled and any(sentence.tags is None for sentence in parts.get("train", ())):
        raise DataError(f"{train} has no tags; learning them needs a tag for every word")
    names = tuple(labels) if labels is not None else own_labels(next(iter(parts.values())))
    if names is None:
        names = next((found for part in parts.values() if (found := own_labels(part))), None)
    for part in parts.values() if names else ():
        require_known(part, names or (), "the training file" if labels is None else "the model")
    task = TokenClassificationTask(Path(next(iter(files.values()))).stem, names, metrics_of(names or ("B-",)))
    if "dev" not in parts and eval_share:
        kept, held = hold_out_rows(len(parts["train"]), None, eval_share, seed)
        parts = {"train": [parts["train"][i] for i in kept], "dev": [parts["train"][i] for i in held]}
    return TaskData(task, parts.pop("train", None), parts)


def own_labels(sentences: Sentences) -> tuple[str, ...] | None:
    """The tags of sentences: O first, then those of every type, also if one of them happens not to occur."""
    found = {tag for sentence in sentences for tag in sentence.tags or ()}
    if not found:
        return None
    if len(found) == 1:
        raise LabelError(f"{sentences[0].source}: every tag is '{found.pop()}'; there is nothing to learn")
    scheme = scheme_of(found)
    if scheme == "plain":
        return sorted_names(found)
    kinds = sorted({tag_parts(tag)[1] for tag in found if has_prefix(tag)})
    prefixes = "BIES" if scheme == "BIOES" else "BI"
    return (OUTSIDE, *(f"{prefix}-{kind}" for kind in kinds for prefix in prefixes))


def require_known(sentences: Sentences, names: Sequence[str], whose: str) -> None:
    """Refuse tags that are not among the names, with the place of the first."""
    known = set(names)
    for sentence in sentences:
        for word, tag in enumerate(sentence.tags or ()):
            if tag not in known:
                raise LabelError(
                    f"{sentence.place(word)}: {whose} does not know the tag '{tag}'; it has {listed(names)}"
                )


def _parts(data: TaskData[Any]) -> Iterator[Sentences]:
    return (part for part in (data.train, *data.evals.values()) if part)
