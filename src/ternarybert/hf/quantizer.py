"""One call from a packed folder to a torch model, with the head that it was trained with.

MERGED-DOCS:
Whether a folder, its recipe and the model that transformers has built for it belong together.

transformers does not look: with a quantizer it takes tensors of any shape. What does not fit is refused here, by name,
before a weight is loaded.

---
transformers' own hooks for quantized models, filled in.

`from_pretrained` reads `quantization_config.quant_method` and asks the quantizer registered under that name:

1. before the weights are loaded: the folder is read and checked as a whole, and the empty model becomes a student
2. while they are loaded: `X.weight.codes` and `X.weight.scale` become `X.weight` (`Unpack`)
3. after that: the student uses these weights as they are

`save_pretrained` asks it for what to write: packed tensors again, with a list of them in `quantization_config`.

"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import AutoConfig, PreTrainedModel
from transformers.core_model_loading import ConversionOps, WeightConverter
from transformers.quantizers import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from ternarybert import packed
from ternarybert.errors import NotPackedError, PackedConfigError, UnsafeFileError, UnsupportedModelError
from ternarybert.hf.layers import CODES, SCALE, FromFolder, adopt, float32_array, layers_from_folder
from ternarybert.packed import PackedModel, PackedTensor
from ternarybert.packed.codec import Coding
from ternarybert.packed.folder import WEIGHTS
from ternarybert.packed.manifest import FORMAT_VERSION, QUANT_METHOD, Float, arrays, describe
from ternarybert.packed.model import recipe_of
from ternarybert.student import QuantizedWeight, make_student, quantized_layers

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


class TernaryBertConfig(QuantizationConfigMixin):  # type: ignore[misc]
    """`quantization_config` of a packed folder, as it is; keys that this version does not know stay in it."""

    def __init__(self, quant_method: str = QUANT_METHOD, **section: Any) -> None:
        self.quant_method = quant_method
        self.__dict__.update(section)


class Unpack(ConversionOps):  # type: ignore[misc]
    """Codes and scale of one weight become the weight."""

    def __init__(self, hf_quantizer: HfQuantizer) -> None:
        self.hf_quantizer = hf_quantizer  # an operation that has one gets its tensors in the dtypes of the file

    def convert(self, input_dict: dict[str, list[Tensor]], **context: Any) -> dict[str, Tensor]:
        """Hand the tensors to the layer that they belong to."""
        name: str = context["full_layer_name"]
        layer: FromFolder = context["model"].get_submodule(name.removesuffix(".weight"))
        return {name: layer.take(input_dict[CODES][0], input_dict[SCALE][0])}

    def __deepcopy__(self, memo: dict[int, Any]) -> Unpack:
        """Itself: transformers copies the operation for every weight, and with it the list of all tensors."""
        return self


class TernaryBertQuantizer(HfQuantizer):  # type: ignore[misc]
    """Makes a student of a packed folder, and a packed folder of that student."""

    requires_calibration = True  # a float model cannot be ternarized while it is loaded; that takes training
    is_trainable = True
    is_qat_trainable = True  # the layers are those of quantization-aware training

    def is_serializable(self) -> bool:
        """`save_pretrained` works."""
        return True

    def get_weight_conversions(self) -> list[WeightConverter]:
        """How packed tensors become parameters."""
        return [WeightConverter([CODES, SCALE], "weight", operations=[Unpack(self)])]

    def _process_model_before_weight_loading(
        self, model: PreTrainedModel, checkpoint_files: list[str] | None = None, **_: Any
    ) -> None:
        if checkpoint_files is None or [Path(file).name for file in checkpoint_files] != [WEIGHTS]:
            raise UnsafeFileError(f"a packed model is loaded from {WEIGHTS} and nothing else, not {checkpoint_files}")
        content = packed.read(Path(checkpoint_files[0]).parent)
        make_student(model, recipe_of(content))
        tensors = tensors_by_model_name(model, content)
        check_fit(model, tensors)
        for name, layer in list(quantized_layers(model)):
            adopt(layer, coding_of(layer, tensors.get(f"{name}.weight")))

    def _process_model_after_weight_loading(self, model: PreTrainedModel, **_: Any) -> None:
        for _name, layer in layers_from_folder(model):
            if layer.origin is not None:
                layer.use_origin()
        # What was renamed and converted while loading, transformers would turn back when saving. We say what is saved.
        model._weight_conversions = []

    def get_state_dict_and_metadata(self, model: PreTrainedModel) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The packed tensors of the model as it is now; its config is brought up to date with them."""
        layers = dict(layers_from_folder(model))
        content: dict[str, Any] = {
            name: layers[name].packed(name) if name in layers else float32_array(name, value)
            for name, value in model.state_dict().items()
        }
        section = self.quantization_config
        section.format_version, section.tensors = FORMAT_VERSION, describe(content)
        section.__dict__.pop("sha256", None)  # transformers writes the file, so its hash cannot be known here
        model.config.quantization_config = section
        return {name: torch.from_numpy(array) for name, array in arrays(content).items()}, {}


_WHERE = ("cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token")  # options about the hub


def load_torch(folder: str | Path, **options: Any) -> PreTrainedModel:
    """The model in a packed folder, or on the hub, as its own class; options go to its `from_pretrained`."""
    where = {name: options[name] for name in _WHERE if name in options}
    model: PreTrainedModel = _model_class(folder, where).from_pretrained(folder, **options)
    return model


def _model_class(folder: str | Path, where: dict[str, Any]) -> Any:
    name = _architecture(folder, where)
    found = getattr(transformers, name, None)
    if not isinstance(found, type) or not issubclass(found, PreTrainedModel):
        raise UnsupportedModelError(f"{folder}: transformers {transformers.__version__} has no model class '{name}'")
    return found


def _architecture(folder: str | Path, where: dict[str, Any]) -> str:
    """The class that config.json names; a folder's own errors come before those of transformers."""
    if Path(folder).is_dir():
        config = packed.read(Path(folder, where.get("subfolder") or "")).config
    else:
        config = AutoConfig.from_pretrained(folder, **where).to_dict()
        section = config.get("quantization_config") or {}
        if section.get("quant_method") != QUANT_METHOD:
            raise NotPackedError(f"{folder}: not packed by ternarybert; load it with transformers itself")
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or len(architectures) != 1 or not isinstance(architectures[0], str):
        raise UnsupportedModelError(f"{folder}: config.json does not name one model class in 'architectures'")
    return architectures[0]
