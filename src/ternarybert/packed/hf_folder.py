"""Hugging Face folders with float weights, on either side of packing.

In: `pack_plain` packs a folder whose float weights are ternary already. The released TernaryBERT code saves its
quantized model as float32 tensors: every weight is -a, 0 or a, with one a for the tensor or one per row. Nothing has to
be quantized again; it is enough to see the pattern. A tensor that does not show it is refused by name: rounding it here
would give a model that nobody evaluated. Out: `write_plain` writes float32 weights that any tool loads.

The weights are in one file or in several:

    model.safetensors                   one file; if it exists, the others are ignored, as in transformers
    model.safetensors.index.json        {"weight_map": {tensor: file}}: the files that belong together
    model-00001-of-00003.safetensors    no index: the numbers tell what belongs together

Missing files or tensors raise an error that names them; a partial model is never returned. Pickled weights
(`pytorch_model.bin`) can run code when they are loaded, and are not read.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from reprlib import repr as show  # what others wrote may be endless; messages are not
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from ternarybert.errors import (
    NotPackedError,
    NotTernaryError,
    PackedConfigError,
    PackedTensorError,
    RecipeError,
    UnsafeFileError,
    suggest_path,
)
from ternarybert.families import is_quantized, is_word_embedding
from ternarybert.packed.embedder_modules import has_modules, read_modules
from ternarybert.packed.folder import (
    CONFIG,
    REPLACE_ADVICE,
    find_file,
    json_bytes,
    load_object,
    reading,
    refuse_escapes,
)
from ternarybert.packed.manifest import Float, parse
from ternarybert.packed.model import PackedModel
from ternarybert.packed.tensor import PackedTensor, as_float32
from ternarybert.packed.weights_file import Array, map_any, read_shapes, write_container
from ternarybert.recipe import Granularity, Recipe
from ternarybert.storage import check_not_input, check_output_folder, replace_folder

T = TypeVar("T")
State: TypeAlias = Mapping[str, npt.NDArray[Any]]

WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
_NUMBERED = re.compile(r"model-(\d{1,9})-of-(\d{1,9})\.safetensors", re.ASCII)
_IN_FOLDER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*\.safetensors")
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
_PICKLED_ADVICE = (
    'convert them once, where you trust them: python -c "import torch, safetensors.torch as s; s.save_file({n: '
    "t.clone() for n, t in torch.load('pytorch_model.bin', weights_only=True).items()}, 'model.safetensors')\""
)


def read_tensors(folder: str | Path) -> dict[str, Array]:
    """All tensors of a Hugging Face folder, as views of the mapped files."""
    with reading(folder):
        return gather(Path(folder), map_any)


def read_tensor(folder: str | Path, endings: tuple[str, ...]) -> Array | None:
    """The one tensor whose name has one of these endings; None if there is none."""
    with reading(folder):
        file_of = gather(Path(folder), lambda path: dict.fromkeys(read_shapes(path), path))
        name = min((name for name in file_of if name.endswith(endings)), default=None)
        return None if name is None else map_any(file_of[name], name)[name]


def read_config(folder: str | Path) -> dict[str, Any]:
    """The configuration of a Hugging Face folder."""
    with reading(folder):
        return load_object(Path(folder), CONFIG)


def tokenizer_files(folder: str | Path) -> dict[str, Path]:
    """The files of a tokenizer, to be copied; links that lead out of the folder are refused."""
    with reading(folder):
        refuse_escapes(Path(folder))
        return {name: path for name in TOKENIZER_FILES if (path := find_file(Path(folder), name))}


def deciding_files(folder: Path) -> list[Path]:
    """What decides a packed model's answers: configuration, tokenizer, and weights whose hash is not in the former."""
    config = folder / CONFIG
    announced = parse(load_object(folder, CONFIG))
    weights = [] if announced.sha256 else [folder / announced.weights_file]
    return [config, *tokenizer_files(folder).values(), *weights]


def copied_files(folder: str | Path) -> dict[str, Path | bytes]:
    """What a folder has besides config.json and weights: the tokenizer, and the modules of a sentence embedder."""
    modules = read_modules(folder).files if has_modules(folder) else {}
    return {**tokenizer_files(folder), **modules}


