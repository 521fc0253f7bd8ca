"""Small indices to bytes and back: the arithmetic under `codec`, which says what the indices mean.

Eight indices of m bits are exactly m bytes. One 64-bit word therefore carries eight of them, and three halving steps
lead from one index a byte to 8m bits without a gap (`squeeze`) and back (`spread`). No tables, no loop over codes:

    bytes      0000000d 0000000c 0000000b 0000000a      m = 1 for the picture, four of the eight
    step 1     00000000 000000dc 00000000 000000ba
    step 2     00000000 00000000 00000000 0000dcba

Base 3 has no such trick; its five digits a byte are joined by multiplication and split by a table.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

PER_WORD = 8  # indices carried by one word
DIGITS = 5  # 3^5 = 243 is the largest power of 3 that fits a byte
DENSE_LIMIT = 3**DIGITS - 1

_WORD = np.dtype("<u8")  # a word's first byte holds its lowest bits on every machine


def indices_to_bytes(indices: Bytes, bits: int) -> Bytes:
    """Write rows of indices, a multiple of eight each, as streams of m-bit fields, lowest bits first."""
    words = squeeze(indices.view(_WORD), bits)
    rows, count = words.shape
    wide = words.view(np.uint8).reshape(rows, count, PER_WORD)
    narrow = np.empty((rows, count, bits), np.uint8)
    for byte in range(bits):  # long strided copies; one copy of many tiny runs is several times slower
        narrow[:, :, byte] = wide[:, :, byte]
    return narrow.reshape(rows, count * bits)


def bytes_to_indices(stored: Bytes, bits: int) -> Bytes:
    """Go the way back; a row that ends within eight indices yields zeros for what it lacks."""
    return spread(_to_words(stored, bits), bits).view(np.uint8)


def squeeze(words: Words, bits: int) -> Words:
    """Turn one index a byte into eight indices in the lowest 8m bits, in place; each step joins neighbours."""
    moved = np.empty_like(words)
    for width in (8, 16, 32):
        used = width * bits // 8
        np.right_shift(words, np.uint64(width - used), out=moved)
        np.bitwise_or(words, moved, out=words)
        np.bitwise_and(words, np.uint64(_mask(2 * width, 2 * used)), out=words)
    return words


def spread(words: Words, bits: int) -> Words:
    """Undo `squeeze`, in place: each step parts a field into two."""
    moved = np.empty_like(words)
    for width in (32, 16, 8):
        used = width * bits // 8
        np.left_shift(words, np.uint64(width - used), out=moved)
        np.bitwise_or(words, moved, out=words)
        np.bitwise_and(words, np.uint64(_mask(width, used)), out=words)
    return words


def has_all_ones(stored: Bytes, bits: int) -> bool:
    """Tell whether any m-bit field is all ones, without taking the fields apart."""
    # Fields of 2 and 4 bits do not cross bytes, so the bytes themselves can be looked at.
    grains: npt.NDArray[np.unsignedinteger] = _to_words(stored, bits) if bits == 3 else stored
    unsigned = grains.dtype.type
    ones = grains & unsigned(_mask(bits, 1, grains.itemsize * 8))
    for shift in range(1, bits):
        ones &= grains >> unsigned(shift)
    return bool(ones.any())


def join_digits(indices: Bytes) -> Bytes:
    """Write rows of base-3 digits, a multiple of five each, five to a byte, lowest digit first."""
    digits = indices.reshape(indices.shape[0], -1, DIGITS)
    number: Bytes = digits[:, :, DIGITS - 1].copy()
    for place in reversed(range(DIGITS - 1)):
        number *= np.uint8(3)
        number += digits[:, :, place]
    return number


def split_digits(stored: Bytes) -> Bytes:
    """Undo `join_digits`."""
    table = np.stack([np.arange(256) // 3**place % 3 for place in range(DIGITS)], axis=1).astype(np.uint8)
    digits: Bytes = table.take(stored, axis=0, mode="clip")
    return digits.reshape(stored.shape[0], -1)


def _mask(width: int, used: int, total: int = 64) -> int:
    """Keep the lowest `used` bits of every field of `width` bits."""
    return sum(((1 << used) - 1) << start for start in range(0, total, width)) & ((1 << total) - 1)


def _to_words(stored: Bytes, bits: int) -> Words:
    """Make every m bytes of a row the lowest bytes of a word."""
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
