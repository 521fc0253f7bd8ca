"""Every tensor that a model has, matrices and the rest, with its shape: by family, and by model class for the head.

`names` knows the matrices of the paper, which every family has. This is the rest of it: a folder that lacks one
LayerNorm gives no answer, or one that was made up. What is not known here is not looked at: of a class that is not in
the table only the encoder, of another family nothing.

A table names modules, and what the sizes of their weight are called. All have a bias, as long as the weight has rows;
embeddings have none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ternarybert.errors import PackedConfigError
from ternarybert.packed.names import SIZES, Shapes, is_word_embedding, size

Modules = Mapping[str, tuple[str, ...]]

_ANY = "any"  # a size that the configuration does not tell
_WORDS = "embeddings.word_embeddings"
_HIDDEN, _SQUARE = ("hidden",), ("hidden", "hidden")

_EMBEDDINGS: Modules = {
    _WORDS: ("vocabulary", "embedding"),
    "embeddings.position_embeddings": ("positions", "embedding"),
    "embeddings.LayerNorm": ("embedding",),
}
_SEGMENTS: Modules = {"embeddings.token_type_embeddings": ("segments", "embedding")}
_PROJECTION: Modules = {"embeddings_project": ("hidden", "embedding")}
_POOLER: Modules = {"pooler.dense": _SQUARE}

_BERT_LAYER: Modules = {
    "attention.self.query": _SQUARE,
    "attention.self.key": _SQUARE,
    "attention.self.value": _SQUARE,
    "attention.output.dense": _SQUARE,
    "attention.output.LayerNorm": _HIDDEN,
    "intermediate.dense": ("intermediate", "hidden"),
    "output.dense": ("hidden", "intermediate"),
    "output.LayerNorm": _HIDDEN,
}
_DISTILBERT_LAYER: Modules = {
    "attention.q_lin": _SQUARE,
    "attention.k_lin": _SQUARE,
    "attention.v_lin": _SQUARE,
    "attention.out_lin": _SQUARE,
    "sa_layer_norm": _HIDDEN,
    "ffn.lin1": ("intermediate", "hidden"),
    "ffn.lin2": ("hidden", "intermediate"),
    "output_layer_norm": _HIDDEN,
}


@dataclass(frozen=True)
class Head:
    """What a model class has besides the encoder, and whether it needs the pooler."""

    modules: Modules = field(default_factory=dict)
    pooler: bool = False


_LABELS: Modules = {"classifier": ("labels", "hidden")}
_CHOICE: Modules = {"classifier": (_ANY, "hidden")}  # one score for each choice; labels do not count
_TWO_STEPS: Modules = {"classifier.dense": _SQUARE, "classifier.out_proj": ("labels", "hidden")}
_PRE: Modules = {"pre_classifier": _SQUARE}

# Language models are left out: what loads a packed folder refuses them, since they use the word embedding twice.
_COMMON = {
    "Model": Head(),
    "ForTokenClassification": Head(_LABELS),
    "ForQuestionAnswering": Head({"qa_outputs": (_ANY, "hidden")}),
}
_BERT_HEADS = _COMMON | {
    "ForSequenceClassification": Head(_LABELS, pooler=True),
    "ForMultipleChoice": Head(_CHOICE, pooler=True),
    "ForNextSentencePrediction": Head({"cls.seq_relationship": (_ANY, "hidden")}, pooler=True),
}
_ROBERTA_HEADS = _COMMON | {
    "ForSequenceClassification": Head(_TWO_STEPS),
    "ForMultipleChoice": Head(_CHOICE, pooler=True),
}
_ELECTRA_HEADS = _COMMON | {
    "ForSequenceClassification": Head(_TWO_STEPS),
    "ForMultipleChoice": Head(_CHOICE),  # its summary has tensors or not, as the configuration likes
    "ForPreTraining": Head(
        {"discriminator_predictions.dense": _SQUARE, "discriminator_predictions.dense_prediction": (_ANY, "hidden")}
    ),
}
_DISTILBERT_HEADS = _COMMON | {
    "ForSequenceClassification": Head({**_PRE, **_LABELS}),
    "ForMultipleChoice": Head({**_PRE, **_CHOICE}),
}


@dataclass(frozen=True)
class Family:
    """The tensors of a model type, and what its classes are called."""

    class_prefix: str
    embeddings: Modules
    layers: str
    layer: Modules
    heads: Mapping[str, Head]


_WITH_SEGMENTS = {**_EMBEDDINGS, **_SEGMENTS}
FAMILIES = {
    "bert": Family("Bert", _WITH_SEGMENTS, "encoder.layer", _BERT_LAYER, _BERT_HEADS),
    "roberta": Family("Roberta", _WITH_SEGMENTS, "encoder.layer", _BERT_LAYER, _ROBERTA_HEADS),
    "xlm-roberta": Family("XLMRoberta", _WITH_SEGMENTS, "encoder.layer", _BERT_LAYER, _ROBERTA_HEADS),
    "camembert": Family("Camembert", _WITH_SEGMENTS, "encoder.layer", _BERT_LAYER, _ROBERTA_HEADS),
    "electra": Family("Electra", _WITH_SEGMENTS, "encoder.layer", _BERT_LAYER, _ELECTRA_HEADS),
    "distilbert": Family("DistilBert", _EMBEDDINGS, "transformer.layer", _DISTILBERT_LAYER, _DISTILBERT_HEADS),
}


def check_complete(config: Mapping[str, Any], shapes: Shapes) -> None:
    """Refuse a model of a known family that lacks a tensor, or has it in another shape than its configuration says.

    `names.check_fit` comes first: the word embedding is there, and there are not more layers than tensors.
    """
    family = _family(config)
    if family is None:
        return
    owner, head = _class(family, config)
    for module, sizes in _modules(family, head, config, shapes):
        weight = _shape(f"{module}.weight", shapes, owner)
        expected = tuple(_size(config, what) for what in sizes)
        if len(weight) != len(expected) or any(b not in (None, a) for a, b in zip(weight, expected, strict=True)):
            wanted = ", ".join("any number" if n is None else str(n) for n in expected)
            raise PackedConfigError(f"tensor '{module}.weight' is {weight}, but config.json makes it ({wanted})")
        if not module.endswith("_embeddings"):
            bias = _shape(f"{module}.bias", shapes, owner)
            if bias != weight[:1]:
                raise PackedConfigError(f"tensor '{module}.bias' is {bias}, but its weight has {weight[0]} rows")


def _family(config: Mapping[str, Any]) -> Family | None:
    kind = config.get("model_type")
    return FAMILIES.get(kind) if isinstance(kind, str) else None


def _class(family: Family, config: Mapping[str, Any]) -> tuple[str, Head]:
    """The model class and its head; where config.json names none of ours, any encoder of the family."""
    named = config.get("architectures")
    if isinstance(named, list) and len(named) == 1 and isinstance(named[0], str):
        for suffix, head in family.heads.items():
            if named[0] == family.class_prefix + suffix:
                return named[0], head
    return f"a model of type '{config['model_type']}'", Head()


def _modules(
    family: Family, head: Head, config: Mapping[str, Any], shapes: Shapes
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """All modules under their full names, which in the encoder begin as that of the word embedding does."""
    prefix = next(name for name in shapes if is_word_embedding(name)).removesuffix(f"{_WORDS}.weight")
    encoder = dict(family.embeddings)
    if family.class_prefix == "Electra" and size(config, "embedding") != size(config, "hidden"):
        encoder |= _PROJECTION
    if head.pooler or f"{prefix}pooler.dense.weight" in shapes:
        encoder |= _POOLER
    for layer in range(size(config, "layers")):
        encoder |= {f"{family.layers}.{layer}.{module}": sizes for module, sizes in family.layer.items()}
    yield from ((prefix + module, sizes) for module, sizes in encoder.items())
    yield from head.modules.items()


def _shape(name: str, shapes: Shapes, owner: str) -> tuple[int, ...]:
    if name not in shapes:
        raise PackedConfigError(f"the tensor '{name}' is missing; {owner} has it")
    return shapes[name]


def _size(config: Mapping[str, Any], what: str) -> int | None:
    """A size that the configuration gives; None where it leaves it to the family's default."""
    if what == "labels" and "num_labels" not in config:
        labels = config.get("id2label")
        return len(labels) if isinstance(labels, dict) and labels else None
    return size(config, what) if any(key in config for key in SIZES.get(what, ())) else None
