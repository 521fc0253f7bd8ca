"""The files that make an encoder a sentence embedder, in the layout of sentence-transformers.

    modules.json                            the modules in their order: Transformer, Pooling, Dense, Normalize
    1_Pooling/config.json                   how the states of the tokens become one vector: mean, cls or max
    2_Dense/config.json, model.safetensors  an affine map of that vector and an activation function, optional
    sentence_bert_config.json               max_seq_length
    config_sentence_transformers.json       prompts, and the function that compares two vectors

Training and the runtime both read them here; sentence-transformers itself is not needed. Types of modules go by the
last part of their name, which older and newer versions of the library share. What we cannot compute is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from reprlib import repr as show
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ternarybert.errors import (
    InputError,
    OptionError,
    PackedConfigError,
    PackedTensorError,
    UnsafeFileError,
    UnsupportedModelError,
    suggest,
)
from ternarybert.packed import strict_json
from ternarybert.packed.folder import find_file, read_file, reading
from ternarybert.packed.tensor import as_float32
from ternarybert.packed.weights_file import map_any

Vectors: TypeAlias = NDArray[np.float32]

MODULES = "modules.json"
LENGTH_FILE, SETTINGS_FILE = "sentence_bert_config.json", "config_sentence_transformers.json"
POOLINGS = ("mean", "cls", "max")
SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
_JSON_LIMIT = 1 << 20
_WEIGHTS = "model.safetensors"
# What older versions call the modes of the pooling, in the order in which they join the vectors.
_MODE_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_ACTIVATIONS = {"Identity": "identity", "Tanh": "tanh", "ReLU": "relu"}


@dataclass(frozen=True, eq=False)
class DenseLayer:
    """An affine map and an activation function: identity, tanh or relu."""

    weight: Vectors  # (outputs, inputs)
    bias: Vectors | None
    activation: str = "identity"

    def __call__(self, rows: Vectors) -> Vectors:
        """Map each row by itself in double precision, so that it does not depend on the others."""
        weight = self.weight.astype(np.float64)
        out = np.stack([weight @ row for row in rows.astype(np.float64)]) if len(rows) else np.empty((0, len(weight)))
        if self.bias is not None:
            out = out + self.bias
        if self.activation != "identity":
            out = np.tanh(out) if self.activation == "tanh" else np.maximum(out, 0.0)
        return out.astype(np.float32)


class UnitLength:
    """Scales vectors to length 1: the module Normalize."""

    def __call__(self, rows: Vectors) -> Vectors:
        """Each row at length 1; a row of zeros stays one."""
        return unit_length(rows)


def unit_length(rows: Vectors) -> Vectors:
    """Rows scaled to length 1; rows of zeros stay as they are."""
    length = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows / np.maximum(length, np.finfo(np.float32).tiny), np.float32)


@dataclass(frozen=True, eq=False)
class EmbedderModules:
    """Everything behind the encoder of a sentence embedder."""

    pooling: str = "mean"
    steps: tuple[DenseLayer | UnitLength, ...] = ()  # after the pooling, in this order
    prompts: Mapping[str, str] = field(default_factory=dict)  # put before the text, by name
    default_prompt: str | None = None  # the name of the prompt of texts for which none is named
    include_prompt: bool = True  # whether the tokens of the prompt are pooled too
    similarity: str = "cosine"
    max_length: int | None = None  # tokens; None: as many as the tokenizer and the positions allow
    files: Mapping[str, bytes] = field(default_factory=dict)  # all of them, by path within the folder

    @property
    def normalizes(self) -> bool:
        """Whether vectors have length 1."""
        return bool(self.steps) and isinstance(self.steps[-1], UnitLength)

    def width(self, hidden: int) -> int:
        """The number of dimensions of a vector of an encoder of this width."""
        dense = [step for step in self.steps if isinstance(step, DenseLayer)]
        return len(dense[-1].weight) if dense else hidden

    def project(self, pooled: Vectors) -> Vectors:
        """Pooled states as vectors of the model: through Dense and Normalize."""
        for step in self.steps:
            pooled = step(pooled)
        return pooled

    def prompt(self, name: str | None = None, text: str | None = None) -> str:
        """What to put before a text: `text` itself, the prompt of that name, or the model's default."""
        if text is not None:
            return text
        name = self.default_prompt if name is None else name
        if name is None:
            return ""
        if name not in self.prompts:
            known = suggest(name, self.prompts) if self.prompts else "; it has none"
            raise InputError(f"the model has no prompt '{name}'{known}")
        return self.prompts[name]

    def first_prompt(self, *names: str) -> str:
        """The prompt with the first of these names that the model has; without any, its default."""
        return self.prompt(next((name for name in names if name in self.prompts), None))

    def check_width(self, hidden: int) -> None:
        """Refuse a Dense module that does not fit behind an encoder of this width."""
        for step in self.steps:
            if isinstance(step, DenseLayer):
                if step.weight.shape[1] != hidden:
                    raise PackedConfigError(f"the Dense module takes {step.weight.shape[1]} numbers and gets {hidden}")
                hidden = len(step.weight)


