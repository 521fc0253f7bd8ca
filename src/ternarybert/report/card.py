"""The model card's list of figures; a newer report replaces it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from ternarybert.errors import OutputError
from ternarybert.packed.folder import REPORT_PAGE
from ternarybert.report.picture import Picture

CARD = "README.md"
_BEGIN, _END = "<!-- figures of ternarybert report -->", "<!-- end of figures -->"


def link_figures(folder: Path, output: Path, pictures: Sequence[Picture]) -> bool:
    """List the figures in the folder's model card; False if there is no card, or the report lies elsewhere."""
    card, place = folder / CARD, output.resolve()
    if not card.is_file() or not place.is_relative_to(folder.resolve()):
        return False
    try:
        text = card.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise OutputError(f"{card} is not UTF-8 text, so the figures cannot be linked in it") from error
    block = _block(place.relative_to(folder.resolve()).as_posix(), pictures)
    known = re.compile(re.escape(_BEGIN) + ".*?" + re.escape(_END) + r"\n?", re.DOTALL)
    updated = known.sub(lambda _: block, text) if known.search(text) else f"{text.rstrip()}\n\n{block}"
    draft = card.with_name(f".{CARD}.new")
    draft.write_text(updated, encoding="utf-8")
    draft.replace(card)
    return True


def _block(where: str, pictures: Sequence[Picture]) -> str:
    links = "\n".join(f"- [{picture.title}]({where}/{picture.name}.png)" for picture in pictures)
    return f"{_BEGIN}\n## Figures\n\n[All on one page]({where}/{REPORT_PAGE}), or one by one:\n\n{links}\n{_END}\n"
