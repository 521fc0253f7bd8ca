"""TernaryBERT: a fine-tuned BERT with weights in {-1, 0, +1} and 8-bit activations, for plain CPUs."""

from importlib import import_module
from importlib.metadata import version
from typing import Any

__version__ = version("ternarybert")

# Public verbs and where they live. Imported when they are first used: nobody pays for torch who only runs a model.
_VERBS = {"load_torch": "ternarybert.hf"}


def __getattr__(name: str) -> Any:
    if name not in _VERBS:
        raise AttributeError(f"module 'ternarybert' has no attribute '{name}'")
    return getattr(import_module(_VERBS[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_VERBS])
