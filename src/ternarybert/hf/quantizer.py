"""The transformers quantizer for packed folders, and `load_torch`.

`from_pretrained` reads `quantization_config.quant_method` and calls the quantizer registered under that name:

1. before the weights are loaded: the folder is read and checked as a whole, and the empty model becomes a student
2. while they are loaded: `X.weight.codes` and `X.weight.scale` become `X.weight` (`Unpack`)
3. afterwards: the student uses these weights as they are

`save_pretrained` gets from it what to write: packed tensors again, with a list of them in `quantization_config`.

With a quantizer, transformers accepts tensors of any shape. So a folder, its recipe and the model that transformers has
built for it are compared here, before a weight is loaded; an error names the tensor that does not match.

The layers are ordinary layers of a student and can be trained further from the weights of the folder. Until then
nothing is quantized again: a quantizer applied to its own result may differ in the last bit or, with more than three
levels, in a code. So a layer keeps the codes and scales that it was loaded from (`FromFolder`), and returns those as
long as its weight has exactly their values. The weights are compared by value, so copies, moves to another device and
weights set from outside work.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MethodType
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
import transformers
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedModel
from transformers.core_model_loading import ConversionOps, WeightConverter
from transformers.quantizers import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from ternarybert import packed
from ternarybert.errors import NotPackedError, PackedConfigError, UnsafeFileError, UnsupportedModelError
from ternarybert.families import family_of
from ternarybert.packed import PackedModel, PackedTensor
from ternarybert.packed.codec import Coding
from ternarybert.packed.folder import CONFIG
from ternarybert.packed.manifest import QUANT_METHOD, WEIGHTS_FILES, Float, arrays, checked_version, describe
from ternarybert.packed.model import recipe_of
from ternarybert.packed.tensor import as_float32
from ternarybert.quantize import Quantized
from ternarybert.storage import write_json
from ternarybert.student import QuantizedWeight, TernaryEmbedding, TernaryLinear, make_student, quantized_layers

Tensors = Mapping[str, PackedTensor | Float]
CODES, SCALE = "weight.codes", "weight.scale"  # the names of a packed weight in the file

SAVED_VERSION = 1  # transformers chooses the name of the file that it writes, and its Trainer resumes from that name
# What config.json then names as the weights file: transformers without this plug-in stops, and its message says why.
NO_FILE = "import-ternarybert.hf-first.safetensors"
_HUB_OPTIONS = ("cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token")


def load_torch(folder: str | Path, **options: Any) -> PreTrainedModel:
    """The model in a packed folder or on the Hub, as its own class; options are passed to its `from_pretrained`."""
    hub_options = {name: options[name] for name in _HUB_OPTIONS if name in options}
    model: PreTrainedModel = _model_class(folder, hub_options).from_pretrained(folder, **options)
    return model


class TernaryBertConfig(QuantizationConfigMixin):  # type: ignore[misc]
    """The `quantization_config` of a packed folder, unchanged; unknown keys are kept."""

    def __init__(self, quant_method: str = QUANT_METHOD, **section: Any) -> None:
        self.quant_method = quant_method
        self.__dict__.update(section)


class TernaryBertQuantizer(HfQuantizer):  # type: ignore[misc]
    """Loads a packed folder as a student, and saves that student as a packed folder."""

    requires_calibration = True  # a float model cannot be ternarized while loading; that takes training
    is_trainable = True
    is_qat_trainable = True  # the layers are those of quantization-aware training

    def is_serializable(self) -> bool:
        """`save_pretrained` works."""
        return True

    def update_attn_implementation(self, config: Any) -> Any:
        """Name the weights file, which transformers does not find by itself; called before it looks for one."""
        version = checked_version(getattr(self.quantization_config, "format_version", None))
        config.transformers_weights = WEIGHTS_FILES[version]
        return config

    def get_weight_conversions(self) -> list[WeightConverter]:
        """The conversion of packed tensors to parameters."""
        return [WeightConverter([CODES, SCALE], "weight", operations=[Unpack(self)])]

    def _process_model_before_weight_loading(
        self, model: PreTrainedModel, checkpoint_files: list[str] | None = None, **_: Any
    ) -> None:
        names = [Path(file).name for file in checkpoint_files or ()]
        expected = WEIGHTS_FILES[checked_version(self.quantization_config.format_version)]
        if checkpoint_files is None or names != [expected]:
            raise UnsafeFileError(f"a packed model must be loaded from {expected}, got {checkpoint_files}")
        # Found. In a config.json that is written later it would lead transformers to the file without this plug-in.
        vars(model.config).pop("transformers_weights", None)
        content = packed.read(Path(checkpoint_files[0]).parent)
        _leave_out_pooler(model, content)
        make_student(model, recipe_of(content))
        tensors = tensors_by_model_name(model, content)
        check_tensors_of_model(model, tensors)
        for name, layer in list(quantized_layers(model)):
            convert_layer(layer, coding_of(layer, tensors.get(f"{name}.weight")))

    def _process_model_after_weight_loading(self, model: PreTrainedModel, **_: Any) -> None:
        for _name, layer in layers_from_folder(model):
            if layer.origin is not None:
                layer.use_origin()
        # Otherwise transformers would undo the conversions on saving, after `get_state_dict_and_metadata`.
        model._weight_conversions = []
        model.save_pretrained = MethodType(save_pretrained, model)

    def get_state_dict_and_metadata(self, model: PreTrainedModel) -> tuple[dict[str, Tensor], dict[str, str]]:
        """The packed tensors of the current model; also updates its config."""
        layers = dict(layers_from_folder(model))
        content: dict[str, Any] = {
            name: layers[name].packed(name) if name in layers else float32_array(name, value)
            for name, value in model.state_dict().items()
        }
        section = self.quantization_config
        section.format_version, section.tensors = SAVED_VERSION, describe(content)
        section.__dict__.pop("sha256", None)  # transformers writes the file later, so its hash is unknown here
        model.config.quantization_config = section
        return {name: torch.from_numpy(array) for name, array in arrays(content).items()}, {}


def save_pretrained(
    self: PreTrainedModel, save_directory: str | Path, *, push_to_hub: bool = False, **options: Any
) -> None:
    """Save the model so that transformers without this plug-in raises, instead of using random weights."""
    hub = {name: options.pop(name) for name in ("repo_id", "commit_message", "private", "create_pr") if name in options}
    type(self).save_pretrained(self, save_directory, **options)
    path = Path(save_directory, CONFIG)
    if options.get("is_main_process", True) and path.is_file():
        content = json.loads(path.read_text(encoding="utf-8"))
        write_json(path, content | {"transformers_weights": NO_FILE}, indent=2)
    if push_to_hub:  # only now: what is uploaded is what was saved here
        shared = {name: options[name] for name in ("token", "max_shard_size") if name in options}
        self.push_to_hub(hub.pop("repo_id", Path(save_directory).name), **hub, **shared)


class Unpack(ConversionOps):  # type: ignore[misc]
    """Turns the codes and scale of a weight into the weight."""

    def __init__(self, hf_quantizer: HfQuantizer) -> None:
        self.hf_quantizer = hf_quantizer  # with this attribute an operation gets its tensors in the dtypes of the file

    def convert(self, input_dict: dict[str, list[Tensor]], **context: Any) -> dict[str, Tensor]:
        """Pass the tensors to their layer."""
        name: str = context["full_layer_name"]
        layer: FromFolder = context["model"].get_submodule(name.removesuffix(".weight"))
        return {name: layer.set_origin(input_dict[CODES][0], input_dict[SCALE][0])}

    def __deepcopy__(self, memo: dict[int, Any]) -> Unpack:
        """Not copied: transformers copies the operation for every weight, and with it the list of all tensors."""
        return self


def tensors_by_model_name(model: PreTrainedModel, content: PackedModel) -> dict[str, PackedTensor | Float]:
    """The folder's tensors under their names in this model.

    With a head, the encoder's names have a prefix such as `bert.`; in a plain `AutoModel` they have none.
    """
    prefix, tensors = f"{model.base_model_prefix}.", {}
    for name in model.state_dict():
        for candidate in (name, prefix + name, name.removeprefix(prefix)):
            if candidate in content.tensors:
                tensors[name] = content.tensors[candidate]
                break
    return tensors


def check_tensors_of_model(model: PreTrainedModel, tensors: Tensors) -> None:
    """Refuse tensors that are not those of the model, or are not packed as its recipe says."""
    tied = model.all_tied_weights_keys
    for name in [*tied, *tied.values()]:
        if isinstance(tensors.get(name), PackedTensor):
            raise UnsupportedModelError(
                f"{type(model).__name__} uses '{name}' quantized and as floats; a packed folder has only one of them"
            )
    layers = {f"{name}.weight": layer for name, layer in quantized_layers(model)}
    # A class other than the packed one, such as one with another head, may lack tensors; the packed one may not.
    is_packed_class = type(model).__name__ in (model.config.architectures or ())
    for name, parameter in model.state_dict().items():
        tensor = tensors.get(name)
        if tensor is None:
            if is_packed_class and name not in tied:  # transformers would initialize it at random and only warn
                raise PackedConfigError(f"the folder lacks the tensor '{name}' of {type(model).__name__}")
            continue
        if tensor.shape != tuple(parameter.shape):
            raise PackedConfigError(
                f"tensor '{name}' is {tensor.shape}, but {type(model).__name__} has {tuple(parameter.shape)}"
            )
        _check_kind(name, tensor, layers.get(name))


def _leave_out_pooler(model: PreTrainedModel, content: PackedModel) -> None:
    """Remove the pooler of a bare encoder whose folder has none, as of an embedder; it would be random."""
    family = family_of(model.config)
    pooler, _, dense = (family.w_p or "").partition(".")
    has_pooler = any(name.endswith(f"{family.w_p}.weight") for name in content.tensors)
    if dense and not has_pooler and model.base_model is model and getattr(model, pooler, None) is not None:
        setattr(model, pooler, None)


def coding_of(layer: QuantizedWeight, tensor: PackedTensor | Float | None) -> Coding:
    """How a layer's codes are stored in the folder, or would be if the folder lacks them."""
    return tensor.coding if isinstance(tensor, PackedTensor) else Coding(layer.bits, layer.scheme.levels)


