"""A model as it lies in the folder, and what makes it one that can be used.

MERGED-DOCS:
The recipe that a packed folder carries.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from reprlib import repr as show
from typing import Any

import numpy as np

from ternarybert.errors import PackedConfigError, PackedTensorError, RecipeError
from ternarybert.packed.manifest import FLOATS, Float, check_bits
from ternarybert.packed.names import check_fit
from ternarybert.packed.parts import check_complete
from ternarybert.packed.tensor import PackedTensor
from ternarybert.packed.weights_file import is_name
from ternarybert.recipe import Recipe


def recipe_of(content: PackedModel) -> Recipe:
    """The folder's recipe, which says how activations are quantized and how training goes on."""
    if not content.recipe:
        raise PackedConfigError("the folder has no recipe, so nothing says how its activations are quantized")
    try:
        recipe = Recipe.from_dict(content.recipe)
    except RecipeError as error:
        raise PackedConfigError(f"the folder's recipe cannot be used: {error}") from error
    if str(recipe.bits) != content.bits:
        raise PackedConfigError(f"the folder is packed at {content.bits}, but its recipe says {recipe.bits}")
    return recipe


_BLOCK = 1 << 20  # elements looked at together


@dataclass(frozen=True, eq=False)
class PackedModel:
    """A model as it lies in the folder. The configuration is the plain Hugging Face one."""

    config: dict[str, Any]
    tensors: dict[str, PackedTensor | Float]
    bits: str  # W-E-A, such as 2-2-8
    recipe: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)

    def in_memory(self) -> PackedModel:
        """The same model in copies of its arrays: views of a mapped file keep Windows from deleting that file."""
        tensors: dict[str, PackedTensor | Float] = {
            name: replace(t, codes=t.codes.copy(), scale=t.scale.copy()) if isinstance(t, PackedTensor) else t.copy()
            for name, t in self.tensors.items()
        }
        return replace(self, tensors=tensors)

    def check(self) -> None:
        """Refuse a model that could not be read back, or that is not the one its configuration describes."""
        for what in ("config", "recipe", "metrics"):
            if not isinstance(getattr(self, what), dict):
                raise PackedConfigError(f"the {what} is not a dictionary but {type(getattr(self, what)).__name__}")
        if "quantization_config" in self.config:
            raise PackedConfigError("the config already has a quantization_config; leave it out")
        for name, tensor in self.tensors.items():
            if not is_name(name):
                raise PackedTensorError(f"{show(name)} is not a tensor name")
            if not isinstance(tensor, PackedTensor):
                _check_float(name, tensor)
        shapes = {name: tensor.shape for name, tensor in self.tensors.items()}
        check_fit(self.config, shapes)
        check_complete(self.config, shapes)
        check_bits(self.bits, self.tensors)


def _check_float(name: str, tensor: Float) -> None:
    if str(tensor.dtype) not in FLOATS:
        raise PackedTensorError(f"tensor '{name}' is {tensor.dtype}; what is not packed must be float32 or float16")
    if 0 in tensor.shape:
        raise PackedTensorError(f"tensor '{name}' is empty: its shape is {tensor.shape}")
    flat = tensor.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        wrong = ~np.isfinite(flat[start : start + _BLOCK])
        if wrong.any():
            element = start + int(wrong.argmax())
            raise PackedTensorError(f"tensor '{name}': element {element} is {flat[element]}")
