"""`quantization_config` in config.json: the manifest of a packed folder.

    quant_method    "ternarybert"; transformers selects the plug-in by it
    format_version  2; 1 differs only in the name of the weights file
    bits            "2-2-8": weights, word embedding, activations (32: not quantized)
    sha256          of the weights file
    recipe          how the model was made
    tensors         every tensor: packed {bits, granularity, levels, packing, shape}, or plain {dtype, shape}

The list of tensors is complete: a file that lacks one, or has one too many, is refused before anything is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from reprlib import repr as show  # values from a file can be arbitrarily long; messages must not be
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
FORMAT_VERSION = 2
# By format version. transformers without our plug-in found the first name, and went on with random weights; it finds no
# file of the second name, and stops.
WEIGHTS_FILES = {1: "model.safetensors", 2: "ternarybert.safetensors"}
FLOATS = ("float32", "float16")
_BITS = re.compile(r"(2|3|4|8|32)-(2|3|4|8|32)-([2-9]|1[0-6]|32)")
_PACKED_KEYS = {"bits", "granularity", "levels", "packing", "shape"}
_PLAIN_KEYS = {"dtype", "shape"}


@dataclass(frozen=True)
class PackedSpec:
    """A packed tensor in the manifest: `name.codes` and `name.scale` in the file."""

    coding: Coding
    shape: tuple[int, int]
    granularity: str

    def layout(self, name: str) -> Layout:
        """The arrays that the file must hold for it."""
        rows, columns = self.shape
        return {
            f"{name}.codes": (self.coding.dtype, (rows, self.coding.row_bytes(columns))),
            f"{name}.scale": (np.dtype(np.float32), (1 if self.granularity == "layer" else rows,)),
        }


@dataclass(frozen=True)
class PlainSpec:
    """A float tensor in the manifest: under its own name in the file."""

    dtype: str
    shape: tuple[int, ...]

    def layout(self, name: str) -> Layout:
        """The array that the file must hold for it."""
        return {name: (np.dtype(self.dtype), self.shape)}


@dataclass(frozen=True)
class Manifest:
    """The checked content of a `quantization_config`."""

    bits: str
    recipe: dict[str, Any]
    sha256: str | None  # None if another program rewrote the weights; then it is not compared
    tensors: dict[str, PackedSpec | PlainSpec]
    version: int = FORMAT_VERSION

    @property
    def weights_file(self) -> str:
        """The name of the file that holds the tensors."""
        return WEIGHTS_FILES[self.version]

    def layout(self) -> Layout:
        """Every array of the file."""
        return _merge(spec.layout(name) for name, spec in self.tensors.items())


def describe(tensors: Tensors) -> dict[str, Any]:
    """The list of tensors for the manifest."""
    return {name: _describe_one(tensor) for name, tensor in tensors.items()}


def arrays(tensors: Tensors) -> dict[str, Array]:
    """Every array to write, under its name in the file."""
    return _merge(
        {f"{name}.codes": tensor.codes, f"{name}.scale": tensor.scale}
        if isinstance(tensor, PackedTensor)
        else {name: tensor}
        for name, tensor in tensors.items()
    )


def parse(config: Mapping[str, Any]) -> Manifest:
    """Read and check the `quantization_config` of a config.json."""
    section = config.get("quantization_config")
    if not isinstance(section, dict) or section.get("quant_method") != QUANT_METHOD:
        raise NotPackedError(
            f"not packed: config.json has no quantization_config with quant_method '{QUANT_METHOD}'; "
            "`ternarybert ternarize` makes a packed folder from a fine-tuned model"
        )
    version = checked_version(section.get("format_version"))
    bits, recipe, digest = section.get("bits"), section.get("recipe"), section.get("sha256")
    if not isinstance(bits, str):
        raise PackedConfigError(f"bits in quantization_config is {show(bits)}; expected something like '2-2-8'")
    if not isinstance(recipe, dict):
        raise PackedConfigError(f"recipe in quantization_config is {show(recipe)}; it must be an object")
    if digest is not None and not (isinstance(digest, str) and re.fullmatch("[0-9a-f]{64}", digest)):
        raise PackedConfigError(f"sha256 in quantization_config is {show(digest)}; it must be 64 hexadecimal digits")
    entries = section.get("tensors")
    if not isinstance(entries, dict):
        raise PackedConfigError(f"tensors in quantization_config is {show(entries)}; it must be an object")
    return Manifest(bits, recipe, digest, {name: _parse_one(name, entry) for name, entry in entries.items()}, version)


def parse_bits(bits: str) -> tuple[int, int]:
    """W and E of a W-E-A label such as 2-2-8."""
    match = _BITS.fullmatch(bits)
    if not match:
        raise PackedConfigError(f"bits is {show(bits)}; expected W-E-A such as '2-2-8', W and E of 2, 3, 4, 8 or 32")
    return int(match[1]), int(match[2])


def check_bits(bits: str, tensors: Tensors) -> None:
    """Refuse a label such as 2-2-8 that does not match the tensors."""
    w, e = parse_bits(bits)
    for embedding, expected in ((False, w), (True, e)):
        packed = {
            name: tensor.bits
            for name, tensor in tensors.items()
            if isinstance(tensor, PackedTensor) and is_word_embedding(name) == embedding
        }
        if expected != 32 and not packed:
            raise PackedConfigError(f"bits is {bits}, but no {'word embedding' if embedding else 'weight'} is packed")
        for name, found in packed.items():
            if found != expected:
                raise PackedConfigError(f"bits is {bits}, but tensor '{name}' has {found} bits")


def _merge(parts: Iterable[Mapping[str, T]]) -> dict[str, T]:
    merged: dict[str, T] = {}
    for part in parts:
        if duplicate := part.keys() & merged.keys():
            raise PackedTensorError(f"two tensors would be stored as '{min(duplicate)}'")
        merged.update(part)
    return merged


def checked_version(version: object) -> int:
    """A format version that this package reads; an error for any other."""
    if type(version) is not int:
        raise PackedConfigError(f"format_version in quantization_config is {show(version)}; it must be an integer")
    if version > FORMAT_VERSION:
        raise FormatVersionError(
            f"format version {version} is newer than {FORMAT_VERSION}, the newest supported here; update ternarybert"
        )
    if version not in WEIGHTS_FILES:
        raise FormatVersionError(f"format version {version} does not exist; supported: {sorted(WEIGHTS_FILES)}")
    return version


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
