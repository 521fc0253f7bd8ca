"""What every baseline's quantizer returns: the values that a weight then has, and what storing them takes.

Methods differ in what they keep beside the codes (scales, offsets, codebooks, outliers with their places), so each
quantizer counts its own bits. A size is then a sum, and never a guess from the number of bits in a method's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

FLOAT = 32  # bits


@dataclass(frozen=True)
class Stored:
    """A weight as a method stores it."""

    w_hat: Tensor  # of the weight's shape and dtype
    parts: Mapping[str, int]  # bits of the codes, the scales, ...

    @property
    def bits(self) -> int:
        """All of them together."""
        return sum(self.parts.values())


WeightQuantizer: TypeAlias = Callable[[Tensor], Stored]


def keep(w: Tensor) -> Stored:
    """The weight as it is."""
    return Stored(w, {"float32": w.numel() * FLOAT})
