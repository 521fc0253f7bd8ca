"""A cell of a comparison: a method at some bits with a seed, by names only; nothing here imports torch.

MERGED-DOCS:
How many bits a baseline is asked for: W-E-A as in the paper, where W may be two numbers, or PQ.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ternarybert.errors import OptionError, suggest

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


@dataclass(frozen=True)
class Kind:
    """A method as a user knows it."""

    label: str
    bits: tuple[str, ...]  # what is run when none are named
    possible: str  # pattern of the bits that it can have
    family: str  # "ours", "quantization" or "compression": how the figure draws it
    source: str | None = None  # where the method is a pre-trained model: the one it usually is


_OURS = r"(2-2|3-3|4-4|8-8)-(4|8|32)"
KINDS = {
    "ternarybert": Kind("TernaryBERT", ("2-2-8", "3-3-8", "8-8-8"), _OURS, "ours"),
    "tinybert": Kind("TinyBERT", ("32-32-32", "2-2-8"), rf"{_OURS}|32-32-32", "compression"),
    "q2bert": Kind("Q2BERT", ("2-8-8",), r"2-[2-8]-[48]", "quantization"),
    "q8bert": Kind("Q8BERT", ("8-8-8",), r"[3-8]-[3-8]-[48]", "quantization"),
    "qbert": Kind("Q-BERT", ("2-8-8", "2/3-8-8", "8-8-8"), r"[2348](/[348])?-[2-8]-8", "quantization"),
    "gobo": Kind("GOBO", ("3-4-32", "2-2-32"), r"[2-8]-[2-8]-32", "quantization"),
    "quant-noise": Kind("Quant-Noise", ("PQ", "8-8-8"), r"PQ|[48]-[48]-8", "quantization"),
    "minmax": Kind("post-training min-max", ("8-8-8", "4-4-8"), r"[2-8]-[2-8]-(8|32)", "quantization"),
    "layerdrop": Kind("LayerDrop, half", ("32-32-32",), "32-32-32", "compression"),
    "layerdrop-quarter": Kind("LayerDrop, a quarter", ("32-32-32",), "32-32-32", "compression"),
    "distilbert": Kind(
        "DistilBERT", ("32-32-32",), "32-32-32", "compression", source="distilbert/distilbert-base-uncased"
    ),
    "albert": Kind("ALBERT", ("32-32-32",), "32-32-32", "compression", source="albert/albert-base-v2"),
}


@dataclass(frozen=True)
class Cell:
    """One student."""

    method: str
    bits: str
    name: str = ""  # its label where the method's is not enough
    changes: tuple[tuple[str, str], ...] = ()  # fields of our own recipe
    source: str | None = None  # which of the named pre-trained models it starts from
    seed: int = 42

    @property
    def label(self) -> str:
        """What a reader knows it by."""
        kind = KINDS[self.method]
        plain = "TernaryTinyBERT" if self.method == "tinybert" and self.bits.startswith("2") else kind.label
        return self.name or plain

    @property
    def family(self) -> str:
        """How the figure draws it."""
        tiny = self.method == "tinybert" and self.bits != "32-32-32"
        return "ours" if tiny else KINDS[self.method].family

    @property
    def group(self) -> str:
        """A name for the cell whatever its seed; also a good name for a file."""
        said = "-".join([self.method, self.bits, *(f"{field} {value}" for field, value in self.changes)])
        if self.source is not None:
            said += f"-from {self.source}"
        return re.sub(r"[^A-Za-z0-9.]+", "-", said).strip("-")

    @property
    def key(self) -> str:
        """A name for the cell."""
        return f"{self.group}-seed-{self.seed}"

    @property
    def trains(self) -> bool:
        """Whether there is anything to train."""
        return self.method not in ("gobo", "minmax")

    @property
    def asks_teacher(self) -> bool:
        """Whether its training looks at the teacher's outputs."""
        return self.method in ("ternarybert", "tinybert")


def make_cells(methods: Sequence[str], bits: Sequence[str]) -> list[Cell]:
    """Every method at each of the bits that it can have; without bits, at its usual ones."""
    cells = []
    for method in methods:
        if method not in KINDS:
            raise OptionError(f"unknown method '{method}'{suggest(method, KINDS)}")
        kind = KINDS[method]
        wanted = [b for b in bits if re.fullmatch(kind.possible, b)] if bits else list(kind.bits)
        if not wanted:
            raise OptionError(f"{method} cannot have {' or '.join(bits)} bits; usual are {', '.join(kind.bits)}")
        source = method if kind.source else None
        cells += [Cell(method, each, source=source) for each in wanted]
    return list(dict.fromkeys(cells))


def with_seeds(cells: Sequence[Cell], seeds: Sequence[int]) -> list[Cell]:
    """Each cell once for every seed; what does not depend on one, once."""
    return [replace(cell, seed=seed) for cell in cells for seed in (seeds if cell.method != "gobo" else seeds[:1])]
