"""What a mistyped path was perhaps meant to be."""

from __future__ import annotations

from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path


def nearby(path: Path) -> str:
    """End of a message about a path that leads nowhere: what lies there under a like name, if anything does."""
    names: list[str] = []
    with suppress(OSError):  # a parent that is not there, or that we may not look into
        names = [entry.name for entry in path.parent.iterdir()]
    near = get_close_matches(path.name, names, n=1)
    return f"; did you mean '{path.parent / near[0]}'?" if near else ""
