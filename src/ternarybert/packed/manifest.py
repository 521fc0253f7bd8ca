"""`quantization_config` in config.json: what the folder says about itself.

    quant_method    "ternarybert"; transformers picks the plug-in by it
    format_version  1
    bits            "2-2-8": weights, word embedding, activations (32: not quantized)
    sha256          of model.safetensors
    recipe          how the model was made, as the trainer wrote it
    tensors         every tensor: packed {bits, granularity, levels, packing, shape}, or plain {dtype, shape}

The list of tensors is complete, so a file that lacks one or has one too many is noticed before anything is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from reprlib import repr as show  # what others wrote may be endless; messages are not
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ternarybert.errors import FormatVersionError, NotPackedError, PackedConfigError, PackedTensorError
from ternarybert.families import is_word_embedding
from ternarybert.packed.codec import Coding
from ternarybert.packed.tensor import PackedTensor
from ternarybert.packed.weights_file import Array, is_name

Float = npt.NDArray[np.float32] | npt.NDArray[np.float16]
Tensors = Mapping[str, PackedTensor | Float]
Layout = dict[str, tuple[np.dtype[Any], tuple[int, ...]]]  # arrays in the file

T = TypeVar("T")

QUANT_METHOD = "ternarybert"
FORMAT_VERSION = 1
FLOATS = ("float32", "float16")
_BITS = re.compile(r"(2|3|4|8|32)-(2|3|4|8|32)-([2-9]|1[0-6]|32)")
_PACKED_KEYS = {"bits", "granularity", "levels", "packing", "shape"}
_PLAIN_KEYS = {"dtype", "shape"}


@dataclass(frozen=True)
class PackedSpec:
    """A packed tensor as announced: `name.codes` and `name.scale` in the file."""

    coding: Coding
    shape: tuple[int, int]
    granularity: str

    def layout(self, name: str) -> Layout:
        """List the arrays that the file must hold for it."""
        rows, columns = self.shape
        return {
            f"{name}.codes": (self.coding.dtype, (rows, self.coding.row_bytes(columns))),
            f"{name}.scale": (np.dtype(np.float32), (1 if self.granularity == "layer" else rows,)),
        }


@dataclass(frozen=True)
class PlainSpec:
    """A tensor that stays float, as announced: under its own name in the file."""

    dtype: str
    shape: tuple[int, ...]

    def layout(self, name: str) -> Layout:
        """List the array that the file must hold for it."""
        return {name: (np.dtype(self.dtype), self.shape)}


@dataclass(frozen=True)
class Manifest:
    """The checked content of a `quantization_config`."""

    bits: str
    recipe: dict[str, Any]
    sha256: str | None  # absent when another program rewrote the weights; then nothing is compared
    tensors: dict[str, PackedSpec | PlainSpec]

    def layout(self) -> Layout:
        """List every array of the file."""
        return _merge(spec.layout(name) for name, spec in self.tensors.items())


def describe(tensors: Tensors) -> dict[str, Any]:
    """Write the list of tensors."""
    return {name: _describe_one(tensor) for name, tensor in tensors.items()}


def arrays(tensors: Tensors) -> dict[str, Array]:
    """List every array to be written, under the name it has in the file."""
    return _merge(
        {f"{name}.codes": tensor.codes, f"{name}.scale": tensor.scale}
        if isinstance(tensor, PackedTensor)
        else {name: tensor}
        for name, tensor in tensors.items()
    )


def parse(config: Mapping[str, Any]) -> Manifest:
    """Check a config.json's `quantization_config` and read it."""
    section = config.get("quantization_config")
    if not isinstance(section, dict) or section.get("quant_method") != QUANT_METHOD:
        raise NotPackedError(
            f"not packed: config.json has no quantization_config with quant_method '{QUANT_METHOD}'; "
            "`ternarybert ternarize` makes a packed folder of a fine-tuned model"
        )
    _check_version(section.get("format_version"))
    bits, recipe, digest = section.get("bits"), section.get("recipe"), section.get("sha256")
    if not isinstance(bits, str):
        raise PackedConfigError(f"bits in quantization_config is {show(bits)}; expected something like '2-2-8'")
    if not isinstance(recipe, dict):
        raise PackedConfigError("recipe in quantization_config is not an object")
    if digest is not None and not (isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest)):
        raise PackedConfigError("sha256 in quantization_config is not 64 hexadecimal digits")
    entries = section.get("tensors")
    if not isinstance(entries, dict):
        raise PackedConfigError("tensors in quantization_config is not an object")
    return Manifest(bits, recipe, digest, {name: _parse_one(name, entry) for name, entry in entries.items()})


