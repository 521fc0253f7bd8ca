"""What is in a packed model, and how small it is: numbers for tables, JSON and reports.

`inspect_model` measures a packed model, optionally against the float weights it was made from. `estimate` predicts the
size of a plain Hugging Face model after packing, from names and shapes alone.

Quantization error takes several numbers, because one hides things: the relative L2 error |w_hat - w| / |w| depends on
the scale, the cosine of w_hat and w does not, and the share of zeros shows a bad threshold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite, prod, sqrt
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ternarybert.errors import PackedTensorError
from ternarybert.families import FAMILIES, Shapes, is_quantized, is_word_embedding
from ternarybert.packed.codec import Coding
from ternarybert.packed.folder import reading
from ternarybert.packed.hf_folder import gather
from ternarybert.packed.manifest import Float, parse_bits
from ternarybert.packed.model import PackedModel
from ternarybert.packed.tensor import PackedTensor
from ternarybert.packed.weights_file import read_shapes

_FLOAT32 = 4  # bytes
_BLOCK = 1 << 20  # elements compared together, in float64


@dataclass(frozen=True)
class TensorStats:
    """Numbers of one tensor; None where they do not apply or were not measured."""

    name: str
    shape: tuple[int, ...]
    bits: int  # 2, 3, 4, 8, or 16 and 32 for plain floats
    bytes: int  # codes and scales
    granularity: str | None = None
    levels: str | None = None
    packing: str | None = None
    zeros: float | None = None  # share of weights that are 0
    scale_min: float | None = None
    scale_max: float | None = None
    relative_error: float | None = None
    cosine: float | None = None


@dataclass(frozen=True)
class Inspection:
    """Numbers of all tensors of a model, and their sums."""

    bits: str
    tensors: tuple[TensorStats, ...]

    @property
    def bytes(self) -> int:
        """Bytes of all tensors; the file also has a header of some kilobytes."""
        return sum(tensor.bytes for tensor in self.tensors)

    @property
    def float32_bytes(self) -> int:
        """Bytes of the same tensors in float32."""
        return sum(prod(tensor.shape) * _FLOAT32 for tensor in self.tensors)

    @property
    def mb(self) -> float:
        """Megabytes, of 1000 * 1000 bytes."""
        return self.bytes / 1e6

    @property
    def mib(self) -> float:
        """Mebibytes, of 1024 * 1024 bytes: what the paper calls MB."""
        return self.bytes / 2**20

    @property
    def ratio(self) -> float:
        """How many times smaller than float32."""
        return self.float32_bytes / self.bytes

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON."""
        totals = {name: getattr(self, name) for name in ("bytes", "float32_bytes", "mb", "mib", "ratio")}
        return {"bits": self.bits, **totals, "tensors": [asdict(tensor) for tensor in self.tensors]}


def inspect_model(
    model: PackedModel, reference: Mapping[str, npt.NDArray[np.floating[Any]]] | None = None
) -> Inspection:
    """Measure every tensor and, given the float tensors it was made from, its error."""
    if reference is not None and not reference.keys() & model.tensors.keys():
        raise PackedTensorError(
            "the reference has no tensor with a name of the packed model; is it the model that was packed?"
        )
    compared = reference or {}
    return Inspection(
        model.bits,
        tuple(_measure(name, tensor, compared.get(name)) for name, tensor in sorted(model.tensors.items())),
    )


def estimate(
    shapes: Shapes, bits: str = "2-2-8", pooler: bool = True, *, packing: str = "plain", row_wise: bool = False
) -> Inspection:
    """Sizes after packing; the word embedding has a scale per row, other matrices one unless `row_wise`."""
    w, e = parse_bits(bits)
    if not any(is_quantized(name) for name in shapes):
        raise PackedTensorError(
            f"no tensor has the name of a quantized one; supported model types: {', '.join(FAMILIES)}"
        )
    stats = []
    for name, shape in sorted(shapes.items()):
        width = e if is_word_embedding(name) else w
        if is_quantized(name, pooler=pooler) and width < 32:
            coding = Coding(width, packing=packing if width == 2 else "plain")
            per_row = is_word_embedding(name) or row_wise
            if len(shape) != 2 or 0 in shape:
                raise PackedTensorError(
                    f"tensor '{name}' is {shape}; only a matrix with rows and columns can be packed"
                )
            size = shape[0] * coding.row_bytes(shape[1]) + (shape[0] if per_row else 1) * _FLOAT32
            granularity = "row" if per_row else "layer"
            stats.append(TensorStats(name, shape, width, size, granularity, coding.levels, coding.packing))
        else:
            stats.append(TensorStats(name, shape, 32, prod(shape) * _FLOAT32))
    return Inspection(bits, tuple(stats))


def folder_shapes(folder: str | Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a plain Hugging Face folder, from its safetensors headers; no weights are loaded."""
    with reading(folder):
        return gather(Path(folder), read_shapes)


def _measure(name: str, tensor: PackedTensor | Float, reference: npt.NDArray[np.floating[Any]] | None) -> TensorStats:
    if reference is not None and reference.shape != tensor.shape:
        raise PackedTensorError(f"tensor '{name}' is {tensor.shape}, but {reference.shape} in the reference")
    if not isinstance(tensor, PackedTensor):
        error, cosine = (None, None) if reference is None else _compare(name, tensor, reference)
        return TensorStats(name, tensor.shape, tensor.itemsize * 8, tensor.nbytes, relative_error=error, cosine=cosine)
    error, cosine = (None, None) if reference is None else _compare(name, tensor.dequantize(), reference)
    return TensorStats(
        name,
        tensor.shape,
        tensor.bits,
        tensor.nbytes,
        tensor.granularity,
        tensor.levels,
        tensor.packing,
        zeros=1 - np.count_nonzero(tensor.unpack()) / prod(tensor.shape),
        scale_min=float(tensor.scale.min()),
        scale_max=float(tensor.scale.max()),
        relative_error=error,
        cosine=cosine,
    )


def _compare(
    name: str, w_hat: npt.NDArray[np.floating[Any]], w: npt.NDArray[np.floating[Any]]
) -> tuple[float | None, float | None]:
    """Relative L2 error and cosine; None where a zero norm leaves them undefined."""
    difference = dot = norm_hat = norm = 0.0
    ours, theirs = w_hat.reshape(-1), w.reshape(-1)
    for start in range(0, theirs.size, _BLOCK):
        a = ours[start : start + _BLOCK].astype(np.float64)
        b = theirs[start : start + _BLOCK].astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            dot += float(a @ b)
            norm_hat += float(a @ a)
            norm += float(b @ b)
            difference += float((a - b) @ (a - b))
    if not isfinite(norm):
        raise PackedTensorError(
            f"tensor '{name}' of the reference contains NaN, infinity or values too large to compare"
        )
    relative = sqrt(difference / norm) if norm else None
    return relative, dot / (sqrt(norm_hat) * sqrt(norm)) if norm_hat and norm else None  # the product may underflow
