"""TernaryBERT: a fine-tuned BERT with weights in {-1, 0, +1} and 8-bit activations, for plain CPUs."""

from importlib.metadata import version

__version__ = version("ternarybert")
