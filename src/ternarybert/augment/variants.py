"""Variants of rows of texts: every word that has candidates is replaced with probability p by one of them, at random.

Candidates of many rows are looked up together, because that is what makes sources fast. A chunk of rows is short enough
that little is lost when the run is interrupted. A text that occurs several times is looked up once: its candidates are
cached until its last row is done.

The random numbers of a row depend only on the seed, the row index and the column of the text (Philox, a counter-based
generator). Rows can be generated in any order, or in several runs, and variant seven is the same whether ten or thirty
are generated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from ternarybert.augment.sources import Candidates, Source, digest
from ternarybert.augment.words import STOP_WORDS, WordPosition, find_words, match_case
from ternarybert.errors import RecipeError

_CHUNK_WORDS = 2048
_VERSION = "1"  # of the algorithm: increase it whenever the same options would give different bytes

Texts = tuple[str, ...]  # the texts of a row: one or two
Progress = Callable[[float, int], None]  # rows done, including fractions, and rows in total


@dataclass(frozen=True)
class VariantOptions:
    """What determines the variants, besides the source; the defaults are TinyBERT's."""

    variants: int = 20  # generated per row; duplicates are dropped
    probability: float = 0.4  # that a word is replaced
    seed: int = 42
    stop_words: frozenset[str] = STOP_WORDS  # lower case

    def __post_init__(self) -> None:
        if self.variants < 0:
            raise RecipeError(f"variants must be 0 or more, not {self.variants}")
        if not 0 <= self.probability <= 1:
            raise RecipeError(f"probability must be between 0 and 1, not {self.probability}")
        if not 0 <= self.seed < 2**64:
            raise RecipeError(f"seed must be an integer from 0 to 2^64 - 1, not {self.seed}")

    @property
    def fingerprint(self) -> str:
        """A hash of the options."""
        values = asdict(self) | {"stop_words": sorted(self.stop_words)}
        return digest(_VERSION, repr(sorted(values.items())))


@dataclass(frozen=True)
class _TextCandidates:
    """The replaceable words of a text and their candidates."""

    positions: list[WordPosition]
    candidates: list[Candidates]


def augment_rows(
    rows: Sequence[Texts], source: Source, options: VariantOptions, *, start: int = 0, progress: Progress | None = None
) -> Iterator[list[list[Texts]]]:
    """Yield chunks of rows from `start` on; each row is a list of its original texts and its variants."""
    uses = Counter(text for row in rows[start:] for text in row)
    cache: dict[str, _TextCandidates] = {}
    done = start
    for chunk in _chunks(rows[start:], options.stop_words):
        if progress is not None:
            progress(done, len(rows))
        new_texts = [text for row in chunk for text in row if text not in cache]
        cache.update(_look_up(new_texts, source, options, _chunk_progress(progress, done, len(chunk), len(rows))))
        yield [_variants(row, done + i, cache, options) for i, row in enumerate(chunk)]
        done += len(chunk)
        uses.subtract(text for row in chunk for text in row)
        cache = {text: entry for text, entry in cache.items() if uses[text]}
    if progress is not None:
        progress(done, len(rows))


def make_variants(
    text: str,
    positions: Sequence[WordPosition],
    candidates: Sequence[Candidates],
    chance: NDArray[np.float64],  # (variants, positions, 2): whether to replace, and by which candidate
    probability: float,
) -> list[str]:
    """Return one text per row of `chance`; some may be equal to each other or to the original."""
    parts = _parts(text, positions)
    choices = [
        [match_case(position.word, word) for word in words]
        for position, words in zip(positions, candidates, strict=True)
    ]
    # A word without candidates cannot be replaced; its random numbers are not used.
    replace = (chance[:, :, 0] < probability) & np.array([bool(words) for words in choices], dtype=bool)
    return [_variant(parts, choices, np.flatnonzero(replace[i]).tolist(), chance[i, :, 1]) for i in range(len(chance))]


def distinct(original: tuple[str, ...], variants: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the original row and then each different variant once."""
    return list(dict.fromkeys([original, *variants]))


def uniform(seed: int, row: int, column: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Random numbers in [0, 1), made from raw bits, which NumPy guarantees to be the same in every release."""
    raw = np.random.Philox(key=seed, counter=[0, 0, column, row]).random_raw(int(np.prod(shape)))
    numbers: NDArray[np.float64] = (raw.reshape(shape) >> np.uint64(11)) * 2.0**-53
    return numbers


def _parts(text: str, positions: Sequence[WordPosition]) -> list[str]:
    """Cut the text before and after each word: text between, word, text between, word, ..., rest."""
    cuts = [0, *(cut for position in positions for cut in (position.start, position.end)), len(text)]
    return [text[begin:end] for begin, end in pairwise(cuts)]


def _variant(
    parts: Sequence[str], choices: Sequence[Sequence[str]], replaced: Sequence[int], which: NDArray[np.float64]
) -> str:
    changed = list(parts)
    for i in replaced:
        changed[2 * i + 1] = choices[i][int(which[i] * len(choices[i]))]
    return "".join(changed)


def _chunks(rows: Sequence[Texts], stop_words: Collection[str]) -> Iterator[list[Texts]]:
    """Consecutive rows with about `_CHUNK_WORDS` words together."""
    chunk: list[Texts] = []
    words = 0
    for row in rows:
        chunk.append(row)
        words += sum(len(find_words(text, stop_words)) for text in row)
        if words >= _CHUNK_WORDS:
            yield chunk
            chunk, words = [], 0
    if chunk:
        yield chunk


def _chunk_progress(progress: Progress | None, done: int, size: int, total: int) -> Callable[[float], None]:
    """Progress inside a chunk, given as a fraction of it."""
    return lambda share: progress(done + share * size, total) if progress is not None else None


def _look_up(
    texts: Sequence[str], source: Source, options: VariantOptions, progress: Callable[[float], None]
) -> dict[str, _TextCandidates]:
    positions = {text: find_words(text, options.stop_words) for text in texts}
    every = [position for in_text in positions.values() for position in in_text]
    given = source.candidates(every, lambda count: progress(count / max(1, len(every))))
    candidates = iter([words or () for words in given])
    return {
        text: _TextCandidates(in_text, list(islice(candidates, len(in_text)))) for text, in_text in positions.items()
    }


def _variants(row: Texts, index: int, cache: dict[str, _TextCandidates], options: VariantOptions) -> list[Texts]:
    """The row itself and its variants; the texts of a pair change independently of each other."""
    columns = []
    for column, text in enumerate(row):
        entry = cache[text]
        chance = uniform(options.seed, index, column, (options.variants, len(entry.positions), 2))
        columns.append(make_variants(text, entry.positions, entry.candidates, chance, options.probability))
    return distinct(row, list(zip(*columns, strict=True)))
