"""TernaryBERT: a fine-tuned BERT with weights in {-1, 0, +1} and 8-bit activations, for plain CPUs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ternarybert.distill.evaluate import evaluate
    from ternarybert.distill.finetune import finetune
    from ternarybert.distill.run import Settings as TrainingOptions
    from ternarybert.distill.ternarize import ternarize
    from ternarybert.hf import load_torch
    from ternarybert.recipe import Recipe
    from ternarybert.runtime.load import load
    from ternarybert.tasks import load_glue, load_squad, load_table

__version__ = "0.1.0"

__all__ = [
    "Recipe",
    "TrainingOptions",
    "evaluate",
    "finetune",
    "load",
    "load_glue",
    "load_squad",
    "load_table",
    "load_torch",
    "ternarize",
]

# The public names and where they live. They are imported on first use: most need torch, and whoever only runs a packed
# model has none.
_MODULES = {
    "Recipe": "ternarybert.recipe",
    "TrainingOptions": "ternarybert.distill.run",
    "evaluate": "ternarybert.distill.evaluate",
    "finetune": "ternarybert.distill.finetune",
    "load": "ternarybert.runtime",
    "load_glue": "ternarybert.tasks",
    "load_squad": "ternarybert.tasks",
    "load_table": "ternarybert.tasks",
    "load_torch": "ternarybert.hf",
    "ternarize": "ternarybert.distill.ternarize",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    module = import_module(_MODULES[name])
    return module.Settings if name == "TrainingOptions" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
