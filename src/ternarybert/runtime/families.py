"""What each model family calls its tensors, and how it builds its task heads.

BERT, RoBERTa, XLM-RoBERTa, CamemBERT and ELECTRA share one layout, DistilBERT has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ternarybert.errors import PackedConfigError, UnsupportedModelError, suggest
from ternarybert.runtime.network import Function


class Kind(Enum):
    """What a model is for: the end of its class name."""

    SEQUENCES = "ForSequenceClassification"
    TOKENS = "ForTokenClassification"
    QUESTIONS = "ForQuestionAnswering"
    ENCODER = "Model"  # and whatever else has no head that runs here


@dataclass(frozen=True)
class ClassifierHead:
    """The head of a sequence classifier, as a family builds it: dense, function, projection."""

    dense: str
    function: Function
    projection: str


@dataclass(frozen=True)
class Family:
    """A family's names; those of layers are relative to a layer, others to the encoder."""

    prefix: str  # of the encoder in a model with a head
    head: ClassifierHead
    layers: str = "encoder.layer"
    query: str = "attention.self.query"
    key: str = "attention.self.key"
    value: str = "attention.self.value"
    attention_output: str = "attention.output.dense"
    attention_norm: str = "attention.output.LayerNorm"
    up: str = "intermediate.dense"
    down: str = "output.dense"
    output_norm: str = "output.LayerNorm"
    padded_positions: bool = False  # positions are counted from the padding index + 1 on
    has_types: bool = True  # whether the tokenizer's token types are used


POOLER = "pooler.dense"
_ROBERTA = Family(
    "roberta",
    ClassifierHead("classifier.dense", Function.TANH, "classifier.out_proj"),
    padded_positions=True,
    has_types=False,
)
FAMILIES = {
    "bert": Family("bert", ClassifierHead(POOLER, Function.TANH, "classifier")),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
    "camembert": _ROBERTA,
    "electra": Family("electra", ClassifierHead("classifier.dense", Function.GELU, "classifier.out_proj")),
    "distilbert": Family(
        "distilbert",
        ClassifierHead("pre_classifier", Function.RELU, "classifier"),
        layers="transformer.layer",
        query="attention.q_lin",
        key="attention.k_lin",
        value="attention.v_lin",
        attention_output="attention.out_lin",
        attention_norm="sa_layer_norm",
        up="ffn.lin1",
        down="ffn.lin2",
        output_norm="output_layer_norm",
        has_types=False,
    ),
}
FUNCTIONS = {
    "gelu": Function.GELU,
    "gelu_new": Function.GELU_TANH,
    "gelu_pytorch_tanh": Function.GELU_TANH,
    "relu": Function.RELU,
}


def family_of(config: Mapping[str, Any]) -> Family:
    """The family of a configuration, or an error that names it."""
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise UnsupportedModelError(f"the runtime cannot run models of type '{kind}'{suggest(kind, FAMILIES)}")
    return FAMILIES[kind]


def kind_of(config: Mapping[str, Any]) -> Kind:
    """What the model is for, by the class that its configuration names."""
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not isinstance(names[0], str):
        raise PackedConfigError("config.json does not name the model's class (architectures)")
    return next((kind for kind in Kind if names[0].endswith(kind.value)), Kind.ENCODER)
