"""transformers' own hooks for quantized models, filled in.

`from_pretrained` reads `quantization_config.quant_method` and asks the quantizer registered under that name:

1. before the weights are loaded: the folder is read and checked as a whole, and the empty model becomes a student
2. while they are loaded: `X.weight.codes` and `X.weight.scale` become `X.weight` (`Unpack`)
3. after that: the student uses these weights as they are

`save_pretrained` asks it for what to write: packed tensors again, with a list of them in `quantization_config`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import ConversionOps, WeightConverter
from transformers.quantizers import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from ternarybert import packed
from ternarybert.errors import UnsafeFileError
from ternarybert.hf.fit import check_fit, coding_of, tensors_by_model_name
from ternarybert.hf.layers import CODES, SCALE, FromFolder, adopt, float32_array, layers_from_folder
from ternarybert.packed.file import WEIGHTS
from ternarybert.packed.manifest import FORMAT_VERSION, QUANT_METHOD, arrays, describe
from ternarybert.packed.recipe import recipe_of
from ternarybert.student import make_student, quantized_layers


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
