"""TernaryBERT: a fine-tuned BERT with weights in {-1, 0, +1} and 8-bit activations, for plain CPUs."""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

# The public verbs and where they live. They are imported on first use: most need torch, and whoever only runs a packed
# model has none.
_VERBS = {
    "evaluate": "ternarybert.training.evaluate",
    "finetune": "ternarybert.training.finetune",
    "load": "ternarybert.runtime",
    "load_torch": "ternarybert.hf",
    "ternarize": "ternarybert.training.ternarize",
}


def __getattr__(name: str) -> Any:
    if name not in _VERBS:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(_VERBS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_VERBS])
