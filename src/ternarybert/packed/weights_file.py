"""Weights files (safetensors): named arrays in one file, without any code that could run.

    8 bytes   N, the header's length, little-endian
    N bytes   JSON: {"name": {"dtype": "U8", "shape": [..], "data_offsets": [begin, end]}, ..}, filled up with spaces
    the rest  the arrays' bytes, back to back, little-endian, without gaps

The bytes are those that the safetensors library writes (a test compares them), but hashed on the way and always in the
same order. Reading maps the file into memory. Before an array is made, the header must account for every byte of the
file exactly once.

Why not the safetensors library (0.8, measured with a packed BERT-base of 30 MB and its float32 file of 438 MB)?
- Its NumPy reader copies: 30 MB of private memory per process, 59 MB at the peak, where views of the mapped file take
  0.2 MB and the processes of a server share one copy (float32: 438 and 876 MB). Loading takes 23 ms of CPU time instead
  of 4 ms; the SHA-256 needs the mapped file anyway, and 89 MB at the peak break the promise of 1.5 times the file.
- It has no bfloat16 for NumPy.
- It accepts headers that we refuse because readers disagree about them: a name twice, unknown fields, control
  characters in names, arrays of a thousand dimensions. The header would have to be parsed here again to find them.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from reprlib import repr as show  # what others wrote may be endless; messages are not
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from ternarybert.errors import ContainerError
from ternarybert.packed import strict_json

Array = npt.NDArray[np.generic]

HEADER_LIMIT = 16 << 20  # BERT-base's header takes 20 kB
_METADATA = "__metadata__"
_ALIGNMENT = 8
_LARGEST = 1 << 48  # bytes or elements
_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,500}")
_DTYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "U8": np.dtype("u1"),
    "I8": np.dtype("i1"),
}
_BF16 = "BF16"  # NumPy has no such type: the upper half of a float32
_FOREIGN: dict[str, np.dtype[Any]] = {  # what files of other programs may hold besides
    "BOOL": np.dtype("?"),
    "I16": np.dtype("<i2"),
    "U16": np.dtype("<u2"),
    _BF16: np.dtype("<u2"),
    "I32": np.dtype("<i4"),
    "U32": np.dtype("<u4"),
    "I64": np.dtype("<i8"),
    "U64": np.dtype("<u8"),
    "F64": np.dtype("<f8"),
}
_ALL_DTYPES = {**_FOREIGN, **_DTYPES}


@dataclass(frozen=True)
class TensorEntry:
    """Where an array is stored, in bytes from the beginning of the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def is_name(name: str) -> bool:
    """Whether a tensor may have this name: the characters of Hugging Face names and no others."""
    return _NAME.fullmatch(name) is not None


