"""A model's own word embeddings as the space in which words have neighbours. NumPy only.

For when no masked-language model is at hand: the teacher always is. Its embedding table has a vector for every word
of one piece, learned by masked-language modelling and then for the task; its nearest words are mostly synonyms and
inflections. They do not know the sentence, which a masked-language model does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ternarybert.augment.neighbours import Neighbours
from ternarybert.augment.pieces import whole_words
from ternarybert.augment.source import COUNT
from ternarybert.errors import HubError, UnsupportedModelError

_TABLES = ("word_embeddings.weight", "tok_embeddings.weight")  # ModernBERT has its own name for it
_WEIGHTS, _INDEX, _TOKENIZER = "model.safetensors", "model.safetensors.index.json", "tokenizer.json"


def load_embeddings(model: str | Path, *, count: int = COUNT) -> Neighbours:
    """Read the word embeddings of a model folder or hub id."""
    folder = _folder(str(model))
    return embedding_neighbours(_vocabulary(folder), _table(folder), model, count=count)


def embedding_neighbours(
    vocabulary: Mapping[str, int], table: NDArray[np.float32], model: str | Path, *, count: int = COUNT
) -> Neighbours:
    """Neighbours among the words of a vocabulary, given its ids and the table of embeddings; `model` is their name."""
    words = whole_words(vocabulary)
    ids = sorted(i for i in words if i < len(table))
    description = f"the word embeddings of {Path(model).name}"
    return Neighbours([words[i] for i in ids], table[ids], description, count)


def _folder(model: str) -> Path:
    if Path(model).is_dir():
        return Path(model)
    if Path(model).is_absolute() or model.count("/") > 1 or model.startswith("."):
        raise UnsupportedModelError(f"{model} is not a folder; give a model folder or a hub id")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, allow_patterns=["model*.safetensors*", _TOKENIZER]))
    except (OSError, ValueError) as error:  # not reachable, not there, not a possible name
        reason = str(error).strip().split("\n")[0]
        raise HubError(f"cannot get {model} from the hub ({reason}); give the folder of a model") from error


def _vocabulary(folder: Path) -> dict[str, int]:
    from tokenizers import Tokenizer

    path = folder / _TOKENIZER
    if not path.is_file():
        raise UnsupportedModelError(f"{folder} has no {_TOKENIZER}; save its tokenizer with save_pretrained")
    try:
        vocabulary: dict[str, int] = Tokenizer.from_file(str(path)).get_vocab()
    except Exception as error:  # the library raises nothing more specific
        raise UnsupportedModelError(f"{path} cannot be read: {error}") from error
    return vocabulary


def _table(folder: Path) -> NDArray[np.float32]:
    from safetensors import SafetensorError, safe_open

    for path in _weight_files(folder):
        try:
            with safe_open(path, "np") as file:
                name = next((name for name in file.keys() if name.endswith(_TABLES)), None)  # noqa: SIM118
                if name is not None and file.get_slice(name).get_dtype() == "BF16":
                    return _read_bfloat16(path, name)
                if name is not None:
                    return np.asarray(file.get_tensor(name), dtype=np.float32)
        except (SafetensorError, OSError, TypeError) as error:  # TypeError: a type that NumPy lacks
            raise UnsupportedModelError(f"{path} cannot be read: {error}") from error
    raise UnsupportedModelError(f"{folder} has no tensor {' or '.join(_TABLES)} in {_WEIGHTS}")


def _read_bfloat16(path: Path, name: str) -> NDArray[np.float32]:
    """A tensor of a type that NumPy lacks: the upper halves of float32 numbers. The file was checked on opening."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(length))[name]
        begin, end = entry["data_offsets"]
        file.seek(begin, 1)  # the data begin behind the header
        halves = np.frombuffer(file.read(end - begin), "<u2")
    table: NDArray[np.float32] = (halves.astype("<u4") << 16).view("<f4").reshape(entry["shape"])
    return table


def _weight_files(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if not index.is_file():
        return [folder / _WEIGHTS]
    shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    return [folder / name for name in sorted({str(shard) for shard in shards.values()})]
