"""Whether a folder, its recipe and the model that transformers has built for it belong together.

transformers does not look: with a quantizer it takes tensors of any shape. What does not fit is refused here, by name,
before a weight is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping

from transformers import PreTrainedModel

from ternarybert.errors import PackedConfigError, UnsupportedModelError
from ternarybert.packed import PackedModel, PackedTensor
from ternarybert.packed.codec import Coding
from ternarybert.packed.manifest import Float
from ternarybert.student import QuantizedWeight, quantized_layers

Tensors = Mapping[str, PackedTensor | Float]


def tensors_by_model_name(model: PreTrainedModel, content: PackedModel) -> dict[str, PackedTensor | Float]:
    """The folder's tensors under the names that they have in this model.

    With a head, names begin with that of the encoder, such as `bert.`; in a plain `AutoModel` they do not.
    """
    prefix, found = f"{model.base_model_prefix}.", {}
    for name in model.state_dict():
        for candidate in (name, prefix + name, name.removeprefix(prefix)):
            if candidate in content.tensors:
                found[name] = content.tensors[candidate]
                break
    return found


def check_fit(model: PreTrainedModel, tensors: Tensors) -> None:
    """Refuse tensors that are not those of the model, or not packed as its recipe has it."""
    tied = model.all_tied_weights_keys
    for name in [*tied, *tied.values()]:
        if isinstance(tensors.get(name), PackedTensor):
            raise UnsupportedModelError(
                f"{type(model).__name__} uses '{name}' twice, quantized and plain; a packed folder has one of the two"
            )
    layers = {f"{name}.weight": layer for name, layer in quantized_layers(model)}
    # Another class than the packed one, such as another head, may lack tensors; the packed one may not.
    whole = type(model).__name__ in (model.config.architectures or ())
    for name, parameter in model.state_dict().items():
        tensor = tensors.get(name)
        if tensor is None:
            if whole and name not in tied:  # transformers would make values up and only mention it
                raise PackedConfigError(f"the folder lacks the tensor '{name}' of {type(model).__name__}")
            continue
        if tensor.shape != tuple(parameter.shape):
            raise PackedConfigError(
                f"tensor '{name}' is {tensor.shape}, but {type(model).__name__} wants {tuple(parameter.shape)}"
            )
        _check_kind(name, tensor, layers.get(name))


def coding_of(layer: QuantizedWeight, tensor: PackedTensor | Float | None) -> Coding:
    """How a layer's codes are written in the folder, or would be if the folder lacks it."""
    return tensor.coding if isinstance(tensor, PackedTensor) else Coding(layer.bits, layer.scheme.levels)


def _check_kind(name: str, tensor: PackedTensor | Float, layer: QuantizedWeight | None) -> None:
    if not isinstance(tensor, PackedTensor):
        if layer is not None:
            raise PackedConfigError(f"the recipe quantizes '{name}', but the folder holds it as {tensor.dtype}")
        return
    if layer is None:
        raise PackedConfigError(f"the folder packs '{name}', but the recipe does not quantize it")
    wanted = (layer.bits, layer.scheme.levels)
    if (tensor.bits, tensor.levels) != wanted:
        raise PackedConfigError(
            f"tensor '{name}' has {tensor.bits} bits and {tensor.levels} levels; the recipe says {wanted[0]} bits and "
            f"{wanted[1]} levels"
        )
