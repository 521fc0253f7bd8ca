"""From rows of texts to rows of variants, a stretch of rows at a time.

Words of many rows are looked up together, because that is what makes sources fast; a stretch is short enough that
little is lost when the run is stopped. A text that occurs again is looked up once: its candidates are kept until its
last row is done.

MERGED-DOCS:
Variants of a row: every word that has candidates is replaced with probability p by one of them, at random.

The random numbers of a row are a function of the seed, the row's index and the text's column alone (Philox, a
generator that counts instead of remembering). Rows can be made in any order, or half of them tomorrow, and variant
seven is the same whether ten or thirty are made.

"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from ternarybert.augment.source import Candidates, Source, digest
from ternarybert.augment.words import STOP_WORDS, Place, find_words, written_like
from ternarybert.errors import RecipeError


def uniform(seed: int, row: int, column: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Random numbers in [0, 1). Raw bits, because NumPy promises to keep those the same in every release."""
    raw = np.random.Philox(key=seed, counter=[0, 0, column, row]).random_raw(int(np.prod(shape)))
    numbers: NDArray[np.float64] = (raw.reshape(shape) >> np.uint64(11)) * 2.0**-53
    return numbers


def make_variants(
    text: str,
    places: Sequence[Place],
    candidates: Sequence[Candidates],
    chance: NDArray[np.float64],  # (variants, places, 2): whether to replace, and by what
    probability: float,
) -> list[str]:
    """One text per row of `chance`; some may be equal, to each other or to the text."""
    parts = _parts(text, places)
    choices = [
        [written_like(place.word, word) for word in words] for place, words in zip(places, candidates, strict=True)
    ]
    # A word without candidates has nothing to be replaced by; its random numbers go unused.
    replace = (chance[:, :, 0] < probability) & np.array([bool(words) for words in choices], dtype=bool)
    return [_variant(parts, choices, np.flatnonzero(replace[i]).tolist(), chance[i, :, 1]) for i in range(len(chance))]


def distinct(original: tuple[str, ...], variants: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The original row and then every variant the first time it occurs."""
    return list(dict.fromkeys([original, *variants]))


def _parts(text: str, places: Sequence[Place]) -> list[str]:
    """The text cut before and after each word: what is between, a word, what is between, a word, ..., the rest."""
    cuts = [0, *(cut for place in places for cut in (place.start, place.end)), len(text)]
    return [text[begin:end] for begin, end in pairwise(cuts)]


def _variant(
    parts: Sequence[str], choices: Sequence[Sequence[str]], replaced: Sequence[int], which: NDArray[np.float64]
) -> str:
    changed = list(parts)
    for i in replaced:
        changed[2 * i + 1] = choices[i][int(which[i] * len(choices[i]))]
    return "".join(changed)


_STRETCH_WORDS = 2048
_VERSION = "1"  # of the algorithm: raise it whenever the same settings would give other bytes

Texts = tuple[str, ...]  # of one row: one text, or two
Progress = Callable[[float, int], None]  # rows done, also in part, and rows in all


@dataclass(frozen=True)
class Settings:
    """What decides the variants, beside the source; the defaults are TinyBERT's."""

    variants: int = 20  # tried per row; those that come out equal are written once
    probability: float = 0.4  # of each word to be replaced
    seed: int = 42
    stop_words: frozenset[str] = STOP_WORDS  # lower case

    def __post_init__(self) -> None:
        if self.variants < 0:
            raise RecipeError(f"variants must not be negative, not {self.variants}")
        if not 0 <= self.probability <= 1:
            raise RecipeError(f"the probability must be between 0 and 1, not {self.probability}")
        if not 0 <= self.seed < 2**64:
            raise RecipeError(f"the seed must be a whole number from 0 to 2^64 - 1, not {self.seed}")

    @property
    def fingerprint(self) -> str:
        """A name for the settings."""
        values = asdict(self) | {"stop_words": sorted(self.stop_words)}
        return digest(_VERSION, repr(sorted(values.items())))


@dataclass(frozen=True)
class _Looked:
    """The words of a text and their candidates."""

    places: list[Place]
    candidates: list[Candidates]


def augment_rows(
    rows: Sequence[Texts], source: Source, settings: Settings, *, start: int = 0, progress: Progress | None = None
) -> Iterator[list[list[Texts]]]:
    """Go through the rows from `start` on; give stretches of them, each row as itself followed by its variants."""
    uses = Counter(text for row in rows[start:] for text in row)
    known: dict[str, _Looked] = {}
    done = start
    for stretch in _stretches(rows[start:], settings.stop_words):
        if progress is not None:
            progress(done, len(rows))
        watch = _watch(progress, done, len(stretch), len(rows))
        known.update(_look_up([text for row in stretch for text in row if text not in known], source, settings, watch))
        yield [_variants(row, done + i, known, settings) for i, row in enumerate(stretch)]
        done += len(stretch)
        uses.subtract(text for row in stretch for text in row)
        known = {text: looked for text, looked in known.items() if uses[text]}
    if progress is not None:
        progress(done, len(rows))


def _stretches(rows: Sequence[Texts], stop_words: Collection[str]) -> Iterator[list[Texts]]:
    """Consecutive rows that have enough words together."""
    stretch: list[Texts] = []
    words = 0
    for row in rows:
        stretch.append(row)
        words += sum(len(find_words(text, stop_words)) for text in row)
        if words >= _STRETCH_WORDS:
            yield stretch
            stretch, words = [], 0
    if stretch:
        yield stretch


def _watch(progress: Progress | None, done: int, size: int, total: int) -> Callable[[float], None]:
    """Progress inside a stretch, as a share of it."""
    return lambda share: progress(done + share * size, total) if progress is not None else None


def _look_up(
    texts: Sequence[str], source: Source, settings: Settings, watch: Callable[[float], None]
) -> dict[str, _Looked]:
    places = {text: find_words(text, settings.stop_words) for text in texts}
    every = [place for spots in places.values() for place in spots]
    found = source.candidates(every, lambda count: watch(count / max(1, len(every))))
    answers = iter([answer or () for answer in found])
    return {text: _Looked(spots, list(islice(answers, len(spots)))) for text, spots in places.items()}


def _variants(row: Texts, index: int, known: dict[str, _Looked], settings: Settings) -> list[Texts]:
    """The row itself and its variants; the texts of a pair change independently of each other."""
    columns = []
    for column, text in enumerate(row):
        looked = known[text]
        chance = uniform(settings.seed, index, column, (settings.variants, len(looked.places), 2))
        columns.append(make_variants(text, looked.places, looked.candidates, chance, settings.probability))
    return distinct(row, list(zip(*columns, strict=True)))
