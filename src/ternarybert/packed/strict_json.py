"""JSON as the format needs it: strict in, canonical out.

In: UTF-8 only, no key twice, no NaN, no number beyond double precision, no nesting that exhausts the stack; other
readers may understand such text differently. Out: sorted keys, short things on one line, so that the same
value gives the same bytes and a configuration with two hundred tensors can still be read by people.
"""

from __future__ import annotations

import json
import math
from reprlib import repr as show
from typing import Any, NoReturn

_WIDTH = 120
DEPTH_LIMIT = 100  # lists and objects within each other; what can be read can then also be written, on any stack


def loads(data: bytes) -> Any:  # the caller checks what it is
    """Parse; any fault raises a ValueError."""
    text = data.decode("utf-8")
    try:
        value = json.loads(text, object_pairs_hook=_no_repeats, parse_constant=_no_constants, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_depth(value)
    return value


def dumps(value: object) -> bytes:
    """Write canonically; a value that JSON cannot hold raises a ValueError."""
    try:
        plain = json.loads(json.dumps(value, allow_nan=False))  # makes keys strings and tuples lists
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except TypeError as error:
        raise ValueError(str(error)) from None
    _check_depth(plain)
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


def _check_depth(value: object) -> None:
    """Level by level, because a function that calls itself would meet the limit that this is about."""
    level, depth = [value], 0
    while level := [item for item in level if isinstance(item, (dict, list))]:
        depth += 1
        if depth > DEPTH_LIMIT:
            raise ValueError(f"it is nested too deeply, beyond {DEPTH_LIMIT} levels")
        level = [inner for item in level for inner in (item.values() if isinstance(item, dict) else item)]


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError(f"{show(digits)} is beyond the range of a number")
    return value


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    for key, value in pairs:
        if key in seen:
            raise ValueError(f"the key {show(key)} occurs twice")
        seen[key] = value
    return seen


def _no_constants(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
