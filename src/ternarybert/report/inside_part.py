"""The parts of a report that run both models on some texts; torch is imported when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ternarybert.errors import DataError
from ternarybert.report import inside_charts as charts
from ternarybert.report.page import Part, Table

if TYPE_CHECKING:
    from ternarybert.report.inside import Inside

Text = tuple[str, ...]  # a text or a pair

# The sentences of the paper's Appendix E.
TEXTS: tuple[Text, ...] = (
    ("this movie is maddening.",),
    ("old-form moviemaking at its best.",),
    ("Who does John visit Sally because he likes?",),
    ("The more pictures of him that appear in the news, the more embarrassed John becomes.",),
)
MOST_TEXTS = 64  # that hidden representations are collected of
_MOST_MAPS = 4  # texts whose attention is shown
_QUANTILE_NAMES = ("smallest", "1 %", "25 %", "median", "75 %", "99 %", "largest")


def read_texts(path: Path) -> list[Text]:
    """One text a line; a tab parts the two texts of a pair."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as text: {error}") from error
    texts = [tuple(line.split("\t")[:2]) for line in lines if line.strip()]
    if not texts:
        raise DataError(f"{path} has no texts; one a line is expected")
    return texts


def inside_parts(student: Path, teacher: Path, texts: Sequence[Text], prefix: str) -> list[Part]:
    """Hidden representations and attention."""
    from ternarybert.report.inside import look_inside

    inside = look_inside(student, teacher, texts[:MOST_TEXTS])
    return [_inside(inside, len(texts), prefix), *_maps(inside, texts, prefix)]


def _inside(inside: Inside, texts: int, prefix: str) -> Part:
    rows = []
    for place, pair in enumerate(zip(inside.teacher, inside.student, strict=True)):
        for whose, values in zip(("teacher", "student"), pair, strict=True):
            numbers = [f"{value:.2f}" for value in (*charts.quantiles(values), charts.skewness(values))]
            rows.append([f"{charts.layer_name(place)}, {whose}", *numbers])
    table = Table("Quantiles and skewness of the hidden values", ["", *_QUANTILE_NAMES, "skewness"], rows)
    tokens, used = sum(len(text.tokens) for text in inside.attention), len(inside.attention)
    text = f"Measured on {tokens} tokens of {f'the first {used} of ' if used < texts else ''}{texts} texts."
    if used > _MOST_MAPS:
        text += f" Attention is drawn for the first {_MOST_MAPS}."
    pictures = [charts.hidden(inside, f"{prefix}hidden"), charts.head_map(inside.attention, f"{prefix}heads")]
    return Part("Inside teacher and student", [text], pictures=pictures, long_tables=[table])


def _maps(inside: Inside, texts: Sequence[Text], prefix: str) -> list[Part]:
    parts = []
    for number, attention in enumerate(inside.attention[:_MOST_MAPS], 1):
        pictures = [
            charts.attention_maps(attention, layer, f"{prefix}attention-{number}-layer-{layer + 1}", f"Text {number}")
            for layer in charts.shown_layers(len(inside.layers) - 1)
        ]
        parts.append(Part(f"Attention in text {number}", [f"“{'” and “'.join(texts[number - 1])}”"], pictures=pictures))
    return parts