def has_modules(folder: str | Path) -> bool:
    """Whether a folder has the layout of sentence-transformers."""
    return (Path(folder) / MODULES).is_file()


def read_modules(folder: str | Path) -> EmbedderModules:
    """Read the modules of a folder; those that we do not have are errors that name them."""
    with reading(folder):
        root = Path(folder)
        listed = _json(root, MODULES)
        if not isinstance(listed, list) or not all(isinstance(module, dict) for module in listed):
            raise PackedConfigError(f"{MODULES} is not a list of modules")
        kinds = [(str(module.get("type")).rpartition(".")[2], _path(module)) for module in listed]
        if [kind for kind, _ in kinds[:2]] != ["Transformer", "Pooling"]:
            found = ", ".join(kind for kind, _ in kinds) or "nothing"
            raise UnsupportedModelError(
                f"{MODULES} lists {found}; expected Transformer, Pooling, then Dense, Normalize"
            )
        inner = kinds[0][1]
        if inner:
            raise UnsupportedModelError(f"the Transformer is in '{inner}'; expected it in the folder itself")
        pooling, include_prompt = _pooling(root, kinds[1][1])
        settings = _object(root, SETTINGS_FILE)
        return EmbedderModules(
            pooling=pooling,
            steps=tuple(_step(root, kind, path) for kind, path in kinds[2:]),
            prompts=_prompts(settings),
            default_prompt=_default_prompt(settings),
            include_prompt=include_prompt,
            similarity=_similarity(settings),
            max_length=_max_length(_object(root, LENGTH_FILE)),
            files=dict(_content(root, [path for _, path in kinds])),
        )


def plain_modules(pooling: str, hidden: int, max_length: int) -> EmbedderModules:
    """The modules of an encoder that has no files of its own: this pooling, then length 1."""
    if pooling not in POOLINGS:
        raise OptionError(f"unknown pooling '{pooling}'{suggest(pooling, POOLINGS)}")
    package = "sentence_transformers.models"
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"{package}.{kind}"}
        for i, (kind, path) in enumerate(
            {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}.items()
        )
    ]
    modes = {flag: mode == pooling for flag, mode in _MODE_FLAGS.items()}
    made = {
        MODULES: listed,
        "1_Pooling/config.json": {"word_embedding_dimension": hidden, **modes},
        LENGTH_FILE: {"max_seq_length": max_length, "do_lower_case": False},
    }
    return EmbedderModules(
        pooling,
        (UnitLength(),),
        max_length=max_length,
        files={name: json.dumps(value, indent=2).encode() for name, value in made.items()},
    )


def with_length(modules: EmbedderModules, max_length: int) -> dict[str, bytes]:
    """The files of the modules, with this length where they name none."""
    if modules.max_length is not None:
        return dict(modules.files)
    settings = json.loads(modules.files.get(LENGTH_FILE, b"{}")) | {"max_seq_length": max_length}
    return {**modules.files, LENGTH_FILE: json.dumps(settings, indent=2).encode()}


def _path(module: Mapping[str, Any]) -> str:
    path = module.get("path", "")
    if not isinstance(path, str) or "\\" in path or path.startswith(("/", ".")) or "/" in path.rstrip("/"):
        raise UnsafeFileError(f"{MODULES} names the folder {show(path)}; expected one inside the model's folder")
    return path.rstrip("/")


def _pooling(root: Path, path: str) -> tuple[str, bool]:
    config = _object(root, f"{path}/config.json")
    modes: object = config.get("pooling_mode")
    if modes is None:
        modes = [mode for flag, mode in _MODE_FLAGS.items() if config.get(flag)] or ["mean"]
    found = [modes] if isinstance(modes, str) else modes
    if not isinstance(found, list) or len(found) != 1 or found[0] not in POOLINGS:
        named = " and ".join(map(str, found)) if isinstance(found, list) else show(found)
        raise UnsupportedModelError(f"the model pools by {named}, which is not supported; use {', '.join(POOLINGS)}")
    return str(found[0]), config.get("include_prompt", True) is not False


