"""TernaryBERT: a fine-tuned BERT with weights in {-1, 0, +1} and 8-bit activations, for plain CPUs.

    import ternarybert

    data = ternarybert.load_table("reviews.csv", text="review", label="mood")
    ternarybert.finetune("bert-base-uncased", data, "teacher")
    ternarybert.ternarize("teacher", data, "small")
    model = ternarybert.load("small")
    model.predict(["a fine film"])

Everything in `__all__` is public. Names are imported on first use: training needs torch, running a packed model does
not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "Model",
    "Recipe",
    "RunReport",
    "TaskData",
    "TrainingCallback",
    "TrainingOptions",
    "__version__",
    "compare_methods",
    "evaluate",
    "evaluate_embedder",
    "finetune",
    "load",
    "load_glue",
    "load_multi_label",
    "load_rankings",
    "load_squad",
    "load_table",
    "load_tags",
    "load_texts",
    "load_torch",
    "predict_file",
    "reproduce",
    "ternarize",
]

if TYPE_CHECKING:
    from ternarybert.compare.grid import compare_methods, reproduce
    from ternarybert.data import (
        TaskData,
        load_glue,
        load_multi_label,
        load_rankings,
        load_squad,
        load_table,
        load_tags,
        load_texts,
    )
    from ternarybert.embedding_evaluation import evaluate_embedder
    from ternarybert.hf import load_torch
    from ternarybert.recipe import Recipe
    from ternarybert.runtime.load import load
    from ternarybert.runtime.model import Model
    from ternarybert.runtime.predict_file import predict_file
    from ternarybert.training.callbacks import TrainingCallback
    from ternarybert.training.evaluate import evaluate
    from ternarybert.training.finetune import finetune
    from ternarybert.training.options import TrainingOptions
    from ternarybert.training.report import RunReport
    from ternarybert.training.ternarize import ternarize
else:
    # The module of each public name.
    _MODULES = {
        "Model": "ternarybert.runtime.model",
        "Recipe": "ternarybert.recipe",
        "RunReport": "ternarybert.training.report",
        "TaskData": "ternarybert.data",
        "TrainingCallback": "ternarybert.training.callbacks",
        "TrainingOptions": "ternarybert.training.options",
        "compare_methods": "ternarybert.compare.grid",
        "evaluate": "ternarybert.training.evaluate",
        "evaluate_embedder": "ternarybert.embedding_evaluation",
        "finetune": "ternarybert.training.finetune",
        "load": "ternarybert.runtime.load",
        "load_glue": "ternarybert.data",
        "load_multi_label": "ternarybert.data",
        "load_rankings": "ternarybert.data",
        "load_squad": "ternarybert.data",
        "load_table": "ternarybert.data",
        "load_tags": "ternarybert.data",
        "load_texts": "ternarybert.data",
        "load_torch": "ternarybert.hf",
        "predict_file": "ternarybert.runtime.predict_file",
        "reproduce": "ternarybert.compare.grid",
        "ternarize": "ternarybert.training.ternarize",
    }

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        from ternarybert.errors import name_missing_extras

        with name_missing_extras():
            value = getattr(import_module(_MODULES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