def gather(folder: Path, read: Callable[[Path], Mapping[str, T]]) -> dict[str, T]:
    """Apply `read` to every weights file of a folder, and merge what it returns for each tensor."""
    if not folder.is_dir():
        raise NotPackedError(f"there is no such folder{suggest_path(folder)}")
    if whole := find_file(folder, WEIGHTS):
        return dict(read(whole))
    index = _read_index(folder) if find_file(folder, INDEX) else None
    gathered: dict[str, T] = {}
    for name in sorted(set(index.values())) if index else _numbered(folder):
        tensors = _read_one(folder, name, read)
        if twice := tensors.keys() & gathered.keys():
            raise PackedTensorError(f"tensor '{min(twice)}' is in {name} and in another file of the folder")
        if index:
            _check_index(name, {tensor for tensor, file in index.items() if file == name}, tensors.keys())
        gathered.update(tensors)
    return gathered


def pack_plain(folder: str | Path, recipe: Recipe, *, packing: str = "plain") -> PackedModel:
    """Pack a Hugging Face folder whose float weights are ternary already, as the released code saves them.

    The recipe gives the quantization of activations; the granularity of the weights is seen from them, and replaces the
    recipe's.
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
    output = Path(folder).absolute()
    check_not_input(Path(tokenizer), Path(folder))
    copied = copied_files(tokenizer)

    def check() -> None:
        check_output_folder(output, replaceable=force and (output / CONFIG).is_file(), advice=REPLACE_ADVICE)

    with replace_folder(output, check) as staging:
        write_container(staging / WEIGHTS, unpack_to_float(model))
        (staging / CONFIG).write_bytes(json_bytes(CONFIG, {**model.config, "dtype": np.dtype(np.float32).name}))
        for name, content in copied.items():
            (staging / name).parent.mkdir(exist_ok=True)
            (staging / name).write_bytes(content if isinstance(content, bytes) else content.read_bytes())


def pack_released(
    state: State,
    config: Mapping[str, Any],
    *,
    pooler: bool = True,
    packing: str = "plain",
    activation_bits: int = 8,
    recipe: Mapping[str, Any] | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> PackedModel:
    """Pack a checkpoint of the released code, given as NumPy arrays.

    Its clipping bounds (buffers named `*clip*`) are settings, not weights, and are left out: the recipe must give the
    quantization of activations. The old configurations name no model class. It is seen from the tensors: BERT, with a
    head for GLUE or SQuAD, or without a pooler for tokens.
    """
    tensors: dict[str, PackedTensor | Float] = {}
    for name, array in state.items():
        if _is_setting(name):
            continue
        if is_quantized(name, pooler=pooler):
            tensors[name] = pack_ternary(name, array, packing=packing)
        else:
            tensors[name] = as_float32(name, array) if array.dtype.kind == "f" else array  # `write` refuses others
    full_config = {"model_type": "bert", **_head(state), **config}
    return PackedModel(full_config, tensors, f"2-2-{activation_bits}", dict(recipe or {}), dict(metrics or {}))


def repack(model: PackedModel, packing: str) -> PackedModel:
    """The same model with its ternary codes in another packing."""
    ternary = {name: t for name, t in model.tensors.items() if isinstance(t, PackedTensor) and t.bits == 2}
    if packing == "dense" and not ternary:
        raise NotTernaryError(f"only ternary weights can be packed densely, and at {model.bits} there are none")
    packed = {name: PackedTensor.pack(t.unpack(), t.scale, bits=2, packing=packing) for name, t in ternary.items()}
    return replace(model, tensors={**model.tensors, **packed})


def pack_ternary(name: str, w: npt.NDArray[Any], *, packing: str = "plain") -> PackedTensor:
    """Pack a float matrix of ternary values, layer-wise if one magnitude suffices, else row-wise."""
    if w.ndim != 2 or 0 in w.shape or not np.isfinite(w).all():
        raise NotTernaryError(f"tensor '{name}' of shape {w.shape} is not a matrix of finite numbers")
    w = as_float32(name, w)
    magnitude = np.abs(w)
    largest = magnitude.max(axis=1)
    smallest = np.min(magnitude, axis=1, where=magnitude > 0, initial=np.inf)
    used = largest > 0
    if not used.any() or _same(smallest[used].min(), largest.max()):
        scale = largest.max(keepdims=True)
    elif _same(smallest[used], largest[used]).all():
        scale = largest
    else:
        raise NotTernaryError(_explain(name, magnitude, int(np.argmin(_same(smallest, largest) | ~used))))
    return PackedTensor.pack(np.sign(w).astype(np.int8), scale, bits=2, packing=packing)


def unpack_to_float(model: PackedModel) -> dict[str, npt.NDArray[np.float32]]:
    """Dequantize everything to the float32 tensors that any tool can load."""
    return {
        name: tensor.dequantize() if isinstance(tensor, PackedTensor) else np.array(tensor, np.float32)
        for name, tensor in model.tensors.items()
    }


def _read_one(folder: Path, name: str, read: Callable[[Path], Mapping[str, T]]) -> Mapping[str, T]:
    path = find_file(folder, name)
    if path is None:
        raise NotPackedError(f"{name} is missing, which {INDEX} names; copy all files of the model")
    return read(path)


def _read_index(folder: Path) -> dict[str, str]:
    """Which file each tensor is in."""
    found = load_object(folder, INDEX).get("weight_map")
    if not isinstance(found, dict) or not found:
        raise PackedConfigError(f"{INDEX} has no weight_map that says which file each tensor is in")
    for name in found.values():
        if not isinstance(name, str) or not _IN_FOLDER.fullmatch(name):
            raise UnsafeFileError(f"{INDEX} names the file {show(name)}; expected a safetensors file of the folder")
    return found


def _check_index(name: str, announced: Iterable[str], present: Iterable[str]) -> None:
    if missing := set(announced) - set(present):
        raise PackedTensorError(f"{name} lacks the tensor {show(min(missing))}, which {INDEX} says is in it")
    if extra := set(present) - set(announced):
        raise PackedTensorError(f"{name} has the tensor '{min(extra)}', but {INDEX} does not name it there")


def _numbered(folder: Path) -> list[str]:
    """The files model-00001-of-N to model-N-of-N; there must be one series, and nothing missing in it."""
    found = {match[0]: match for path in folder.iterdir() if (match := _NUMBERED.fullmatch(path.name))}
    if not found:
        raise NotPackedError(f"there is no {WEIGHTS}, and pickled weights are never read; {_PICKLED_ADVICE}")
    if len({match[2] for match in found.values()}) > 1:
        raise PackedConfigError(f"{min(found)} and {max(found)} do not belong to one model; remove the older files")
    width, last = len(next(iter(found.values()))[1]), next(iter(found.values()))[2]
    for number in range(1, int(last) + 1):  # ends at the first that is missing, however many are announced
        name = f"model-{number:0{width}}-of-{last}.safetensors"
        if name not in found:
            raise NotPackedError(f"{name} is missing, one of {int(last)} files; copy all files of the model")
    return sorted(found)


def _head(state: State) -> dict[str, Any]:
    """Model class and labels, as transformers writes them."""
    if "qa_outputs.weight" in state:
        return {"architectures": ["BertForQuestionAnswering"]}
    if "classifier.weight" not in state or state["classifier.weight"].size == 0:  # empty, but of any number of rows
        return {}
    pooled = any(name.endswith("pooler.dense.weight") for name in state)
    names = [f"LABEL_{number}" for number in range(np.atleast_1d(state["classifier.weight"]).shape[0])]
    return {
        "architectures": ["BertForSequenceClassification" if pooled else "BertForTokenClassification"],
        "id2label": {str(number): name for number, name in enumerate(names)},
        "label2id": {name: number for number, name in enumerate(names)},
    }


def _is_setting(name: str) -> bool:
    last = name.rpartition(".")[2]
    return "clip" in last or last == "position_ids"


def _same(low: Any, high: Any) -> Any:  # arrays or scalars
    """Equal up to the last bit, which a multiplication on another device may round differently."""
    return high <= np.nextafter(low, np.float32(np.inf))


def _explain(name: str, magnitude: npt.NDArray[np.float32], row: int) -> str:
    in_row, in_all = (len(np.unique(part[part > 0])) for part in (magnitude[row], magnitude))
    return (
        f"tensor '{name}' should be ternary, but row {row} holds {in_row} distinct magnitudes and the whole tensor "
        f"{in_all}; pack the quantized checkpoint, not the one with latent weights"
    )