def _check_kind(name: str, tensor: PackedTensor | Float, layer: QuantizedWeight | None) -> None:
    if not isinstance(tensor, PackedTensor):
        if layer is not None:
            raise PackedConfigError(f"the recipe quantizes '{name}', but the folder holds it as {tensor.dtype}")
        return
    if layer is None:
        raise PackedConfigError(f"the folder packs '{name}', but the recipe does not quantize it")
    expected = (layer.bits, layer.scheme.levels)
    if (tensor.bits, tensor.levels) != expected:
        raise PackedConfigError(
            f"tensor '{name}' has {tensor.bits} bits and {tensor.levels} levels; the recipe has {expected[0]} bits and "
            f"{expected[1]} levels"
        )


def _model_class(folder: str | Path, hub_options: dict[str, Any]) -> Any:
    name = _architecture(folder, hub_options)
    model_class = getattr(transformers, name, None)
    if not isinstance(model_class, type) or not issubclass(model_class, PreTrainedModel):
        raise UnsupportedModelError(f"{folder}: transformers {transformers.__version__} has no model class '{name}'")
    return model_class


def _architecture(folder: str | Path, hub_options: dict[str, Any]) -> str:
    """The class that config.json names; our errors about a folder come before those of transformers."""
    if Path(folder).is_dir():
        config = packed.read(Path(folder, hub_options.get("subfolder") or "")).config
    else:
        config = AutoConfig.from_pretrained(folder, **hub_options).to_dict()
        section = config.get("quantization_config") or {}
        if section.get("quant_method") != QUANT_METHOD:
            raise NotPackedError(f"{folder}: not packed by ternarybert; load it with transformers")
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or len(architectures) != 1 or not isinstance(architectures[0], str):
        raise UnsupportedModelError(f"{folder}: config.json does not name one model class in 'architectures'")
    return architectures[0]


