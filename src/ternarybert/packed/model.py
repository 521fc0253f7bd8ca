"""A model as a packed folder holds it, and the checks that make it usable.

`PackedModel.check` is the one place where tensors are compared with the configuration: names and shapes come from the
family's record (families.py), so a model that lacks a LayerNorm, or has a matrix of the wrong size, is neither written
nor read. Of a family without a record only the paper's matrices are checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from reprlib import repr as show
from typing import Any

import numpy as np

from ternarybert.errors import PackedConfigError, PackedTensorError, RecipeError
from ternarybert.families import (
    LAYER_MATRICES,
    MATRICES,
    Family,
    HeadLayers,
    MatrixName,
    Shapes,
    any_size,
    find_matrix,
    known_family,
)
from ternarybert.packed.manifest import FLOATS, Float, check_bits
from ternarybert.packed.tensor import PackedTensor
from ternarybert.packed.weights_file import is_name
from ternarybert.recipe import Recipe

_BLOCK = 1 << 20  # elements checked at a time


@dataclass(frozen=True, eq=False)
class PackedModel:
    """The content of a packed folder. `config` is the plain Hugging Face configuration."""

    config: dict[str, Any]
    tensors: dict[str, PackedTensor | Float]
    bits: str  # W-E-A, such as 2-2-8
    recipe: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        """Refuse a model that could not be read back, or that is not the one its configuration describes."""
        for what in ("config", "recipe", "metrics"):
            if not isinstance(getattr(self, what), dict):
                raise PackedConfigError(
                    f"the {what} is a {type(getattr(self, what)).__name__}; it must be a dictionary"
                )
        if "quantization_config" in self.config:
            raise PackedConfigError("the config already has a quantization_config; leave it out")
        for name, tensor in self.tensors.items():
            if not is_name(name):
                raise PackedTensorError(f"{show(name)} is not a tensor name")
            if not isinstance(tensor, PackedTensor):
                _check_float(name, tensor)
        check_tensors(self.config, self.shapes)
        check_bits(self.bits, self.tensors)

    def in_memory(self) -> PackedModel:
        """The same model with copies of its arrays: Windows cannot delete a file while views of it exist."""
        tensors: dict[str, PackedTensor | Float] = {
            name: replace(t, codes=t.codes.copy(), scale=t.scale.copy()) if isinstance(t, PackedTensor) else t.copy()
            for name, t in self.tensors.items()
        }
        return replace(self, tensors=tensors)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor."""
        return {name: tensor.shape for name, tensor in self.tensors.items()}


def recipe_of(model: PackedModel) -> Recipe:
    """The recipe of a packed model, which says how activations are quantized and how training resumes."""
    if not model.recipe:
        raise PackedConfigError("the folder has no recipe, so it is unknown how its activations are quantized")
    try:
        recipe = Recipe.from_dict(model.recipe)
    except RecipeError as error:
        raise PackedConfigError(f"the folder's recipe cannot be used: {error}") from error
    if str(recipe.bits) != model.bits:
        raise PackedConfigError(f"the folder is packed at {model.bits} bits, but its recipe has {recipe.bits}")
    return recipe


def check_tensors(config: Mapping[str, Any], shapes: Shapes) -> None:
    """Refuse tensors that are not those of the model which the configuration describes."""
    family = known_family(config)
    _check_matrices(config, shapes, any_size if family is None else family.size)
    if family is not None:
        check_modules(family, family.head(config), config, shapes)


def check_modules(family: Family, head: HeadLayers, config: Mapping[str, Any], shapes: Shapes) -> None:
    """Refuse a model that lacks a tensor of its family, or has it in another shape than its configuration says."""
    prefix = family.prefix(shapes)
    has_pooler = f"{prefix}{family.w_p}.weight" in shapes
    for module, sizes, bias in family.modules(config, head, prefix=prefix, pooler=has_pooler):
        weight = _shape(f"{module}.weight", config, shapes)
        expected = tuple(family.optional_size(config, what) for what in sizes)
        if len(weight) != len(expected) or any(b not in (None, a) for a, b in zip(weight, expected, strict=True)):
            wanted = ", ".join("any" if n is None else str(n) for n in expected)
            raise PackedConfigError(f"tensor '{module}.weight' is {weight}; config.json implies ({wanted})")
        if bias and _shape(f"{module}.bias", config, shapes) != weight[:1]:
            found = shapes[f"{module}.bias"]
            raise PackedConfigError(f"tensor '{module}.bias' is {found}, but its weight has {weight[0]} rows")


def _check_matrices(config: Mapping[str, Any], shapes: Shapes, size: Callable[[Mapping[str, Any], str], int]) -> None:
    """Require each of the paper's matrices once, in every layer, in the shape that the configuration implies."""
    found: dict[MatrixName, str] = {}
    for name, shape in shapes.items():
        if matrix := find_matrix(name):
            if (other := found.setdefault(matrix, name)) != name:
                raise PackedConfigError(f"'{other}' and '{name}' are both {matrix}")
            rows, columns = MATRICES[matrix.symbol]
            if shape != (expected := (size(config, rows), size(config, columns))):
                raise PackedConfigError(f"tensor '{name}' is {shape}; config.json implies {expected}")
    layers = size(config, "layers")
    if layers > len(shapes):  # before anything is made for each layer
        raise PackedConfigError(f"config.json describes {layers} layers, but there are {len(shapes)} tensors")
    required = {MatrixName("w_e", None), *(MatrixName(symbol, i) for symbol in LAYER_MATRICES for i in range(layers))}
    if missing := required - found.keys():
        raise PackedConfigError(f"config.json describes {layers} layers, but {min(missing, key=str)} is missing")
    if extra := found.keys() - required - {MatrixName("w_p", None)}:
        raise PackedConfigError(f"config.json describes {layers} layers, but there is {min(extra, key=str)}")


def _shape(name: str, config: Mapping[str, Any], shapes: Shapes) -> tuple[int, ...]:
    if name not in shapes:
        named = config.get("architectures")
        named = named[0] if isinstance(named, list) and named else None
        owner = named if isinstance(named, str) else f"a model of type '{config['model_type']}'"
        raise PackedConfigError(f"the tensor '{name}' is missing; {owner:.80} has it")
    return shapes[name]


def _check_float(name: str, tensor: Float) -> None:
    if str(tensor.dtype) not in FLOATS:
        raise PackedTensorError(f"tensor '{name}' is {tensor.dtype}; unpacked tensors must be float32 or float16")
    if 0 in tensor.shape:
        raise PackedTensorError(f"tensor '{name}' is empty: its shape is {tensor.shape}")
    flat = tensor.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        wrong = ~np.isfinite(flat[start : start + _BLOCK])
        if wrong.any():
            element = start + int(wrong.argmax())
            raise PackedTensorError(f"tensor '{name}': element {element} is {flat[element]}")
