"""Where replacements come from: anything that gives candidates for words in their sentences.

A source answers `None` for a word that is not its business and `()` for one that it knows no replacement for. That is
all that is needed to say "words of one piece from the masked-language model, the others from GloVe": `Chain` asks one
source after the other, each only about the words that those before it passed on.

Candidates come in an order that does not depend on their scores (the order of the vocabulary): a score that differs
in its last digit, as it does between batch sizes, can then change an answer only at the border of the best fifteen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol

from ternarybert.augment.words import Place

COUNT = 15  # candidates per word, in TinyBERT and here

Candidates = tuple[str, ...]


def ignore(done: int) -> None:
    """Progress that nobody watches."""


class Source(Protocol):
    """Gives candidates for words."""

    @property
    def description(self) -> str:
        """What it is, for people."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever an answer could; files and caches of an older one are not continued."""

    def candidates(self, places: Sequence[Place], done: Callable[[int], None] = ignore) -> list[Candidates | None]:
        """Candidates for each place. `done` is told, now and then, how many places are finished."""


class Chain:
    """Several sources; the first that knows a word answers."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.sources = tuple(sources)

    @property
    def description(self) -> str:
        """What each of them is, in the order they are asked."""
        return "; for the other words, ".join(source.description for source in self.sources)

    @property
    def fingerprint(self) -> str:
        """Of all of them together."""
        return digest(*(source.fingerprint for source in self.sources))

    def candidates(self, places: Sequence[Place], done: Callable[[int], None] = ignore) -> list[Candidates | None]:
        """Candidates from the first source that knows the word."""
        answers: list[Candidates | None] = [None] * len(places)
        open_places = list(range(len(places)))
        for source in self.sources:
            found = source.candidates([places[i] for i in open_places], _after(len(places) - len(open_places), done))
            for i, answer in zip(open_places, found, strict=True):
                answers[i] = answer
            open_places = [i for i in open_places if answers[i] is None]
        return answers


def _after(before: int, done: Callable[[int], None]) -> Callable[[int], None]:
    """Progress of a source that begins when `before` places are done."""
    return lambda count: done(before + count)


def digest(*parts: str | bytes | memoryview) -> str:
    """A short name for some content; every part counts with its length."""
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        hashed.update(f"{len(data)}:".encode())
        hashed.update(data)
    return hashed.hexdigest()