def parse_bits(bits: str) -> tuple[int, int]:
    """Read W and E of a W-E-A label such as 2-2-8."""
    match = _BITS.fullmatch(bits)
    if not match:
        raise PackedConfigError(f"bits is {show(bits)}; expected W-E-A such as '2-2-8', W and E of 2, 3, 4, 8 or 32")
    return int(match[1]), int(match[2])


def check_bits(bits: str, tensors: Tensors) -> None:
    """Refuse a label such as 2-2-8 that the tensors belie."""
    w, e = parse_bits(bits)
    for embedding, announced in ((False, w), (True, e)):
        packed = {
            name: tensor.bits
            for name, tensor in tensors.items()
            if isinstance(tensor, PackedTensor) and is_word_embedding(name) == embedding
        }
        if announced != 32 and not packed:
            raise PackedConfigError(f"bits is {bits}, but no {'word embedding' if embedding else 'weight'} is packed")
        for name, seen in packed.items():
            if seen != announced:
                raise PackedConfigError(f"bits is {bits}, but tensor '{name}' has {seen}")


def _merge(parts: Iterable[Mapping[str, T]]) -> dict[str, T]:
    merged: dict[str, T] = {}
    for part in parts:
        if taken := part.keys() & merged.keys():
            raise PackedTensorError(f"two tensors would be stored as '{min(taken)}'")
        merged.update(part)
    return merged


def _check_version(version: object) -> None:
    if type(version) is not int:
        raise PackedConfigError(f"format_version in quantization_config is {show(version)}; it must be an integer")
    if version > FORMAT_VERSION:
        raise FormatVersionError(
            f"written in format version {version}, newer than {FORMAT_VERSION}: update ternarybert to read it"
        )
    if version < FORMAT_VERSION:
        raise FormatVersionError(
            f"written in format version {version}, older than {FORMAT_VERSION}: pack the model again with this version"
        )


def _describe_one(tensor: PackedTensor | Float) -> dict[str, Any]:
    if not isinstance(tensor, PackedTensor):
        return {"dtype": str(tensor.dtype), "shape": list(tensor.shape)}
    return {
        "bits": tensor.bits,
        "granularity": tensor.granularity,
        "levels": tensor.levels,
        "packing": tensor.packing,
        "shape": list(tensor.shape),
    }


def _parse_one(name: str, entry: object) -> PackedSpec | PlainSpec:
    if not is_name(name):
        raise PackedConfigError(f"{show(name)} in quantization_config is not a tensor name")
    if not isinstance(entry, dict) or entry.keys() not in (_PACKED_KEYS, _PLAIN_KEYS):
        raise PackedConfigError(
            f"tensor '{name}' in quantization_config must have the keys {sorted(_PACKED_KEYS)} or dtype, shape"
        )
    shape = entry["shape"]
    if not isinstance(shape, list) or not all(type(n) is int and 0 < n < 1 << 40 for n in shape):
        raise PackedConfigError(f"tensor '{name}': its shape in quantization_config must be positive integers")
    if "dtype" in entry:
        if entry["dtype"] not in FLOATS:
            raise PackedConfigError(
                f"tensor '{name}': dtype {show(entry['dtype'])} in quantization_config; allowed: {FLOATS}"
            )
        return PlainSpec(entry["dtype"], tuple(shape))
    if len(shape) != 2 or entry["granularity"] not in ("layer", "row"):
        raise PackedConfigError(f"tensor '{name}' in quantization_config must be a matrix of granularity layer or row")
    try:
        coding = Coding(entry["bits"], entry["levels"], entry["packing"])
    except PackedTensorError as error:
        raise PackedConfigError(f"tensor '{name}' in quantization_config: {error}") from None
    return PackedSpec(coding, (shape[0], shape[1]), entry["granularity"])
