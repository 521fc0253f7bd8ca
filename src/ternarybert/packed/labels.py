"""What the name of a label may be: names are shown on terminals and written into tables."""

from __future__ import annotations

import unicodedata


def label_fault(name: str) -> str | None:
    """What a name would do where it is shown: on a terminal, or in a cell of a spreadsheet. None if nothing.

    A sign alone does no harm: "-1" and "+1" are fine. A formula that does something calls a function or a program.
    """
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        return "has control characters or half of a character"
    if name.lstrip().startswith(("=", "+", "-", "@")) and any(sign in name for sign in "(|!"):
        return "is a spreadsheet formula"
    return None
