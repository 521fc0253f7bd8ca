"""A cell of a comparison: a method, its bits and a seed, by name only. Does not import torch.

Bits are written W-E-A (weights, word embedding, activations) as in the paper. W may be two numbers, such as 2/3, for
mixed precision. PQ stands for product quantization.
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
    """Bits of weights, word embedding and activations; `w_high` for the layers that need more bits."""

    w: int
    e: int
    a: int
    w_high: int | None = None

    @classmethod
    def parse(cls, text: str) -> Widths:
        """`Widths.parse("2/3-8-8") == Widths(2, 8, 8, w_high=3)`."""
        match = _PATTERN.fullmatch(text)
        if match is None:
            raise OptionError(f"bits are written W-E-A, such as 2-8-8 or 2/3-8-8; got '{text}'")
        w, high, e, a = match.groups()
        return cls(int(w), int(e), int(a), None if high is None else int(high))


@dataclass(frozen=True)
class MethodInfo:
    """How a method is named, drawn and run."""

    label: str
    bits: tuple[str, ...]  # the defaults
    possible: str  # pattern of the supported bits
    family: str  # "ours", "quantization" or "compression": its marker in the figure
    source: str | None = None  # the default pre-trained model, for methods that start from one


_OURS = r"(2-2|3-3|4-4|8-8)-(4|8|32)"
METHOD_INFO = {
    "ternarybert": MethodInfo("TernaryBERT", ("2-2-8", "3-3-8", "8-8-8"), _OURS, "ours"),
    "tinybert": MethodInfo("TinyBERT", ("32-32-32", "2-2-8"), rf"{_OURS}|32-32-32", "compression"),
    "q2bert": MethodInfo("Q2BERT", ("2-8-8",), r"2-[2-8]-[48]", "quantization"),
    "q8bert": MethodInfo("Q8BERT", ("8-8-8",), r"[3-8]-[3-8]-[48]", "quantization"),
    "qbert": MethodInfo("Q-BERT", ("2-8-8", "2/3-8-8", "8-8-8"), r"[2348](/[348])?-[2-8]-8", "quantization"),
    "gobo": MethodInfo("GOBO", ("3-4-32", "2-2-32"), r"[2-8]-[2-8]-32", "quantization"),
    "quant-noise": MethodInfo("Quant-Noise", ("PQ", "8-8-8"), r"PQ|[48]-[48]-8", "quantization"),
    "minmax": MethodInfo("post-training min-max", ("8-8-8", "4-4-8"), r"[2-8]-[2-8]-(8|32)", "quantization"),
    "layerdrop": MethodInfo("LayerDrop, half", ("32-32-32",), "32-32-32", "compression"),
    "layerdrop-quarter": MethodInfo("LayerDrop, a quarter", ("32-32-32",), "32-32-32", "compression"),
    "distilbert": MethodInfo(
        "DistilBERT", ("32-32-32",), "32-32-32", "compression", source="distilbert/distilbert-base-uncased"
    ),
    "albert": MethodInfo("ALBERT", ("32-32-32",), "32-32-32", "compression", source="albert/albert-base-v2"),
}


@dataclass(frozen=True)
class Cell:
    """One student."""

    method: str
    bits: str
    name: str = ""  # replaces the label of the method
    changes: tuple[tuple[str, str], ...] = ()  # fields of TernaryBERT's recipe
    source: str | None = None  # the named pre-trained model that it starts from
    seed: int = 42

    @property
    def label(self) -> str:
        """The name in tables and figures."""
        if self.name:
            return self.name
        is_ternary_tiny = self.method == "tinybert" and self.bits.startswith("2")
        return "TernaryTinyBERT" if is_ternary_tiny else METHOD_INFO[self.method].label

    @property
    def family(self) -> str:
        """The marker in the figure."""
        tiny = self.method == "tinybert" and self.bits != "32-32-32"
        return "ours" if tiny else METHOD_INFO[self.method].family

    @property
    def group(self) -> str:
        """A name for the cell without its seed, which is also a valid file name."""
        text = "-".join([self.method, self.bits, *(f"{field} {value}" for field, value in self.changes)])
        if self.source is not None:
            text += f"-from {self.source}"
        return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")

    @property
    def key(self) -> str:
        """A name for the cell, with its seed."""
        return f"{self.group}-seed-{self.seed}"

    @property
    def trains(self) -> bool:
        """Whether the method trains."""
        return self.method not in ("gobo", "minmax")

    @property
    def is_distilled(self) -> bool:
        """Whether it is trained on the teacher's outputs."""
        return self.method in ("ternarybert", "tinybert")


def make_cells(methods: Sequence[str], bits: Sequence[str]) -> list[Cell]:
    """Return every method at each of the given bits that it supports; without bits, at its defaults."""
    cells = []
    for method in methods:
        if method not in METHOD_INFO:
            raise OptionError(f"unknown method '{method}'{suggest(method, METHOD_INFO)}")
        info = METHOD_INFO[method]
        wanted = [b for b in bits if re.fullmatch(info.possible, b)] if bits else list(info.bits)
        if not wanted:
            raise OptionError(f"{method} does not support {' or '.join(bits)}; its defaults are {', '.join(info.bits)}")
        source = method if info.source else None
        cells += [Cell(method, each, source=source) for each in wanted]
    return list(dict.fromkeys(cells))


def with_seeds(cells: Sequence[Cell], seeds: Sequence[int]) -> list[Cell]:
    """Return each cell once for every seed; methods that do not depend on a seed, once."""
    return [replace(cell, seed=seed) for cell in cells for seed in (seeds if cell.method != "gobo" else seeds[:1])]
