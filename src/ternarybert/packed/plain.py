"""Plain Hugging Face folders, on either side of packing: float weights that any tool loads.

Pickled weights (`pytorch_model.bin`) can run code when they are loaded, and are not: whoever has them converts them
where they were made.
"""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from ternarybert.errors import RecipeError
from ternarybert.packed import folder as files
from ternarybert.packed.container import Array, map_any, write_container
from ternarybert.packed.convert import pack_released, unpack_to_float
from ternarybert.packed.file import CONFIG, WEIGHTS, json_bytes, load_object
from ternarybert.packed.model import PackedModel
from ternarybert.packed.names import is_word_embedding
from ternarybert.packed.shards import gather
from ternarybert.packed.tensor import PackedTensor
from ternarybert.recipe import Granularity, Recipe

# Everything that tokenizers of the supported families save.
TOKENIZER_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "merges.txt",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)


def read_tensors(folder: str | Path) -> dict[str, Array]:
    """All tensors of a plain folder, as views of the mapped files."""
    with files.reading(folder):
        return gather(Path(folder), map_any)


def read_config(folder: str | Path) -> dict[str, Any]:
    """The configuration of a plain folder."""
    with files.reading(folder):
        return load_object(Path(folder), CONFIG)


def tokenizer_files(folder: str | Path) -> dict[str, Path]:
    """The files that a tokenizer is made of, to be taken along; links that lead out of the folder are refused."""
    place = Path(folder)
    with files.reading(folder):
        files.refuse_escapes(place)
        return {name: path for name in TOKENIZER_FILES if (path := files.find_file(place, name))}


def pack_plain(folder: str | Path, recipe: Recipe, *, packing: str = "plain") -> PackedModel:
    """Pack a plain folder whose float weights are ternary already, as the released code saves them.

    The recipe says how activations are quantized; what the weights tell themselves is written into it.
    """
    if (recipe.bits.w, recipe.bits.e) != (2, 2):
        raise RecipeError(f"the recipe is for {recipe.bits} bits; a ternary checkpoint has 2-2-{recipe.bits.a}")
    state, config = read_tensors(folder), read_config(folder)
    model = pack_released(state, config, pooler=recipe.pooler, packing=packing, activation_bits=recipe.bits.a)
    found = {name: tensor.granularity for name, tensor in model.tensors.items() if isinstance(tensor, PackedTensor)}
    model.check()  # from here on there is a word embedding
    embedding = next(kind for name, kind in found.items() if is_word_embedding(name))
    row_wise = any(kind == "row" for name, kind in found.items() if not is_word_embedding(name))
    recipe = dataclasses.replace(
        recipe,
        weight=dataclasses.replace(recipe.weight, granularity=Granularity("row" if row_wise else "layer")),
        embedding=dataclasses.replace(recipe.embedding, granularity=Granularity(embedding)),
    )
    return dataclasses.replace(model, recipe=recipe.to_dict())


def write_plain(folder: str | Path, model: PackedModel, *, tokenizer: str | Path, force: bool = False) -> None:
    """Write the weights in float32, all or nothing, with the tokenizer of another folder; `force` replaces a model."""
    place = Path(folder).absolute()
    files.refuse_same(Path(tokenizer), Path(folder))
    taken_along = tokenizer_files(tokenizer)

    def check() -> None:
        files.check_place(place, replaceable=force and (place / CONFIG).is_file())

    with files.writing(folder), files.replacing(place, check) as staging:
        write_container(staging / WEIGHTS, unpack_to_float(model))
        (staging / CONFIG).write_bytes(json_bytes(CONFIG, {**model.config, "dtype": np.dtype(np.float32).name}))
        for name, path in taken_along.items():
            shutil.copyfile(path, staging / name)
