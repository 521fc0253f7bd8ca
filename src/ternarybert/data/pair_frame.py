"""The special tokens around a pair of texts, such as `[CLS] ... [SEP] ... [SEP]`.

They are read from the tokenizer's output for a short pair, so that no model family has to be known by name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from ternarybert.errors import DataError

Ints: TypeAlias = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class PairFrame:
    """Special tokens before, between and after two texts, and the token type of each of the five parts."""

    before: Ints
    between: Ints
    after: Ints
    types: tuple[int, int, int, int, int]

    def __len__(self) -> int:
        return len(self.before) + len(self.between) + len(self.after)


def pair_frame(tokenizer: Tokenizer, text: str = "a") -> PairFrame:
    """Read the special tokens from the encoding of a pair of `text`."""
    pair = tokenizer.encode(text, text)
    side = pair.sequence_ids
    if 0 not in side or 1 not in side:
        raise DataError(f"the tokenizer returns no tokens for {text!r}")
    first, second = side.index(0), side.index(1)
    last, end = len(side) - 1 - side[::-1].index(0), len(side) - side[::-1].index(1)
    ids, types = np.array(pair.ids, np.int32), pair.type_ids
    return PairFrame(
        before=ids[:first],
        between=ids[last + 1 : second],
        after=ids[end:],
        types=(types[0], types[last], types[second - 1], types[second], types[-1]),
    )


def plain_copy(tokenizer: Tokenizer | str | Path) -> Tokenizer:
    """Copy a tokenizer without its truncation and padding, which files often set for other uses."""
    try:
        if isinstance(tokenizer, Tokenizer):
            plain = Tokenizer.from_str(tokenizer.to_str())
        else:
            plain = Tokenizer.from_str(Path(tokenizer).read_text(encoding="utf-8"))
    except Exception as error:  # the library raises nothing narrower
        raise DataError(f"cannot read the tokenizer ({str(error).splitlines()[0]}); give a tokenizer.json") from error
    plain.no_truncation()
    plain.no_padding()
    return plain
