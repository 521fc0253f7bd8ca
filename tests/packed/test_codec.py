"""Packing loses nothing, gives the same bytes everywhere, and refuses what it could not give back."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternarybert.errors import PackedTensorError
from ternarybert.packed.codec import Coding, fault, pack, unpack

CODINGS = [
    Coding(2),
    Coding(2, packing="dense"),
    Coding(3),
    Coding(3, levels="log"),
    Coding(4),
    Coding(4, levels="log"),
    Coding(8),
]
NAMES = [f"{c.bits}-{c.levels}-{c.packing}" for c in CODINGS]
every_coding = pytest.mark.parametrize("coding", CODINGS, ids=NAMES)


def random_codes(coding, shape, seed=0):
    return np.random.default_rng(seed).choice(coding.alphabet, shape)


@settings(deadline=None)  # the machine may be busy
@given(
    coding=st.sampled_from(CODINGS),
    rows=st.integers(1, 40),
    columns=st.integers(1, 70),
    seed=st.integers(0, 2**32 - 1),
)
def test_unpacking_gives_back_what_was_packed(coding, rows, columns, seed):
    codes = random_codes(coding, (rows, columns), seed)
    packed = pack(codes, coding)
    assert packed.shape == (rows, coding.row_bytes(columns))
    assert fault(packed, columns, coding) is None
    back = unpack(packed, columns, coding)
    assert back.dtype == np.int8
    np.testing.assert_array_equal(back, codes)


@every_coding
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (3, 5), (300_000, 1), (1, 300_000), (257, 1031)])
def test_shapes_at_the_edges_of_bytes_and_blocks(coding, shape):
    codes = random_codes(coding, shape)
    packed = pack(codes, coding)
    assert fault(packed, shape[1], coding) is None
    np.testing.assert_array_equal(unpack(packed, shape[1], coding), codes)


@every_coding
def test_every_byte_is_either_refused_or_gives_its_own_codes(coding):
    # Rows of one byte, all 256 of them: what is not a fault must survive the way to codes and back unchanged.
    columns = {2: 4, 3: 2, 4: 2, 8: 1}[coding.bits] if coding.packing == "plain" else 5
    stored = np.arange(256, dtype=np.uint8).reshape(-1, 1).view(coding.dtype)
    good = np.array([fault(row[None], columns, coding) is None for row in stored])
    codes = unpack(stored[good], columns, coding)
    np.testing.assert_array_equal(pack(codes, coding), stored[good])
    assert len(np.unique(codes, axis=0)) == good.sum() == len(coding.alphabet) ** columns


@pytest.mark.parametrize(
    ("coding", "codes", "expected"),
    [
        (Coding(2), [-1, 0, 1, 1, -1], "a4 54"),  # 00 01 10 10 | 00, then the padding 01 01 01
        (Coding(2, packing="dense"), [-1, 0, 1, 1, -1, 1], "4b 7a"),  # 0+3+18+54+0 | 2+3+9+27+81
        (Coding(3), [-3, -1, 0, 1, 3], "d0 e8"),  # 000 010 011 100 110, then 1 of the padding 011
        (Coding(3, levels="log"), [-4, -1, 0, 1, 4], "d0 e8"),
        (Coding(4), [-7, 0, 7], "70 7e"),
        (Coding(8), [-127, 0, 5], "81 00 05"),
    ],
)
def test_golden_bytes(coding, codes, expected):
    packed = pack(np.array([codes], np.int8), coding)
    assert packed.tobytes().hex(" ") == expected


@every_coding
def test_a_code_out_of_range_is_named_with_its_place(coding):
    codes = np.zeros((3000, 100), np.int8)
    codes[2001, 7] = -128
    with pytest.raises(PackedTensorError, match=r"code -128 at row 2001, column 7"):
        pack(codes, coding)


@pytest.mark.parametrize("code", [3, -3, 5, 7])
def test_log_levels_are_powers_of_two(code):
    with pytest.raises(PackedTensorError, match=f"code {code} at row 0, column 1 is not one of -4, -2, -1, 0, 1, 2, 4"):
        pack(np.array([[1, code]], np.int8), Coding(3, levels="log"))


@pytest.mark.parametrize("codes", [np.zeros((2, 2), np.int64), np.zeros(4, np.int8), np.zeros((2, 2), np.float32)])
def test_only_matrices_of_int8_are_packed(codes):
    with pytest.raises(PackedTensorError, match="must be a matrix of int8"):
        pack(codes, Coding(2))


@pytest.mark.parametrize(
    ("coding", "columns", "stored", "reason"),
    [
        (Coding(2), 8, [[0, 0], [0, 0b00_11_00_00]], "index 3 at row 1, column 6, is above 2"),
        (Coding(2), 3, [[0b11_00_00_00]], "index 3 at row 0, in the padding, is above 2"),
        (Coding(2), 3, [[0b01_00_00_00], [0]], "the padding of row 1 is not"),
        (Coding(2, packing="dense"), 10, [[0, 0], [242, 243]], "byte 243 at row 1, byte 1 is above 242"),
        (Coding(2, packing="dense"), 4, [[81], [80]], "the padding of row 1 is not"),
        (Coding(3), 3, [[0b11_000_000, 0b0110110_1]], "index 7 at row 0, column 2, is above 6"),
        (Coding(3), 1, [[0b11_011_000], [0b10_011_000]], "the padding of row 1 is not"),
        (Coding(4), 2, [[0xE0], [0xF0]], "index 15 at row 1, column 1, is above 14"),
        (Coding(4), 1, [[0x80]], "the padding of row 0 is not"),
        (Coding(8), 2, [[0, 0], [0, 128]], "code -128 at row 1, column 1 is outside -127..127"),
    ],
)
def test_bytes_that_packing_never_makes_are_faults(coding, columns, stored, reason):
    assert reason in (fault(np.array(stored, np.uint8).view(coding.dtype), columns, coding) or "no fault")


@pytest.mark.parametrize(
    "wrong",
    [(5,), (1,), ("2",), (2, "log"), (8, "log"), (3, "cubic"), (3, "linear", "dense"), (2, "linear", "zip")],
)
def test_codings_that_do_not_exist_cannot_be_made(wrong):
    with pytest.raises(PackedTensorError, match="must be"):
        Coding(*wrong)
