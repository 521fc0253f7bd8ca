"""What a model's outputs mean: classifiers of texts and of words. Questions are answered in `answerer.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tokenizers import Encoding

from ternarybert.errors import InputError, PackedConfigError, suggest
from ternarybert.runtime.model import Model
from ternarybert.runtime.network import Floats, Output
from ternarybert.runtime.results import Label, Labels, Number, Tags, Word, shares, sigmoid, softmax
from ternarybert.runtime.text import Text


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
