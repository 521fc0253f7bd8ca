"""Runs packed models without torch: NumPy, tokenizers and the native library.

`load` returns a model with `predict`, `logits` and `encode`. `engine.py` runs it in C; `oracle.py` defines in NumPy
what the engine must compute. Documentation: docs/how-to/predict.md.
"""

from ternarybert.native import kernels
from ternarybert.runtime.embedder import Embedder
from ternarybert.runtime.engine import Engine
from ternarybert.runtime.load import load
from ternarybert.runtime.model import Classifier, Model, Tagger
from ternarybert.runtime.oracle import Oracle
from ternarybert.runtime.results import Answer, Label, Labels, Number, RankedText, Tags, Word

__all__ = [
    "Answer",
    "Classifier",
    "Embedder",
    "Engine",
    "Label",
    "Labels",
    "Model",
    "Number",
    "Oracle",
    "RankedText",
    "Tagger",
    "Tags",
    "Word",
    "kernels",
    "load",
]
