"""Cuts a text that is longer than a model into windows that overlap, and puts their outputs together again.

Every token belongs to the window that shows most of its surroundings, as in question answering (`squad/windows.py`),
and only that window's output for it is used. A text that fits is one window: itself.

The rule, which training, the Python engine and the C library share: the tokenizer puts b special tokens before a text
and a after it. A window has room for R = max_length - b - a tokens of the text. A text of more than R tokens has
windows that begin at its tokens 0, S, 2S, ... with S = max(1, R // 2), up to the first one that reaches the end of the
text, which may be shorter; each has all b + a special tokens around it. Of two neighbors that begin at f and g, token t
belongs to the first up to t = (f + g + R - 1) // 2, and to the second after it. The special tokens before the text
belong to the first window, those after it to the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from ternarybert.data.pair_frame import plain_copy
from ternarybert.data.squad.windows import window_cuts
from ternarybert.errors import DataError

WordSpans: TypeAlias = Sequence[tuple[int, int]]  # first character and the one after the last, of each word
_NO_WORD = -1  # of special tokens


@dataclass(frozen=True, slots=True)
class TokenWindow:
    """A part of a text's tokens, with the special tokens around it."""

    ids: list[int]
    shift: int  # token t of the whole text is token t - shift here
    owned: tuple[int, int]  # from, up to: the tokens of the whole text that belong to this window

    def own_rows(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The outputs for the tokens that belong to this window, of those for all its tokens."""
        return rows[self.owned[0] - self.shift : self.owned[1] - self.shift]


class TokenWindower:
    """A tokenizer that never truncates, and the length of a window."""

    def __init__(self, tokenizer: Tokenizer, max_length: int) -> None:
        self._tokenizer, self.max_length = plain_copy(tokenizer), max_length
        special = self._tokenizer.encode("a").special_tokens_mask
        self._before = special.index(0) if 0 in special else len(special)
        self._after = special[::-1].index(0) if 0 in special else 0
        if max_length < len(special) + 1:
            raise DataError(f"windows of {max_length} tokens leave no room for a text; make them longer")

    def encode(self, text: str) -> Encoding:
        """All tokens of a text, with special tokens."""
        return self._tokenizer.encode(text)

    def windows(self, ids: Sequence[int]) -> list[TokenWindow]:
        """Cut the tokens of a text, special ones included."""
        total, whole = len(ids), list(ids)
        if total <= self.max_length:
            return [TokenWindow(whole, 0, (0, total))]
        before, after = self._before, self._after
        room, content = self.max_length - before - after, total - before - after
        firsts, borders = window_cuts(content, room, max(1, room // 2))
        edges = [0, *(border + before for border in borders[1:-1]), total]
        end = total - after
        return [
            TokenWindow(whole[:before] + whole[before + f : min(before + f + room, end)] + whole[end:], f, owned)
            for f, owned in zip(firsts, pairwise(edges), strict=True)
        ]


def word_tokens(encoding: Encoding, words: WordSpans) -> list[list[int]]:
    """The tokens that carry the tag of each word: the first piece of each part that the tokenizer splits it into.

    A part is what the tokenizer calls a word: `U.S.` has four, `zebra` one of several pieces. The engine, which knows
    no other words, tags every part. A word that the tokenizer drops, such as a control character, has none.
    """
    word_ids = np.array([_NO_WORD if word is None else word for word in encoding.word_ids], np.int64)
    real = np.flatnonzero(np.asarray(encoding.special_tokens_mask) == 0)
    offsets = np.asarray(encoding.offsets, np.int64).reshape(-1, 2)[real]
    covers = offsets[:, 1] > offsets[:, 0]
    real, offsets = real[covers], offsets[covers]
    begins = np.diff(word_ids[real], prepend=_NO_WORD) != 0
    starts = [start for start, _ in words]
    firsts = np.searchsorted(offsets[:, 1], starts, side="right").tolist()
    ends = np.searchsorted(offsets[:, 0], [end for _, end in words], side="left").tolist()
    tokens = real.tolist()
    return [
        [tokens[i] for i in range(first, end) if i == first or begins[i]]
        for first, end in zip(firsts, ends, strict=True)
    ]
