"""The nearest words by cosine, among words that have a vector. NumPy only.

Scores of a block of words against all others are one matrix product. A product's last digits depend on its shape, so
it only narrows the choice: whoever comes within `_SLACK` of the fifteenth place is scored again in double precision,
pair by pair, which gives the same number in any company. Equal scores: the word that stands first in the table wins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ternarybert.augment.source import COUNT, Candidates, digest, ignore
from ternarybert.augment.words import Place
from ternarybert.errors import DataError

Floats = NDArray[np.float32]

_BLOCK_SCORES = 2**22  # scores computed at a time: 16 MB
# Products of unit vectors in single precision are off by less than 1e-5 for any dimension in use.
_SLACK = 1e-4


class Neighbours:
    """A source that answers with the nearest words, whatever the sentence."""

    def __init__(self, words: Sequence[str], vectors: Floats, description: str, count: int = COUNT) -> None:
        """Take words with their vectors, the most frequent first; only what is a word can be an answer.

        Punctuation, numbers, repeated words and vectors without a direction are left out.
        """
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1)
        kept = [i for i in _first_of_each(words) if words[i].isalpha() and 0 < lengths[i] < np.inf]
        if len(kept) < 2:
            raise DataError(f"{description} holds {len(kept)} words with a vector; neighbours need at least two")
        self.words = [words[i] for i in kept]
        self.unit: Floats = (vectors[kept] / lengths[kept, None]).astype(np.float32)  # (words, dimensions)
        self.count = count
        self.description = f"the {count} nearest words of {description}"
        self.fingerprint = digest("neighbours", str(count), "\n".join(self.words), self.unit.tobytes())
        self._index = {word: i for i, word in enumerate(self.words)}
        self._known: dict[str, Candidates | None] = {}

    def candidates(self, places: Sequence[Place], done: Callable[[int], None] = ignore) -> list[Candidates | None]:
        """Nearest words of each word; None for words without a vector."""
        words = [place.word for place in places]
        self._learn(dict.fromkeys(word for word in words if word not in self._known))
        done(len(places))
        return [self._known[word] for word in words]

    def _learn(self, words: Iterable[str]) -> None:
        """Find the neighbours of words not asked for before."""
        found = {word: self._find(word) for word in words}
        indices = sorted({i for i in found.values() if i is not None})
        nearest = dict(zip(indices, self._nearest(indices), strict=True))
        self._known.update({word: None if i is None else nearest[i] for word, i in found.items()})

    def _find(self, word: str) -> int | None:
        return next((self._index[form] for form in (word, word.lower()) if form in self._index), None)

    def _nearest(self, indices: Sequence[int]) -> Iterator[Candidates]:
        block = max(1, _BLOCK_SCORES // len(self.words))
        for begin in range(0, len(indices), block):
            chosen = indices[begin : begin + block]
            for i, scores in zip(chosen, self.unit[chosen] @ self.unit.T, strict=True):
                yield tuple(self.words[j] for j in self._best(i, scores))

    def _best(self, i: int, scores: Floats) -> list[int]:
        """Indices of the words nearest to word i, in the order of the table."""
        own = self._own_forms(self.words[i])
        count = min(self.count, len(scores) - len(own))
        if count < 1:
            return []
        scores[own] = -np.inf
        border = np.partition(scores, -count)[-count]
        pool = np.flatnonzero(scores >= border - _SLACK)
        # Not a matrix product: rows are summed one by one, so the pool's size does not matter.
        exact = (self.unit[pool].astype(np.float64) * self.unit[i].astype(np.float64)).sum(axis=1)
        return sorted(int(j) for j in pool[np.lexsort((pool, -exact))][:count])

    def _own_forms(self, word: str) -> list[int]:
        """The word itself in any case: "Film" is no replacement for "film"."""
        forms = {word, word.lower(), word.upper(), word.capitalize()}
        return sorted(self._index[form] for form in forms if form in self._index)


def _first_of_each(words: Sequence[str]) -> list[int]:
    first: dict[str, int] = {}
    for i, word in enumerate(words):
        first.setdefault(word, i)
    return list(first.values())
