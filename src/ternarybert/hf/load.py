"""One call from a packed folder to a torch model, with the head that it was trained with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig, PreTrainedModel

from ternarybert import packed
from ternarybert.errors import NotPackedError, UnsupportedModelError
from ternarybert.packed.manifest import QUANT_METHOD

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
