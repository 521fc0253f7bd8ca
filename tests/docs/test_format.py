"""docs/reference/format.md agrees with the code: its examples, its entries, its errors and its limits."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from ternarybert import errors
from ternarybert.packed import folder as file
from ternarybert.packed import manifest
from ternarybert.packed import weights_file as container
from ternarybert.packed.codec import Coding, pack, unpack

DOCUMENT = (Path(__file__).parents[2] / "docs" / "reference" / "format.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(
    r"```example\nbits: (\d)  levels: (\w+)  packing: (\w+)\ncodes: ([-\d ]+)\nbytes: ([0-9a-f ]+)\n```", DOCUMENT
)


def test_there_is_an_example_of_every_kind():
    assert DOCUMENT.count("```example") == len(EXAMPLES)
    assert {(bits, levels, packing) for bits, levels, packing, *_ in EXAMPLES} == {
        ("2", "linear", "plain"),
        ("2", "linear", "dense"),
        ("3", "linear", "plain"),
        ("3", "log", "plain"),
        ("4", "linear", "plain"),
        ("8", "linear", "plain"),
    }


@pytest.mark.parametrize(("bits", "levels", "packing", "codes", "stored"), EXAMPLES)
def test_examples(bits, levels, packing, codes, stored):
    coding = Coding(int(bits), levels, packing)
    matrix = np.array([codes.split()], np.int8)
    packed = np.frombuffer(bytes.fromhex(stored), coding.dtype)[None]
    np.testing.assert_array_equal(pack(matrix, coding), packed)
    np.testing.assert_array_equal(unpack(packed, matrix.shape[1], coding), matrix)


def test_entries_of_tensors_are_as_written():
    plain, packed = (json.loads(line) for line in re.search(r"```json\n(.*?)```", DOCUMENT, re.S)[1].splitlines())
    assert isinstance(manifest._parse_one("a", plain), manifest.PlainSpec)
    assert isinstance(manifest._parse_one("a", packed), manifest.PackedSpec)


def test_every_error_is_listed():
    listed = re.findall(r"^\| `(\w+Error)` \|", DOCUMENT, re.M)
    ours = [
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and errors.PackedError in value.__bases__
    ]
    assert sorted(listed) == sorted(ours)


def test_limits_and_version():
    assert f"format version {manifest.FORMAT_VERSION}" in DOCUMENT
    assert container.HEADER_LIMIT == file.JSON_LIMIT == 16 << 20
    assert "at most 16 MiB" in DOCUMENT
