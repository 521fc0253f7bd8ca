"""How many bits a baseline is asked for: W-E-A as in the paper, where W may be two numbers, or PQ."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ternarybert.errors import OptionError

PRODUCT = "PQ"
_PATTERN = re.compile(r"(\d+)(?:/(\d+))?-(\d+)-(\d+)")


@dataclass(frozen=True)
class Widths:
    """Bits of weights (the second for the layers that need more), word embedding and activations."""

    w: int
    e: int
    a: int
    w_high: int | None = None

    @classmethod
    def parse(cls, text: str) -> Widths:
        """`Widths.parse("2/3-8-8") == Widths(2, 8, 8, w_high=3)`."""
        found = _PATTERN.fullmatch(text)
        if found is None:
            raise OptionError(f"bits are written W-E-A, such as 2-8-8 or 2/3-8-8; got '{text}'")
        w, high, e, a = found.groups()
        return cls(int(w), int(e), int(a), None if high is None else int(high))
