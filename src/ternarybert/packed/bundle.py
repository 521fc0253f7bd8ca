"""A packed model in one file, for programs and pages that load a model from a single place.

    8 bytes   "TBERT" and the bundle's version: 0 0 1
    32 bytes  SHA-256 of everything after it
    8 bytes   N, little-endian
    N bytes   JSON: {"files": [{"name": .., "size": ..}, ..]}
              the files, each at the next multiple of 8, zeros between them

It holds the files of the folder that the model needs, unchanged. The C library (`tb_open`) reads it. Of a sentence
embedder it holds the encoder alone: what else is in the folder must be a setting of the call, or it is refused.
"""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path

from ternarybert.errors import (
    ContainerError,
    FolderExistsError,
    FormatVersionError,
    NotPackedError,
    UnsupportedModelError,
)
from ternarybert.families import HeadKind, head_kind, max_tokens
from ternarybert.packed import strict_json
from ternarybert.packed.embedder_modules import DenseLayer, has_modules, read_modules
from ternarybert.packed.folder import CONFIG, find_file, load_object, read, reading
from ternarybert.packed.manifest import parse
from ternarybert.storage import replace_file

MAGIC = b"TBERT\0\0"
VERSION = 1
_START = len(MAGIC) + 1  # of the hash
_HASHED = _START + 32  # from here on
_HEADER = _HASHED + 8
_ALIGNMENT = 8
_SETTINGS = "tokenizer_config.json"
_OPTIONAL = ("tokenizer.json", _SETTINGS, "vocab.txt")


def write_bundle(folder: str | Path, path: str | Path, *, force: bool = False) -> int:
    """Write a packed folder as one file, and return its size in bytes; the folder is checked first."""
    source, target = Path(folder), Path(path)
    read(source)
    embedder_settings(source)
    if target.exists() and not (force and target.is_file()):
        raise FolderExistsError(f"'{target}' exists; choose another name, or use --force to replace a file")
    with reading(source):
        weights = parse(load_object(source, CONFIG)).weights_file
        names = [CONFIG, *(name for name in _OPTIONAL if find_file(source, name)), weights]
        content = {name: (source / name).read_bytes() for name in names}
    if "tokenizer.json" in content:
        content.pop("vocab.txt", None)  # it would not be read
    data = _bundle(content)
    with replace_file(target) as draft:
        draft.write_bytes(data)
    return len(data)


def embedder_settings(folder: str | Path) -> list[str]:
    """What to pass in JavaScript and C to embed texts as Python does; what they cannot compute is an error."""
    with reading(folder):
        config = load_object(Path(folder), CONFIG)
        if not has_modules(folder) or head_kind(config) != HeadKind.NONE:
            return []
        modules = read_modules(folder)
        if any(isinstance(step, DenseLayer) for step in modules.steps):
            raise UnsupportedModelError("the embedder has a Dense module, which C and JavaScript do not compute")
        if modules.pooling == "max":
            raise UnsupportedModelError("the embedder pools by max, which C and JavaScript do not compute")
        if modules.prompt():
            name = modules.default_prompt
            raise UnsupportedModelError(f"the embedder's prompt '{name}' is not put before texts in C and JavaScript")
        settings = load_object(Path(folder), _SETTINGS) if find_file(Path(folder), _SETTINGS) else {}
    needed = []
    if modules.pooling == "cls":
        needed.append('pooling: "first" to embed, in C TB_OUTPUT_FIRST')
    if not modules.normalizes:
        needed.append("normalize: false to embed, in C normalize 0")
    limit = max_tokens(config) or math.inf
    usual = settings.get("model_max_length")  # where no length is passed
    usual = min(usual, limit) if isinstance(usual, int | float) and usual >= 1 else limit
    if modules.max_length is not None and (length := min(modules.max_length, limit)) != usual:
        needed.append(f"maxLength: {length} to load, in C max_length")
    return needed


def read_bundle(path: str | Path) -> dict[str, bytes]:
    """The files of a bundle by name, after its hash was checked."""
    data = Path(path).read_bytes()
    if data[: len(MAGIC)] != MAGIC or len(data) < _START:
        raise NotPackedError(f"{path}: not a bundled model; `ternarybert bundle` makes one from a packed folder")
    if data[len(MAGIC)] != VERSION:
        raise FormatVersionError(f"{path}: bundle version {data[len(MAGIC)]}; the one supported here is {VERSION}")
    if len(data) < _HEADER or hashlib.sha256(data[_HASHED:]).digest() != data[_START:_HASHED]:
        raise ContainerError(f"{path}: damaged or truncated: its SHA-256 differs; copy it again")
    length = int.from_bytes(data[_HASHED:_HEADER], "little")
    try:
        header = strict_json.loads(data[_HEADER : _HEADER + length])
        sizes = {file["name"]: file["size"] for file in header["files"]}
    except (ValueError, KeyError, TypeError) as error:
        raise ContainerError(f"{path}: the header is malformed: {error}") from None
    found, position = {}, _HEADER + length
    for name, size in sizes.items():
        position += -position % _ALIGNMENT
        found[name] = data[position : position + size]
        position += size
    if position != len(data):
        raise ContainerError(f"{path}: {len(data)} bytes, but its header describes {position}")
    return found


def _bundle(content: dict[str, bytes]) -> bytes:
    header = json.dumps({"files": [{"name": name, "size": len(data)} for name, data in content.items()]}).encode()
    body = bytearray(len(header).to_bytes(8, "little") + header)
    for data in content.values():
        body += b"\0" * (-(_HASHED + len(body)) % _ALIGNMENT)
        body += data
    return MAGIC + bytes([VERSION]) + hashlib.sha256(body).digest() + bytes(body)