def write_container(path: Path, arrays: Mapping[str, Array]) -> str:
    """Write the arrays and return the file's SHA-256."""
    # Wide elements first keeps every array aligned; within a width the names decide.
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    header: dict[str, Any] = {_METADATA: {"format": "pt"}}  # transformers refuses to load a file without it
    position = 0
    for name in order:
        array = arrays[name]
        end = position + array.nbytes
        header[name] = {"dtype": _dtype_name(array), "shape": list(array.shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    digest = hashlib.sha256()
    with path.open("xb") as file:
        _put(file, digest, len(text).to_bytes(8, "little") + text)
        for name in order:
            little = np.ascontiguousarray(arrays[name], _DTYPES[_dtype_name(arrays[name])])
            _put(file, digest, little.data.cast("B") if little.size else b"")
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def map_container(path: Path) -> tuple[dict[str, Array], mmap.mmap]:
    """Map the file; the arrays are read-only views of it, made only after the whole header was checked."""
    with path.open("rb") as file:
        entries = _header(file)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if foreign := [name for name, entry in entries.items() if entry.dtype not in _DTYPES]:
        raise ContainerError(f"tensor '{foreign[0]}' is {entries[foreign[0]].dtype}; allowed: {', '.join(_DTYPES)}")
    return {name: _view(mapped, entry) for name, entry in entries.items()}, mapped


def map_any(path: Path, only: str | None = None) -> dict[str, Array]:
    """Map a safetensors file of other programs, with whatever dtypes it has; bfloat16 is widened to float32.

    `only` names the one tensor that is wanted.
    """
    with path.open("rb") as file:
        entries = _header(file)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    wanted = entries if only is None else {only: entries[only]}
    return {name: _widened(_view(mapped, entry), entry.dtype) for name, entry in wanted.items()}


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Read only the header of any safetensors file: the shape of each tensor."""
    with path.open("rb") as file:
        return {name: entry.shape for name, entry in _header(file).items()}


def _widened(view: Array, dtype: str) -> Array:
    return (view.astype(np.uint32) << 16).view(np.float32) if dtype == _BF16 else view


def _view(mapped: mmap.mmap, entry: TensorEntry) -> Array:
    flat = np.frombuffer(mapped, _ALL_DTYPES[entry.dtype], prod(entry.shape), entry.begin)
    return flat.astype(flat.dtype.newbyteorder("="), copy=False).reshape(entry.shape)


def _put(file: BinaryIO, digest: Any, data: bytes | memoryview) -> None:  # hashlib has no public type
    file.write(data)
    digest.update(data)


def _dtype_name(array: Array) -> str:
    for name, dtype in _DTYPES.items():
        if array.dtype.newbyteorder("<") == dtype:
            return name
    raise ContainerError(f"an array of {array.dtype} cannot be stored; allowed: {', '.join(_DTYPES)}")


def _header(file: BinaryIO) -> dict[str, TensorEntry]:
    """Read and check the header; errors name the file, because a folder may have several."""
    try:
        return _checked_header(file)
    except ContainerError as error:
        raise ContainerError(f"{Path(file.name).name}: {error}") from None


def _checked_header(file: BinaryIO) -> dict[str, TensorEntry]:
    """Check the header against the size of the file."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > size - 8:
        raise ContainerError(f"it is truncated: {size} bytes, but its header alone claims {length}")
    if length > HEADER_LIMIT:
        raise ContainerError(f"the header claims {length} bytes; the limit is {HEADER_LIMIT}")
    text = file.read(length)
    try:
        header = strict_json.loads(text)
    except ValueError as error:
        raise ContainerError(f"the header is not JSON: {error}") from None
    if not isinstance(header, dict) or text[:1] != b"{":
        raise ContainerError("the header is not a JSON object")
    _check_metadata(header.pop(_METADATA, {}))
    entries = {name: _entry(name, described, 8 + length) for name, described in header.items()}
    _check_cover(entries, 8 + length, size)
    return entries


def _check_metadata(metadata: object) -> None:
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ContainerError(f"{_METADATA} in the header is not an object of strings")


def _entry(name: str, described: object, start: int) -> TensorEntry:
    if not is_name(name):
        raise ContainerError(f"{show(name)} is not a tensor name")
    if not isinstance(described, dict) or described.keys() != {"dtype", "shape", "data_offsets"}:
        raise ContainerError(f"tensor '{name}': the header must give dtype, shape and data_offsets, and nothing else")
    dtype, shape, offsets = described["dtype"], described["shape"], described["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _ALL_DTYPES:
        raise ContainerError(f"tensor '{name}': unknown dtype {show(dtype)}")
    if not _is_shape(shape) or not _naturals(offsets) or len(offsets) != 2:
        raise ContainerError(f"tensor '{name}': shape {show(shape)} or data_offsets {show(offsets)} is malformed")
    if offsets[1] - offsets[0] != prod(shape) * _ALL_DTYPES[dtype].itemsize:
        raise ContainerError(
            f"tensor '{name}': {offsets[1] - offsets[0]} bytes are given, but {dtype} of shape {shape} takes "
            f"{prod(shape) * _ALL_DTYPES[dtype].itemsize}"
        )
    return TensorEntry(dtype, tuple(shape), start + offsets[0], start + offsets[1])


def _naturals(value: object) -> bool:
    # Not isinstance: True is an int too. The bound keeps products and messages short.
    return isinstance(value, list) and len(value) <= 8 and all(type(n) is int and 0 <= n < _LARGEST for n in value)


def _is_shape(value: object) -> bool:
    """Whether NumPy can make an array of this shape, also of one that has no elements: [0, 2**47, 2**47] is none."""
    return _naturals(value) and prod(n for n in cast(list[int], value) if n) < _LARGEST


def _check_cover(entries: Mapping[str, TensorEntry], start: int, size: int) -> None:
    """Refuse overlaps, gaps, and an end that is not the end of the file."""
    position = start
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != position:
            kind = "overlaps the tensor before it" if entry.begin < position else "leaves a gap before it"
            raise ContainerError(f"tensor '{name}' {kind}")
        position = entry.end
    if position != size:
        state = "truncated" if size < position else "longer than its tensors"
        raise ContainerError(f"it is {state}: {size} bytes, but its header describes {position}")
