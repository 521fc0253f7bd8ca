"""One value, one text; and a text that people can read."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternarybert.packed.strict_json import dumps, loads

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
