"""Layers and attention that quantize, swapped into a Hugging Face model."""

from ternarybert.student.convert import expose_scores, make_student, quantized_layers
from ternarybert.student.layers import QuantizedWeight, TernaryEmbedding, TernaryLinear

__all__ = [
    "QuantizedWeight",
    "TernaryEmbedding",
    "TernaryLinear",
    "expose_scores",
    "make_student",
    "quantized_layers",
]
