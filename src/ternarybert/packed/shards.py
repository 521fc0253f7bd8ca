"""The weights of a plain folder, in one file or in several, and all of them.

    model.safetensors                   one file; it counts alone, as in transformers
    model.safetensors.index.json        {"weight_map": {tensor: file}}: the files are those that it names
    model-00001-of-00003.safetensors    no index: the numbers tell what belongs together

A file that is missing, and a tensor that is not where it should be, is named: half a model is none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from reprlib import repr as show  # what others wrote may be endless; messages are not
from typing import TypeVar

from ternarybert._nearby import nearby
from ternarybert.errors import NotPackedError, PackedConfigError, PackedTensorError, UnsafeFileError
from ternarybert.packed import folder as files
from ternarybert.packed.file import WEIGHTS, load_object

T = TypeVar("T")

INDEX = f"{WEIGHTS}.index.json"
_NUMBERED = re.compile(r"model-(\d{1,9})-of-(\d{1,9})\.safetensors", re.ASCII)
_IN_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*\.safetensors")
_ADVICE = (
    'convert them once, where you trust them: python -c "import torch, safetensors.torch as s; s.save_file({n: '
    "t.clone() for n, t in torch.load('pytorch_model.bin', weights_only=True).items()}, 'model.safetensors')\""
)


def gather(place: Path, read: Callable[[Path], Mapping[str, T]]) -> dict[str, T]:
    """What `read` gives for the tensors of each file, of all files together."""
    if not place.is_dir():
        raise NotPackedError(f"there is no such folder{nearby(place)}")
    if whole := files.find_file(place, WEIGHTS):
        return dict(read(whole))
    index = _read_index(place) if files.find_file(place, INDEX) else None
    gathered: dict[str, T] = {}
    for name in sorted(set(index.values())) if index else _numbered(place):
        tensors = _read_one(place, name, read)
        if twice := tensors.keys() & gathered.keys():
            raise PackedTensorError(f"tensor '{min(twice)}' is in {name} and in another file of the folder")
        if index:
            _check_index(name, {tensor for tensor, file in index.items() if file == name}, tensors.keys())
        gathered.update(tensors)
    return gathered


def _read_one(place: Path, name: str, read: Callable[[Path], Mapping[str, T]]) -> Mapping[str, T]:
    path = files.find_file(place, name)
    if path is None:
        raise NotPackedError(f"{name} is missing, which {INDEX} names; copy all files of the model")
    return read(path)


def _read_index(place: Path) -> dict[str, str]:
    """Which file each tensor is in."""
    found = load_object(place, INDEX).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise PackedConfigError(f"{INDEX} has no weight_map that says which file each tensor is in")
    for name in found.values():
        if not isinstance(name, str) or not _IN_FOLDER.fullmatch(name):
            raise UnsafeFileError(f"{INDEX} names the file {show(name)}; expected a safetensors file of the folder")
    return found


def _check_index(name: str, announced: Iterable[str], found: Iterable[str]) -> None:
    if missing := set(announced) - set(found):
        raise PackedTensorError(f"{name} lacks the tensor {show(min(missing))}, which {INDEX} says is in it")
    if extra := set(found) - set(announced):
        raise PackedTensorError(f"{name} has the tensor '{min(extra)}', but {INDEX} does not name it there")


def _numbered(place: Path) -> list[str]:
    """The files model-00001-of-N to model-N-of-N; there must be one series, and nothing missing in it."""
    found = {match[0]: match for path in place.iterdir() if (match := _NUMBERED.fullmatch(path.name))}
    if not found:
        raise NotPackedError(f"there is no {WEIGHTS}, and pickled weights are never read; {_ADVICE}")
    if len({match[2] for match in found.values()}) > 1:
        raise PackedConfigError(f"{min(found)} and {max(found)} do not belong to one model; remove the older files")
    width, last = len(next(iter(found.values()))[1]), next(iter(found.values()))[2]
    for number in range(1, int(last) + 1):  # ends at the first that is missing, however many are announced
        name = f"model-{number:0{width}}-of-{last}.safetensors"
        if name not in found:
            raise NotPackedError(f"{name} is missing, one of {int(last)} files; copy all files of the model")
    return sorted(found)
