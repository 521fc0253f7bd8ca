"""From float weights that hold ternary values to a packed model, and back to plain floats.

The released TernaryBERT code saves its quantized model as float32 tensors: every weight is -a, 0 or a, with one a for
the tensor or one per row. Nothing has to be quantized again; it is enough to see the pattern. What does not show it is
refused by name: rounding it here would give a model that nobody evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ternarybert.errors import NotTernaryError
from ternarybert.packed.manifest import Float
from ternarybert.packed.model import PackedModel
from ternarybert.packed.names import is_quantized
from ternarybert.packed.tensor import PackedTensor, as_float32

State = Mapping[str, npt.NDArray[Any]]


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

    Its clipping bounds (buffers named `*clip*`) are settings, not weights, and are left out: the recipe must tell how
    activations were quantized. What the configuration of that time does not name, the tensors tell: it is BERT, and
    its head is for GLUE or for SQuAD, or without a pooler for tokens.
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
    """The same model with its ternary codes packed otherwise."""
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
    """Make the plain float32 tensors that tools which know nothing of packing can load."""
    return {
        name: tensor.dequantize() if isinstance(tensor, PackedTensor) else np.array(tensor, np.float32)
        for name, tensor in model.tensors.items()
    }


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
    """Equal up to the last bit, which a multiplication on another device may round otherwise."""
    return high <= np.nextafter(low, np.float32(np.inf))


def _explain(name: str, magnitude: npt.NDArray[np.float32], row: int) -> str:
    in_row, in_all = (len(np.unique(part[part > 0])) for part in (magnitude[row], magnitude))
    return (
        f"tensor '{name}' should be ternary, but row {row} holds {in_row} distinct magnitudes and the whole tensor "
        f"{in_all}; pack the quantized checkpoint, not the one with latent weights"
    )
