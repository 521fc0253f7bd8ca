"""JSON as the format needs it: strict in, canonical out.

In: UTF-8 only, no key twice, no NaN, no nesting that exhausts the stack; other readers may understand such text
otherwise than we do. Out: sorted keys, short things on one line, so that the same value gives the same bytes and a
configuration with two hundred tensors can still be read by people.
"""

from __future__ import annotations

import json
from reprlib import repr as show
from typing import Any, NoReturn

_WIDTH = 120


def loads(data: bytes) -> Any:  # what it is, the caller checks
    """Parse; any reason not to is a ValueError."""
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=_no_repeats, parse_constant=_no_constants)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def dumps(value: object) -> bytes:
    """Write canonically; a value that JSON cannot hold is a ValueError."""
    try:
        plain = json.loads(json.dumps(value, allow_nan=False))  # makes keys strings and tuples lists
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return (_pretty(plain, "") + "\n").encode("utf-8")


def _pretty(value: object, margin: str) -> str:
    line = json.dumps(value, sort_keys=True)
    if len(margin) + len(line) <= _WIDTH or not isinstance(value, (dict, list)):
        return line
    inner = margin + "  "
    if isinstance(value, dict):
        items = [f"{json.dumps(key)}: {_pretty(value[key], inner)}" for key in sorted(value)]
    else:
        items = [_pretty(item, inner) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + "\n" + ",\n".join(inner + item for item in items) + "\n" + margin + closing


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {show(key)} occurs twice")
        found[key] = value
    return found


def _no_constants(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
