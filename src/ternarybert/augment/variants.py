"""Variants of a row: every word that has candidates is replaced with probability p by one of them, at random.

The random numbers of a row are a function of the seed, the row's index and the text's column alone (Philox, a
generator that counts instead of remembering). Rows can be made in any order, or half of them tomorrow, and variant
seven is the same whether ten or thirty are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ternarybert.augment.source import Candidates
from ternarybert.augment.words import Place, written_like


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
