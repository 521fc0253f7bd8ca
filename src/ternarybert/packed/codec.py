"""Codes to bytes and back, for matrices of small integers.

A weight is a code times a scale. The codes of m bits are symmetric: with k = 2^(m-1) - 1 there are 2k + 1 of them, and
the file stores each as its index, 0 for the lowest and k for zero.

- linear levels: -k .. k                        (2 bits: -1 0 1, the ternary weights)
- log levels:    0, ±1, ±2, ±4, .. ±2^(k-1)     (3 and 4 bits)

Three ways from indices to bytes, each row on its own so that a row can be found without reading the others:

- plain, 2 to 4 bits: the row is one stream of bits, lowest first; index j takes bits m*j .. m*j + m-1.
- dense, 2 bits only: five indices are the digits of one base-3 number, lowest first, 0 .. 242.
- 8 bits: the codes as they are, int8.

A row ends with a whole byte; what is left of it is filled with the index of zero, cut at the byte's end. So a kernel
that reads whole bytes adds nothing wrong, and two writers cannot produce different files.

All work goes block by block: the temporaries stay in the cache and small, whatever the tensor's size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from reprlib import repr as show  # what others wrote may be endless; messages are not

import numpy as np
import numpy.typing as npt

from ternarybert.errors import PackedTensorError
from ternarybert.packed import bits as fields
from ternarybert.packed.bits import DENSE_LIMIT, DIGITS, PER_WORD, Bytes

Codes = npt.NDArray[np.int8]  # (rows, columns): the weights' integer part
Packed = npt.NDArray[np.uint8] | npt.NDArray[np.int8]  # (rows, row_bytes); int8 for 8 bits

BITS = (2, 3, 4, 8)
_BLOCK = 1 << 17  # codes worked on at once


@dataclass(frozen=True)
class Coding:
    """How one matrix of codes is written; only combinations that exist can be made."""

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
        """What the packed array is made of."""
        return np.dtype(np.int8) if self.bits == 8 else np.dtype(np.uint8)

    def row_bytes(self, columns: int) -> int:
        """Count the bytes that a row of so many codes takes."""
        return -(-columns // DIGITS) if self.packing == "dense" else -(-columns * self.bits // 8)


def pack(codes: Codes, coding: Coding) -> Packed:
    """Make bytes of a matrix of codes: (rows, columns) -> (rows, row_bytes)."""
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
        stored = fields.join_digits(indices) if dense else fields.indices_to_bytes(indices, coding.bits)
        packed[block] = stored[:, : packed.shape[1]]
    return packed


def unpack(packed: Packed, columns: int, coding: Coding) -> Codes:
    """Make codes of bytes again. What is stored is trusted: `fault` is the one that looks."""
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
    """Say why these bytes are none that `pack` makes, and where; None when they are."""
    if coding.bits == 8:
        return _eight_bit_fault(packed.view(np.int8))
    stored = packed.view(np.uint8)
    for block in _blocks(stored.shape[0], columns):
        if reason := _index_fault(stored[block], columns, coding, block.start):
            return reason
    wrong = _wrong_padding(stored[:, -1], columns, coding)
    return f"the padding of row {int(wrong.argmax())} is not the code of zero" if wrong.any() else None


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    """Cut the rows into slices with about `_BLOCK` codes each."""
    step = max(1, _BLOCK // (columns + PER_WORD))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def _padded_indices(codes: Codes, coding: Coding, first_row: int) -> Bytes:
    """Look up the indices of a block's codes; each row is filled up with the index of zero."""
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
    """Take a block of packed rows apart into indices, padding included."""
    return fields.split_digits(stored) if coding.packing == "dense" else fields.bytes_to_indices(stored, coding.bits)


def _index_fault(stored: Bytes, columns: int, coding: Coding, first_row: int) -> str | None:
    """Find an index above 2k; with m bits the only one is all ones."""
    if coding.packing == "dense":
        if int(stored.max(initial=0)) <= DENSE_LIMIT:
            return None
        row, byte = _first(stored > DENSE_LIMIT)
        return f"byte {stored[row, byte]} at row {row + first_row}, byte {byte} is above {DENSE_LIMIT}"
    if not fields.has_all_ones(stored, coding.bits):
        return None
    indices = _stored_indices(stored, coding)
    row, column = _first(indices > 2 * coding.zero)
    where = f"column {column}" if column < columns else "in the padding"
    return f"index {indices[row, column]} at row {row + first_row}, {where}, is above {2 * coding.zero}"


def _wrong_padding(last: Bytes, columns: int, coding: Coding) -> npt.NDArray[np.bool_]:
    """Mark the rows whose last byte does not end as `pack` ends it."""
    if coding.packing == "dense":
        used = columns % DIGITS or DIGITS
        rest, filler = last // 3**used, (3 ** (DIGITS - used) - 1) // 2  # every digit that is left over is 1
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
    """Give row and column of the first True."""
    row, column = np.unravel_index(int(bad.argmax()), bad.shape)
    return int(row), int(column)
