"""How every figure looks, and how it becomes files and a part of the page.

Figures have no background, and axes and text are of one grey that can be read on white and on black, so that the PNG
is good in both. In the SVG that grey becomes the colour of the text around it. Figures are narrow enough for a phone;
on larger screens the page puts them side by side.
"""

from __future__ import annotations

import io
import re
import unicodedata
import warnings
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

INK = "#767676"
TEACHER, STUDENT = "#5b93c7", "#e0762b"
COLOURS = (STUDENT, "#3f9c6d", "#b05cc6", "#c9a227", "#d64f6a", "#3aa6b9", "#8d7ae0", "#8a8f3c")
HEAT = "YlOrBr"  # a map of colours for shares and counts
WIDTH = 4.6  # inches; 440 pixels on a screen

STYLE: Any = {  # of matplotlib; each function that draws is decorated with it
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor", "legend.facecolor"), "none"),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "font.size": 10,
    "grid.alpha": 0.18,
    "grid.color": INK,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: small, sharp, and in scripts that matplotlib's own font lacks
    "svg.hashsalt": "ternarybert",  # the same file every time
    "text.parse_math": False,  # a dollar sign in a user's text is a dollar sign
}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_ALONE = "<style>:root{color:#3b4048}@media(prefers-color-scheme:dark){:root{color:#c9ced6}}</style>"


@dataclass(frozen=True)
class Picture:
    """A figure with its words."""

    name: str  # of its files
    title: str
    caption: str  # what one sees
    svg: str  # for the inside of a page
    png: bytes
    width: int  # in pixels of the screen

    @property
    def files(self) -> dict[str, bytes]:
        """The figure as files."""
        head, _, body = self.svg.partition(">")
        return {f"{self.name}.svg": f"{head}>{_ALONE}{body}".encode(), f"{self.name}.png": self.png}


def picture(figure: Figure, name: str, title: str, caption: str) -> Picture:
    """Render a figure; `name` must be unique on its page."""
    drawn, pixels = io.StringIO(), io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph", UserWarning)  # the browser has fonts for what matplotlib lacks
        figure.savefig(drawn, format="svg", metadata=_NO_METADATA)
        figure.savefig(pixels, format="png", dpi=160)
    text = drawn.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)  # names are unique in the figure only
    width = round(figure.get_figwidth() * 96)
    return Picture(name, title, caption, text.replace(INK, "currentColor"), pixels.getvalue(), width)


def printable(text: str, most: int = 24) -> str:
    """A user's label or token for an axis: without what cannot be drawn, and not endless."""
    shown = "".join("�" if unicodedata.category(letter) in ("Cc", "Cs", "Cn") else letter for letter in text)
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"
