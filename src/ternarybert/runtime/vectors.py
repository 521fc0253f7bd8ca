"""Vectors of texts: compared, and stored in fewer bits.

Names and arithmetic are those of sentence-transformers (`quantize_embeddings`, `similarity`), so that vectors from
either library can be mixed:

| precision | of each dimension                                                                | bytes of 384 |
|-----------|----------------------------------------------------------------------------------|--------------|
| float32   | the number                                                                       | 1536         |
| int8      | floor((x - start) / step) - 128, with 255 steps between the ends of its range    | 384          |
| uint8     | the same without the 128                                                         | 384          |
| binary    | whether it is above 0, eight to a byte, minus 128                                | 48           |
| ubinary   | the same without the 128                                                         | 48           |

The 8-bit kinds need the range of every dimension, an array (2, dimensions) of starts and ends. All vectors that are
compared must have the same ones: take them once from a sample of your texts with `calibration_ranges`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ternarybert.errors import InputError, suggest
from ternarybert.packed.embedder_modules import SIMILARITIES, unit_length

Array: TypeAlias = NDArray[Any]

PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")
_STEPS = 255


def calibration_ranges(vectors: Array) -> NDArray[np.float32]:
    """The smallest and the largest value of every dimension, (2, dimensions)."""
    if vectors.ndim != 2 or len(vectors) < 2:
        raise InputError(f"ranges need at least two vectors; got an array of shape {vectors.shape}")
    return np.stack([vectors.min(0), vectors.max(0)]).astype(np.float32)


def quantize_vectors(vectors: Array, precision: str, ranges: Array | None = None) -> Array:
    """Vectors, one a row, in another precision; without `ranges` the 8-bit kinds take those of the vectors."""
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision '{precision}'{suggest(precision, PRECISIONS)}")
    if precision == "float32":
        return vectors.astype(np.float32, copy=False)
    if precision.endswith("binary"):
        bits = np.packbits(vectors > 0, axis=-1)
        return bits if precision == "ubinary" else np.asarray((bits - np.uint8(128)).view(np.int8))
    if not len(vectors):
        return np.empty(vectors.shape, precision)
    starts, ends = _checked(calibration_ranges(vectors) if ranges is None else ranges, vectors.shape[1])
    steps = (ends - starts) / _STEPS
    codes = np.clip(np.floor((vectors - starts) / np.where(steps == 0, 1, steps)), 0, _STEPS)
    return np.asarray(codes.astype(np.uint8) if precision == "uint8" else (codes - 128).astype(np.int8))


def similarities(a: Array, b: Array, name: str = "cosine") -> NDArray[np.float32]:
    """How similar each vector of `a` is to each of `b`, (rows of a, rows of b); distances count as negative."""
    if name not in SIMILARITIES:
        raise InputError(f"unknown similarity '{name}'{suggest(name, SIMILARITIES)}")
    first, second = (np.atleast_2d(np.asarray(each, np.float32)) for each in (a, b))
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1]:
        raise InputError(f"vectors of shape {np.shape(a)} and {np.shape(b)} cannot be compared")
    if name == "cosine":
        return np.asarray(unit_length(first) @ unit_length(second).T)
    if name == "dot":
        return np.asarray(first @ second.T)
    distance = [
        np.abs(second - row).sum(-1) if name == "manhattan" else np.linalg.norm(second - row, axis=-1) for row in first
    ]
    return -np.stack(distance)


def _checked(ranges: Array, width: int) -> Array:
    given = np.asarray(ranges, np.float32)
    if given.shape != (2, width):
        raise InputError(f"ranges have shape {given.shape}; these vectors need (2, {width})")
    return given