def _step(root: Path, kind: str, path: str) -> DenseLayer | UnitLength:
    if kind == "Dense":
        return _dense(root, path)
    if kind != "Normalize":
        raise UnsupportedModelError(f"the module {show(kind)} is not supported; after Pooling come Dense and Normalize")
    _check_reads_vector(kind, _object(root, f"{path}/config.json"))
    return UnitLength()


def _dense(root: Path, path: str) -> DenseLayer:
    config = _object(root, f"{path}/config.json")
    _check_reads_vector("Dense", config)
    if config.get("use_residual"):
        raise UnsupportedModelError("a Dense module with use_residual is not supported")
    name = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")[2]
    if name not in _ACTIVATIONS:
        raise UnsupportedModelError(f"the Dense module's activation function {show(name)} is not supported")
    weights = find_file(root / path, _WEIGHTS)
    if weights is None:
        raise UnsafeFileError(f"{path} has no {_WEIGHTS}; pickled weights are never read, save them as safetensors")
    tensors = map_any(weights)
    shape = (config.get("out_features"), config.get("in_features"))
    weight, bias = tensors.get("linear.weight"), tensors.get("linear.bias")
    if weight is None or weight.shape != shape:
        seen = "is missing" if weight is None else f"is {weight.shape}"
        raise PackedTensorError(f"{path}: linear.weight {seen}; its config.json implies {shape}")
    if (bias is None) is bool(config.get("bias", True)) or (bias is not None and bias.shape != shape[:1]):
        seen = "is missing" if bias is None else f"is {bias.shape}"
        raise PackedTensorError(f"{path}: linear.bias {seen}; its config.json implies {shape[:1]}")
    return DenseLayer(
        as_float32(f"{path}/linear.weight", np.array(weight)),
        None if bias is None else as_float32(f"{path}/linear.bias", np.array(bias)),
        _ACTIVATIONS[name],
    )


def _check_reads_vector(kind: str, config: Mapping[str, Any]) -> None:
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, "sentence_embedding"):
            raise UnsupportedModelError(f"{kind} has {key} {show(config[key])}; only one vector per text is supported")


def _prompts(settings: Mapping[str, Any]) -> dict[str, str]:
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, dict) or not all(isinstance(text, str | None) for text in prompts.values()):
        raise PackedConfigError(f"'prompts' in {SETTINGS_FILE} is {show(prompts)}; expected texts by name")
    return {name: text for name, text in prompts.items() if text is not None}


def _default_prompt(settings: Mapping[str, Any]) -> str | None:
    name = settings.get("default_prompt_name")
    if name is not None and name not in _prompts(settings):
        raise PackedConfigError(f"default_prompt_name in {SETTINGS_FILE} is {show(name)}, which is no prompt there")
    return name


def _similarity(settings: Mapping[str, Any]) -> str:
    name = settings.get("similarity_fn_name") or "cosine"
    if name not in SIMILARITIES:
        raise UnsupportedModelError(f"the similarity {show(name)} is not supported; use {', '.join(SIMILARITIES)}")
    return str(name)


def _max_length(settings: Mapping[str, Any]) -> int | None:
    if settings.get("do_lower_case"):
        raise UnsupportedModelError(f"do_lower_case in {LENGTH_FILE} is not supported; the tokenizer has to do it")
    length = settings.get("max_seq_length")
    if length is None:
        return None
    if not isinstance(length, int) or isinstance(length, bool) or length < 1:
        raise PackedConfigError(f"max_seq_length in {LENGTH_FILE} is {show(length)}; expected a number of tokens")
    return length


def _content(root: Path, folders: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    """The files of the modules, without those of the encoder itself."""
    names = [MODULES, LENGTH_FILE, SETTINGS_FILE]
    names += [f"{folder}/{name}" for folder in folders if folder for name in ("config.json", _WEIGHTS)]
    for name in names:
        if path := find_file(root, name):
            yield name, path.read_bytes()


def _object(root: Path, name: str) -> dict[str, Any]:
    """A JSON object, empty if there is no such file."""
    value = _json(root, name) if find_file(root, name) else {}
    if not isinstance(value, dict):
        raise PackedConfigError(f"{name} is not a JSON object but {show(value)}")
    return value


def _json(root: Path, name: str) -> Any:
    path = find_file(root, name)
    if path is None:
        raise PackedConfigError(f"there is no {name}")
    try:
        return strict_json.loads(read_file(path, _JSON_LIMIT))
    except ValueError as error:
        raise PackedConfigError(f"{name} is not JSON: {error}") from None
