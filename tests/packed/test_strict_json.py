"""One value, one text; and a text that people can read."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternarybert.packed.strict_json import DEPTH_LIMIT, dumps, loads

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@settings(deadline=None, max_examples=50)
@given(values)
def test_what_is_written_is_read(value):
    assert loads(dumps(value)) == value == json.loads(dumps(value))


def test_short_things_share_a_line_and_long_ones_do_not():
    x, y = "x" * 70, "y" * 70
    assert dumps({"b": {"shape": [2, 3]}, "a": [x, y], 3: None}).decode().splitlines() == [
        "{",
        '  "3": null,',
        '  "a": [',
        f'    "{x}",',
        f'    "{y}"',
        "  ],",
        '  "b": {"shape": [2, 3]}',
        "}",
    ]


@pytest.mark.parametrize("value", [float("nan"), {"a": float("inf")}, object(), {(1, 2): 3}, b"x"])
def test_what_json_cannot_hold(value):
    with pytest.raises(ValueError, match=r"JSON|keys must be"):
        dumps(value)


def nested(depth):
    value = 0
    for _ in range(depth):
        value = [value]
    return value


def test_depth_is_limited_in_both_directions():
    deepest = nested(DEPTH_LIMIT)
    assert loads(dumps(deepest)) == deepest
    for depth in (DEPTH_LIMIT + 1, 500, 100_000):
        with pytest.raises(ValueError, match="nested too deeply"):
            loads(b"[" * depth + b"]" * depth)
        with pytest.raises(ValueError, match="nested too deeply"):
            dumps(nested(depth))


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"1" + b"0" * 400 + b".0"])
def test_numbers_that_would_become_infinite(number):
    with pytest.raises(ValueError, match="beyond the range of a number"):
        loads(b'{"a": ' + number + b"}")
