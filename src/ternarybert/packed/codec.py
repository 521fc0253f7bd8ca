"""Codes to bytes and back, for matrices of small integers.

A weight is a code times a scale. The codes of m bits are symmetric: with k = 2^(m-1) - 1 there are 2k + 1 of them, and
the file stores each as its index, 0 for the lowest and k for zero.

- linear levels: -k .. k                        (2 bits: -1 0 1, the ternary weights)
- log levels:    0, ±1, ±2, ±4, .. ±2^(k-1)     (3 and 4 bits)

There are three ways from indices to bytes, each row on its own so that a row can be found without reading the others:

- plain, 2 to 4 bits: the row is one stream of bits, lowest first; index j takes bits m*j .. m*j + m-1.
- dense, 2 bits only: five indices are the digits of one base-3 number, lowest first, 0 .. 242.
- 8 bits: the codes as they are, int8.

A row ends with a whole byte, and the rest of that byte is filled with the index of zero, truncated at the byte's end.
So a kernel may read whole bytes, and every writer produces the same file.

The arithmetic: eight indices of m bits are exactly m bytes. One 64-bit word therefore carries eight of them, and three
halving steps lead from one index per byte to 8m bits without a gap (`squeeze`) and back (`spread`), without tables and
without a loop over codes:

    bytes      0000000d 0000000c 0000000b 0000000a      m = 1 for the picture, four of the eight
    step 1     00000000 000000dc 00000000 000000ba
    step 2     00000000 00000000 00000000 0000dcba

Base-3 digits are joined by multiplication and split by a table. All work goes block by block, so that the temporaries
stay small and in the cache, whatever the tensor's size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from reprlib import repr as show  # values from a file can be arbitrarily long; messages must not be

import numpy as np
import numpy.typing as npt

from ternarybert.errors import PackedTensorError

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Codes = npt.NDArray[np.int8]  # (rows, columns): the integer part of the weights
Packed = npt.NDArray[np.uint8] | npt.NDArray[np.int8]  # (rows, row_bytes); int8 for 8 bits

BITS = (2, 3, 4, 8)
PER_WORD = 8  # indices carried by one word
DIGITS = 5  # 3^5 = 243 is the largest power of 3 that fits a byte
DENSE_LIMIT = 3**DIGITS - 1

_BLOCK = 1 << 17  # codes processed at once
_WORD = np.dtype("<u8")  # a word's first byte holds its lowest bits on every machine


@dataclass(frozen=True)
class Coding:
    """How a matrix of codes is written; only valid combinations can be constructed."""

    bits: int
    levels: str = "linear"
    packing: str = "plain"

    def __post_init__(self) -> None:
        if not isinstance(self.bits, int) or self.bits not in BITS:  # 2.0 is in BITS too
            raise PackedTensorError(f"bits is {show(self.bits)}; it must be one of {BITS}")
        if self.levels != "linear" and not (self.levels == "log" and self.bits in (3, 4)):
            raise PackedTensorError(f"levels is {show(self.levels)}; it must be 'linear', or 'log' at 3 or 4 bits")
        if self.packing != "plain" and not (self.packing == "dense" and self.bits == 2):
            raise PackedTensorError(f"packing is {show(self.packing)}; it must be 'plain', or 'dense' at 2 bits")

    @property
    def zero(self) -> int:
        """k: the index of code 0, and the highest linear code."""
        return int(2 ** (self.bits - 1)) - 1

    @property
    def alphabet(self) -> Codes:
        """The codes in the order of their indices."""
        if self.levels == "linear":
            return np.arange(-self.zero, self.zero + 1, dtype=np.int8)
        powers = 2 ** np.arange(self.zero)
        return np.concatenate([-powers[::-1], [0], powers]).astype(np.int8)

    @property
    def dtype(self) -> np.dtype[np.uint8] | np.dtype[np.int8]:
        """The dtype of the packed array."""
        return np.dtype(np.int8) if self.bits == 8 else np.dtype(np.uint8)

    def row_bytes(self, columns: int) -> int:
        """The bytes of a row with that many codes."""
        return -(-columns // DIGITS) if self.packing == "dense" else -(-columns * self.bits // 8)


def pack(codes: Codes, coding: Coding) -> Packed:
    """Pack a matrix of codes: (rows, columns) -> (rows, row_bytes)."""
    if codes.dtype != np.int8 or codes.ndim != 2:
        raise PackedTensorError(f"the codes are {codes.dtype} of shape {codes.shape}; they must be a matrix of int8")
    if coding.bits == 8:
        if reason := _eight_bit_fault(codes):
            raise PackedTensorError(reason)
        return np.ascontiguousarray(codes)
    rows, columns = codes.shape
    packed = np.empty((rows, coding.row_bytes(columns)), np.uint8)
    for block in _blocks(rows, columns):
        indices = _padded_indices(codes[block], coding, block.start)
        dense = coding.packing == "dense"
        stored = join_digits(indices) if dense else indices_to_bytes(indices, coding.bits)
        packed[block] = stored[:, : packed.shape[1]]
    return packed


def unpack(packed: Packed, columns: int, coding: Coding) -> Codes:
    """Undo `pack`. The bytes are trusted: `fault` checks them."""
    if coding.bits == 8:
        return packed.view(np.int8)
    codes = np.empty((packed.shape[0], columns), np.int8)
    for block in _blocks(*codes.shape):
        indices = _stored_indices(packed[block].view(np.uint8), coding)[:, :columns]
        if coding.levels == "linear":
            np.subtract(indices.view(np.int8), np.int8(coding.zero), out=codes[block])
        else:
            codes[block] = coding.alphabet.take(indices, mode="clip")
    return codes


def fault(packed: Packed, columns: int, coding: Coding) -> str | None:
    """Why `pack` cannot have made these bytes, and where; None if it can."""
    if coding.bits == 8:
        return _eight_bit_fault(packed.view(np.int8))
    stored = packed.view(np.uint8)
    for block in _blocks(stored.shape[0], columns):
        if reason := _index_fault(stored[block], columns, coding, block.start):
            return reason
    wrong = _wrong_padding(stored[:, -1], columns, coding)
    return f"the padding of row {int(wrong.argmax())} is not the code of zero" if wrong.any() else None


def indices_to_bytes(indices: Bytes, bits: int) -> Bytes:
    """Rows of indices, a multiple of eight each, as streams of m-bit fields, lowest bits first."""
    words = squeeze(indices.view(_WORD), bits)
    rows, count = words.shape
    wide = words.view(np.uint8).reshape(rows, count, PER_WORD)
    narrow = np.empty((rows, count, bits), np.uint8)
    for byte in range(bits):  # long strided copies; one copy of many tiny runs is several times slower
        narrow[:, :, byte] = wide[:, :, byte]
    return narrow.reshape(rows, count * bits)


def bytes_to_indices(stored: Bytes, bits: int) -> Bytes:
    """Undo `indices_to_bytes`; a row that ends within eight indices gives zeros for the missing ones."""
    return spread(_to_words(stored, bits), bits).view(np.uint8)


def squeeze(words: Words, bits: int) -> Words:
    """Turn one index a byte into eight indices in the lowest 8m bits, in place; each step joins neighbors."""
    moved = np.empty_like(words)
    for width in (8, 16, 32):
        used = width * bits // 8
        np.right_shift(words, np.uint64(width - used), out=moved)
        np.bitwise_or(words, moved, out=words)
        np.bitwise_and(words, np.uint64(_mask(2 * width, 2 * used)), out=words)
    return words


def spread(words: Words, bits: int) -> Words:
    """Undo `squeeze`, in place: each step splits a field into two."""
    moved = np.empty_like(words)
    for width in (32, 16, 8):
        used = width * bits // 8
        np.left_shift(words, np.uint64(width - used), out=moved)
        np.bitwise_or(words, moved, out=words)
        np.bitwise_and(words, np.uint64(_mask(width, used)), out=words)
    return words


def has_all_ones(stored: Bytes, bits: int) -> bool:
    """Whether any m-bit field is all ones, without splitting the fields."""
    # Fields of 2 and 4 bits do not cross byte boundaries, so the bytes themselves can be tested.
    grains: npt.NDArray[np.unsignedinteger] = _to_words(stored, bits) if bits == 3 else stored
    unsigned = grains.dtype.type
    ones = grains & unsigned(_mask(bits, 1, grains.itemsize * 8))
    for shift in range(1, bits):
        ones &= grains >> unsigned(shift)
    return bool(ones.any())


def join_digits(indices: Bytes) -> Bytes:
    """Rows of base-3 digits, a multiple of five each, five to a byte, lowest digit first."""
    digits = indices.reshape(indices.shape[0], -1, DIGITS)
    number: Bytes = digits[:, :, DIGITS - 1].copy()
    for digit in reversed(range(DIGITS - 1)):
        number *= np.uint8(3)
        number += digits[:, :, digit]
    return number


def split_digits(stored: Bytes) -> Bytes:
    """Undo `join_digits`."""
    table = np.stack([np.arange(256) // 3**digit % 3 for digit in range(DIGITS)], axis=1).astype(np.uint8)
    digits: Bytes = table.take(stored, axis=0, mode="clip")
    return digits.reshape(stored.shape[0], -1)


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    """Slices of rows with about `_BLOCK` codes each."""
    step = max(1, _BLOCK // (columns + PER_WORD))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def _padded_indices(codes: Codes, coding: Coding, first_row: int) -> Bytes:
    """The indices of a block's codes; each row is padded with the index of zero."""
    rows, columns = codes.shape
    unit = DIGITS if coding.packing == "dense" else PER_WORD
    indices = np.full((rows, -(-columns // unit) * unit), coding.zero, np.uint8)
    if coding.levels == "linear":
        # Negative results wrap around to above 2k, so that one comparison finds codes on either side.
        np.add(codes.view(np.uint8), np.uint8(coding.zero), out=indices[:, :columns])
    else:
        index_of = np.full(256, 255, np.uint8)
        index_of[coding.alphabet.view(np.uint8)] = np.arange(2 * coding.zero + 1)
        indices[:, :columns] = index_of[codes.view(np.uint8)]
    if int(indices.max(initial=0)) > 2 * coding.zero:
        row, column = _first(indices > 2 * coding.zero)
        allowed = ", ".join(str(code) for code in coding.alphabet)
        raise PackedTensorError(
            f"code {codes[row, column]} at row {row + first_row}, column {column} is not one of {allowed}"
        )
    return indices


def _stored_indices(stored: Bytes, coding: Coding) -> Bytes:
    """The indices of a block of packed rows, padding included."""
    return split_digits(stored) if coding.packing == "dense" else bytes_to_indices(stored, coding.bits)


def _index_fault(stored: Bytes, columns: int, coding: Coding, first_row: int) -> str | None:
    """Where an index is above 2k; with m bits the only such index is all ones."""
    if coding.packing == "dense":
        if int(stored.max(initial=0)) <= DENSE_LIMIT:
            return None
        row, byte = _first(stored > DENSE_LIMIT)
        return f"byte {stored[row, byte]} at row {row + first_row}, byte {byte} is above {DENSE_LIMIT}"
    if not has_all_ones(stored, coding.bits):
        return None
    indices = _stored_indices(stored, coding)
    row, column = _first(indices > 2 * coding.zero)
    where = f"column {column}" if column < columns else "in the padding"
    return f"index {indices[row, column]} at row {row + first_row}, {where}, is above {2 * coding.zero}"


def _wrong_padding(last: Bytes, columns: int, coding: Coding) -> npt.NDArray[np.bool_]:
    """Which rows have a last byte with other padding than `pack` writes."""
    if coding.packing == "dense":
        used = columns % DIGITS or DIGITS
        rest, filler = last // 3**used, (3 ** (DIGITS - used) - 1) // 2  # every unused digit is 1
    else:
        free = -columns * coding.bits % 8
        stream = sum(coding.zero << start for start in range(0, 8, coding.bits))
        rest, filler = last.astype(np.uint16) >> (8 - free), stream & ((1 << free) - 1)
    wrong: npt.NDArray[np.bool_] = rest != filler
    return wrong


def _eight_bit_fault(codes: Codes) -> str | None:
    if int(codes.min(initial=0)) > -128:
        return None
    row, column = _first(codes == -128)
    return f"code -128 at row {row}, column {column} is outside -127..127"


def _first(bad: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """Row and column of the first True."""
    row, column = np.unravel_index(int(bad.argmax()), bad.shape)
    return int(row), int(column)


def _mask(width: int, used: int, total: int = 64) -> int:
    """A mask of the lowest `used` bits of every field of `width` bits."""
    return sum(((1 << used) - 1) << start for start in range(0, total, width)) & ((1 << total) - 1)


def _to_words(stored: Bytes, bits: int) -> Words:
    """Every m bytes of a row as the lowest bytes of a word."""
    rows, length = stored.shape
    count = -(-length // bits)
    if length != count * bits:
        filled = np.zeros((rows, count * bits), np.uint8)
        filled[:, :length] = stored
        stored = filled
    narrow = stored.reshape(rows, count, bits)
    wide = np.zeros((rows, count, PER_WORD), np.uint8)
    for byte in range(bits):
        wide[:, :, byte] = narrow[:, :, byte]
    return wide.reshape(rows, count * PER_WORD).view(_WORD)
