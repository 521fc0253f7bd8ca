"""One quantized matrix: w_hat = scale * codes, with the codes as they lie in the file.

Every `PackedTensor` is valid: its constructor checks every byte and every scale. It keeps the packed bytes, often a
view of the mapped file; `unpack` and `dequantize` make new arrays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ternarybert.errors import PackedTensorError
from ternarybert.packed.codec import Codes, Coding, Packed, fault, pack, unpack

Scale = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)  # arrays have no single truth value, so == would raise
class PackedTensor:
    """A matrix of low-bit codes and its scale: one for the layer, or one per row."""

    bits: int
    levels: str
    packing: str
    shape: tuple[int, int]
    codes: Packed  # (rows, row_bytes)
    scale: Scale  # (1,) or (rows,)

    def __post_init__(self) -> None:
        if len(self.shape) != 2 or min(self.shape) < 1:
            raise PackedTensorError(f"the shape is {self.shape}; it must be a matrix with at least one row and column")
        _expect("the codes are", self.codes, self.coding.dtype, [(self.shape[0], self.coding.row_bytes(self.shape[1]))])
        _expect("the scale is", self.scale, np.dtype(np.float32), [(1,), (self.shape[0],)])
        wrong = ~(np.isfinite(self.scale) & (self.scale >= 0))
        if wrong.any():
            row = int(wrong.argmax())
            raise PackedTensorError(f"scale {row} is {self.scale[row]}; it must be finite and not negative")
        if reason := fault(self.codes, self.shape[1], self.coding):
            raise PackedTensorError(reason)

    @classmethod
    def pack(
        cls,
        codes: Codes,
        scale: npt.ArrayLike,
        *,
        bits: int,
        levels: str = "linear",
        packing: str = "plain",
    ) -> PackedTensor:
        """Pack int8 codes; the scale is one number or one per row, stored as float32."""
        packed = pack(codes, Coding(bits, levels, packing))
        scales = np.ascontiguousarray(scale, np.float32).reshape(-1)
        return cls(bits, levels, packing, (codes.shape[0], codes.shape[1]), packed, scales)

    @property
    def coding(self) -> Coding:
        """How the codes are written."""
        return Coding(self.bits, self.levels, self.packing)

    @property
    def granularity(self) -> str:
        """`layer` if there is one scale, `row` if there is one per row."""
        return "layer" if self.scale.size == 1 else "row"

    @property
    def nbytes(self) -> int:
        """Bytes in the file, scales included."""
        return int(self.codes.nbytes + self.scale.nbytes)

    def unpack(self) -> Codes:
        """The int8 codes; with log levels these are the levels, not their indices."""
        return unpack(self.codes, self.shape[1], self.coding)

    def dequantize(self) -> npt.NDArray[np.float32]:
        """The float32 weights: one float32 multiplication each, as in the student."""
        weights = self.unpack().astype(np.float32)  # three times faster than a multiplication that converts
        weights *= self.scale[:, None]
        return weights


def as_float32(name: str, values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """The same values in float32; float64 values that need rounding are refused, as the result was never evaluated."""
    with np.errstate(over="ignore"):
        narrow: npt.NDArray[np.float32] = values.astype(np.float32, copy=False)
    if values.dtype == np.float64 and not np.array_equal(narrow, values, equal_nan=True):
        raise PackedTensorError(
            f"tensor '{name}' is float64 and cannot be stored exactly as float32; convert the model to float32 and "
            "evaluate it again"
        )
    return narrow


def _expect(
    what: str, array: npt.NDArray[np.generic], dtype: np.dtype[np.generic], shapes: list[tuple[int, ...]]
) -> None:
    if array.dtype != dtype or array.shape not in shapes:
        allowed = " or ".join(str(shape) for shape in dict.fromkeys(shapes))
        raise PackedTensorError(f"{what} {array.dtype} of shape {array.shape}; expected {dtype} of {allowed}")
