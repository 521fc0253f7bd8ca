"""Reading and writing packed folders: Hugging Face folders with weights of a fifteenth of their size.

    config.json         the model's configuration and `quantization_config` (manifest.py)
    ternarybert.safetensors
                        X.weight.codes and X.weight.scale for what is packed, everything else under its name
    metrics.json        scores and sizes, optional
    ...                 tokenizer, model card: whatever the exporter adds; ignored here

`read` returns a model only after checking every byte of it; `write` leaves a complete folder or none. Anybody may have
made a folder, so its files are opened with care: regular files, of bounded size, inside the folder.
The format, byte by byte: docs/reference/format.md.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from reprlib import repr as show
from typing import Any, cast

import numpy as np

from ternarybert.errors import (
    ContainerError,
    NotPackedError,
    PackedConfigError,
    PackedError,
    PackedTensorError,
    UnsafeFileError,
    suggest_path,
)
from ternarybert.packed import manifest, strict_json
from ternarybert.packed.manifest import (
    FORMAT_VERSION,
    QUANT_METHOD,
    WEIGHTS_FILES,
    Float,
    Layout,
    Manifest,
    PackedSpec,
    PlainSpec,
)
from ternarybert.packed.model import PackedModel
from ternarybert.packed.tensor import PackedTensor
from ternarybert.packed.weights_file import Array, map_container, write_container
from ternarybert.storage import check_output_folder, replace_folder

CONFIG, WEIGHTS, METRICS = "config.json", WEIGHTS_FILES[FORMAT_VERSION], "metrics.json"
REPLACE_ADVICE = "choose another output folder, or use --force to replace a model of the same kind"
JSON_LIMIT = 16 << 20  # bytes; BERT-base's config.json takes 25 kB
PICKLED = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib")  # can run code when loaded
_EXTRA_NAME = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.\-]*/)?[A-Za-z0-9_][A-Za-z0-9_.\-]*")  # in a subfolder or not


def write(
    folder: str | Path,
    model: PackedModel,
    *,
    extra_files: Mapping[str, bytes | Path] | None = None,
    half: bool = False,
    force: bool = False,
) -> None:
    """Write a packed folder, all or nothing; `force` replaces one, `half` stores the float tensors as float16."""
    target, extra = Path(folder).absolute(), extra_files or {}  # absolute, so that "." has a name and a parent
    model.check()
    _check_extra(extra)
    tensors = model.tensors
    if half:
        # Unless the config names a dtype, transformers computes in that of the first tensor.
        model = replace(model, config={**model.config, "dtype": model.config.get("dtype") or "float32"})
        tensors = {name: _halved(name, tensor) for name, tensor in tensors.items()}
    _write(target, model, tensors, extra, force=force)


def read(folder: str | Path) -> PackedModel:
    """Read and check a packed folder; the tensors are views of the mapped file."""
    with reading(folder):
        return _read(Path(folder))


def is_packed(folder: str | Path) -> bool:
    """Whether this is a packed folder, of any format version; a broken config.json is an error."""
    with reading(folder):
        if not find_file(Path(folder), CONFIG):
            return False
        section = load_object(Path(folder), CONFIG).get("quantization_config")
    return isinstance(section, dict) and section.get("quant_method") == QUANT_METHOD


def load_object(folder: Path, name: str) -> dict[str, Any]:
    """Read a JSON object from a file of the folder."""
    path = find_file(folder, name)
    if path is None:
        raise NotPackedError(f"there is no {name}")
    data = read_file(path, JSON_LIMIT)
    try:
        value = strict_json.loads(data)
    except ValueError as error:
        raise PackedConfigError(f"{name} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise PackedConfigError(f"{name} is not a JSON object but {show(value)}")
    return value


def json_bytes(name: str, value: object) -> bytes:
    """The bytes of a JSON file of the folder."""
    try:
        data = strict_json.dumps(value)
    except ValueError as error:
        raise PackedConfigError(f"{name} cannot be written as JSON: {error}") from None
    if len(data) > JSON_LIMIT:
        raise PackedConfigError(f"{name} would be {len(data)} bytes long; the limit is {JSON_LIMIT}")
    return data


# --- reading ---------------------------------------------------------------------------------------------------


def _read(folder: Path) -> PackedModel:
    if not folder.is_dir():
        raise NotPackedError(f"there is no such folder{suggest_path(folder)}")
    refuse_escapes(folder)
    config = load_object(folder, CONFIG)
    announced = manifest.parse(config)
    del config["quantization_config"]
    config.pop("transformers_weights", None)  # where transformers looks for the weights, by our plug-in
    arrays = _load_arrays(folder, announced)
    tensors = {name: _tensor(name, spec, arrays) for name, spec in sorted(announced.tensors.items())}
    metrics = load_object(folder, METRICS) if find_file(folder, METRICS) else {}
    model = PackedModel(config, tensors, announced.bits, announced.recipe, metrics)
    model.check()
    return model


def _load_arrays(folder: Path, announced: Manifest) -> dict[str, Array]:
    name = announced.weights_file
    path = find_file(folder, name)
    if path is None:
        pickled = sorted(path.name for path in folder.iterdir() if path.name.lower().endswith(PICKLED))
        if pickled:
            raise UnsafeFileError(f"there is no {name}; {pickled[0]} is a pickled file, which is never read")
        raise NotPackedError(f"there is no {name}")
    arrays, mapped = map_container(path)
    _check_layout(name, announced.layout(), arrays)
    if announced.sha256 and hashlib.sha256(mapped).hexdigest() != announced.sha256:
        raise ContainerError(f"{name} is damaged: its SHA-256 differs from the one in config.json; copy it again")
    return arrays


def _check_layout(file: str, expected: Layout, arrays: Mapping[str, Array]) -> None:
    for names, reason in ((expected.keys() - arrays, "lacks"), (arrays.keys() - expected, "has, unlike config.json,")):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise PackedTensorError(f"{file} {reason} the tensor '{min(names)}'{more}")
    for name, (dtype, shape) in expected.items():
        array = arrays[name]
        if array.dtype != dtype or array.shape != shape:
            raise PackedTensorError(
                f"tensor '{name}' is {array.dtype} of shape {array.shape}; config.json has {dtype} of {shape}"
            )


def _tensor(name: str, spec: PackedSpec | PlainSpec, arrays: Mapping[str, Array]) -> PackedTensor | Float:
    if isinstance(spec, PlainSpec):
        return cast(Float, arrays[name])
    coding = spec.coding
    codes, scale = cast(Any, arrays[f"{name}.codes"]), cast(Any, arrays[f"{name}.scale"])
    try:
        return PackedTensor(coding.bits, coding.levels, coding.packing, spec.shape, codes, scale)
    except PackedTensorError as error:
        raise PackedTensorError(f"tensor '{name}': {error}") from None


# --- writing ---------------------------------------------------------------------------------------------------


def _check_extra(extra: Mapping[str, bytes | Path]) -> None:
    for name, content in extra.items():
        if not _EXTRA_NAME.fullmatch(name) or name in (CONFIG, METRICS, *WEIGHTS_FILES.values()):
            raise UnsafeFileError(f"{name!r} cannot be the name of an additional file")
        if name.lower().endswith(PICKLED):
            raise UnsafeFileError(f"{name} is a pickled file; a packed folder must not contain one")
        if isinstance(content, Path) and not content.is_file():
            raise UnsafeFileError(f"{content} is not a regular file")


def _write(
    target: Path,
    model: PackedModel,
    tensors: Mapping[str, PackedTensor | Float],
    extra: Mapping[str, bytes | Path],
    *,
    force: bool,
) -> None:
    def check() -> None:
        check_output_folder(target, replaceable=force and is_packed(target), advice=REPLACE_ADVICE)

    with replace_folder(target, check) as staging:
        digest = write_container(staging / WEIGHTS, manifest.arrays(tensors))
        (staging / CONFIG).write_bytes(_config_bytes(model, tensors, digest))
        (staging / METRICS).write_bytes(json_bytes(METRICS, model.metrics))
        for name, content in extra.items():
            (staging / name).parent.mkdir(exist_ok=True)
            if isinstance(content, Path):
                shutil.copyfile(content, staging / name)
            else:
                (staging / name).write_bytes(content)


def _halved(name: str, tensor: PackedTensor | Float) -> PackedTensor | Float:
    if isinstance(tensor, PackedTensor):
        return tensor
    with np.errstate(over="ignore"):
        half = tensor.astype(np.float16)
    if not np.isfinite(half).all():
        raise PackedTensorError(f"tensor '{name}' has values above {np.finfo(np.float16).max}, too large for float16")
    return half


def _config_bytes(model: PackedModel, tensors: Mapping[str, PackedTensor | Float], digest: str) -> bytes:
    section = {
        "quant_method": QUANT_METHOD,
        "format_version": FORMAT_VERSION,
        "bits": model.bits,
        "sha256": digest,
        "recipe": model.recipe,
        "tensors": manifest.describe(tensors),
    }
    return json_bytes(CONFIG, {**model.config, "quantization_config": section})


def find_file(folder: Path, name: str) -> Path | None:
    """The path of a regular file in the folder, None if there is none of that name."""
    path = folder / name
    if not os.path.lexists(path):
        return None
    if not path.is_file():  # a pipe would block us, a directory or a dangling link cannot be read
        raise UnsafeFileError(f"{name} is not a regular file")
    return path


def read_file(path: Path, limit: int) -> bytes:
    """Read a whole file that must not be longer than the limit."""
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise PackedConfigError(f"{path.name} is longer than {limit} bytes, which is the limit")
    return data


def refuse_escapes(folder: Path) -> None:
    """Refuse symbolic links that lead out of the folder, for every file that this or another library will open."""
    here = Path(os.path.realpath(folder))
    # The hub's download cache: snapshots/<commit>/[folder/]config.json -> [../]../../blobs/<hash>
    snapshots = next((parent for parent in here.parents if parent.name == "snapshots"), None)
    roots = [str(here), *([str(snapshots.parent / "blobs")] if snapshots else [])]
    for entry in folder.iterdir():
        target = os.path.realpath(entry)
        if entry.is_symlink() and not any(os.path.commonpath([root, target]) == root for root in roots):
            raise UnsafeFileError(f"{entry.name} is a symbolic link that leads out of the folder, to {target}")


@contextmanager
def reading(folder: str | Path) -> Iterator[None]:
    """Let every error of the block name the folder, and turn an OSError into a `PackedError`."""
    try:
        yield
    except PackedError as error:
        raise type(error)(f"{folder}: {error}") from error
    except OSError as error:
        raise PackedError(f"{folder}: cannot be read: {error.strerror or error}") from error