class FromFolder(QuantizedWeight):
    """Mixin of a quantized layer that was loaded from a folder."""

    coding: Coding  # how its codes are stored
    origin: PackedTensor | None  # what it was loaded from; None after training

    def set_origin(self, codes: Tensor, scale: Tensor) -> Tensor:
        """Keep these as the origin, and return the weights that they represent."""
        rows, columns = self.weight.shape
        copies = (tensor.cpu().numpy().copy() for tensor in (codes, scale))  # the file may be overwritten
        self.origin = PackedTensor(self.coding.bits, self.coding.levels, self.coding.packing, (rows, columns), *copies)
        return self._dequantized(self.origin).to(codes.device)

    def use_origin(self) -> None:
        """Make the forward pass use the weight itself, which has the origin's values, without a copy."""
        self._cache = (self._state, self.weight.detach())

    def is_unchanged(self) -> bool:
        """Whether the weight still has the values of its origin; if not, the origin is dropped."""
        if self.origin is not None:
            expected = self._dequantized(self.origin).to(self.weight.device)
            if not torch.equal(self.weight.detach(), expected):
                self.origin = None
        return self.origin is not None

    def quantized(self) -> Quantized:
        """The origin's codes and scales or, after training, the quantizer's."""
        if not self.is_unchanged():
            return super().quantized()
        origin, device = cast(PackedTensor, self.origin), self.weight.device
        codes, scale = torch.from_numpy(origin.unpack()), torch.from_numpy(origin.scale)[:, None]
        return Quantized(codes.to(device), scale.to(device), None, self.weight.dtype)

    def packed(self, name: str) -> PackedTensor:
        """The current weight, packed; groups of rows are stored as one scale per row."""
        if self.is_unchanged():
            return cast(PackedTensor, self.origin)
        quantized, coding = super().quantized(), self.coding
        codes, scale = quantized.codes.cpu().numpy(), float32_array(name, quantized.scale)
        return PackedTensor.pack(codes, scale, bits=coding.bits, levels=coding.levels, packing=coding.packing)

    def _dequantized(self, packed: PackedTensor) -> Tensor:
        return torch.from_numpy(packed.dequantize()).to(self.weight.dtype)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Accept packed weights: Trainer loads its checkpoints, which are packed folders, this way."""
        codes, scale = (state_dict.pop(prefix + name, None) for name in (CODES, SCALE))
        if codes is not None and scale is not None:
            state_dict[prefix + "weight"] = self.set_origin(codes, scale)
        super()._load_from_state_dict(state_dict, prefix, *rest)


def float32_array(name: str, value: Tensor) -> npt.NDArray[np.float32]:
    """A tensor as float32 for a folder: float16 is widened, float64 is refused if it would be rounded."""
    wide = value if value.dtype is torch.float64 else value.float()
    return as_float32(name, wide.detach().cpu().numpy())


class LinearFromFolder(FromFolder, TernaryLinear):
    """A student's linear layer that was loaded from a folder."""


class EmbeddingFromFolder(FromFolder, TernaryEmbedding):
    """A student's word embedding that was loaded from a folder."""

    def forward(self, ids: Tensor) -> Tensor:
        """The quantized rows of `ids`, from the origin if there is one; the base class would quantize them again."""
        if self.origin is not None:
            self.w_hat()
        return super().forward(ids)


def convert_layer(layer: QuantizedWeight, coding: Coding) -> FromFolder:
    """Turn a student's layer, in place, into one that can be loaded from a folder."""
    layer.__class__ = LinearFromFolder if isinstance(layer, TernaryLinear) else EmbeddingFromFolder
    converted = cast(FromFolder, layer)
    converted.coding, converted.origin = coding, None
    return converted


def layers_from_folder(model: nn.Module) -> Iterator[tuple[str, FromFolder]]:
    """The layers that were loaded from a folder, and the names of their weights."""
    for name, layer in quantized_layers(model):
        if isinstance(layer, FromFolder):
            yield f"{name}.weight", layer
