"""Model families: one record each, and everything that the package knows about a family is in it.

A `Family` names the modules of an encoder as transformers names them, the keys of its config.json, its task heads, and
the few ways in which families compute differently. The student swaps layers by it, the packed folder is checked
against it, the engine is built from it. BERT, RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA and DistilBERT are post-LN
encoders with absolute positions and differ only in what a record holds.

To add a family, add a record to `FAMILIES`. A family whose arithmetic differs (MPNet adds a relative bias to the
attention scores) also needs that arithmetic, in `student`, `runtime.oracle` and the native library.

The quantized matrices go by the paper's symbols: the word embedding w_e; w_q, w_k, w_v, w_o, w_1 and w_2 in each layer;
and the pooler w_p. All other tensors stay float: position and token type embeddings, biases, LayerNorm, task heads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, lru_cache
from reprlib import repr as show  # values from a file can be arbitrarily long; messages must not be
from typing import Any, NamedTuple

from ternarybert.errors import PackedConfigError, UnsupportedModelError, suggest

Shapes = Mapping[str, tuple[int, ...]]

ANY = "any"  # a size that the configuration does not determine
SQUARE = ("hidden", "hidden")
MATRICES: Mapping[str, tuple[str, str]] = {  # the paper's matrices, and the names of their sizes: rows, columns
    "w_e": ("vocabulary", "embedding"),
    "w_q": SQUARE,
    "w_k": SQUARE,
    "w_v": SQUARE,
    "w_o": SQUARE,
    "w_1": ("intermediate", "hidden"),
    "w_2": ("hidden", "intermediate"),
    "w_p": SQUARE,
}
LAYER_MATRICES = ("w_q", "w_k", "w_v", "w_o", "w_1", "w_2")

# What config.json calls the sizes; the first key that is present counts.
_CONFIG_KEYS: Mapping[str, tuple[str, ...]] = {
    "vocabulary": ("vocab_size",),
    "embedding": ("embedding_size", "hidden_size"),  # ELECTRA's embeddings may be narrower than its layers
    "hidden": ("hidden_size",),
    "intermediate": ("intermediate_size",),
    "layers": ("num_hidden_layers",),
    "heads": ("num_attention_heads",),
    "positions": ("max_position_embeddings",),
    "token_types": ("type_vocab_size",),
    "labels": ("num_labels",),
}
_LARGEST_SIZE = 1 << 31
_DEFAULT_LABELS = 2  # of transformers, which does not write them into config.json


class HeadKind(Enum):
    """What a model predicts. The value is the end of the class name in transformers."""

    SEQUENCE_CLASSIFICATION = "ForSequenceClassification"
    TOKEN_CLASSIFICATION = "ForTokenClassification"
    QUESTION_ANSWERING = "ForQuestionAnswering"
    NONE = "Model"  # a bare encoder, or a head that the runtime does not run


@dataclass(frozen=True)
class HeadLayers:
    """The layers of a task head: the pooler or a dense layer, an activation function, a projection to the outputs."""

    projection: str | None = None
    outputs: str = "labels"  # the size that says how many outputs the projection has
    pooler: bool = False  # reads the output of the encoder's pooler
    dense: str | None = None
    activation: str = "tanh"  # after the pooler or the dense layer


class Module(NamedTuple):
    """A module with a weight: its name, the sizes of the weight's shape, and whether it has a bias, one per row."""

    name: str
    sizes: tuple[str, ...]
    bias: bool = True


class MatrixName(NamedTuple):
    """Which of the paper's matrices a tensor is; the layer is None outside the layers."""

    symbol: str
    layer: int | None

    def __str__(self) -> str:
        return self.symbol if self.layer is None else f"{self.symbol} of layer {self.layer}"


@dataclass(frozen=True, eq=False)
class Family:
    """One model family. The defaults are BERT's; names of modules are relative to the encoder or to a layer."""

    class_prefix: str  # "Bert" in BertForSequenceClassification
    encoder_prefix: str  # "bert" in bert.encoder.layer.0...: transformers' base_model_prefix
    heads: Mapping[str, HeadLayers]  # by the rest of the class name
    config_keys: Mapping[str, tuple[str, ...]]

    # Modules of the encoder
    w_e: str = "embeddings.word_embeddings"
    position_embedding: str = "embeddings.position_embeddings"
    token_type_embedding: str | None = "embeddings.token_type_embeddings"
    embedding_norm: str = "embeddings.LayerNorm"
    embedding_projection: str | None = None  # exists only where the embeddings are narrower than the layers
    layers: str = "encoder.layer"
    w_p: str | None = "pooler.dense"

    # Modules of a layer
    attention: str = "attention.self"  # computes attention; the query, key and value projections share their input
    w_q: str = "attention.self.query"
    w_k: str = "attention.self.key"
    w_v: str = "attention.self.value"
    w_o: str = "attention.output.dense"
    attention_norm: str = "attention.output.LayerNorm"
    w_1: str = "intermediate.dense"
    w_2: str = "output.dense"
    output_norm: str = "output.LayerNorm"

    # How it computes
    positions_follow_padding: bool = False  # the first token has position pad_token_id + 1, not 0
    uses_token_types: bool = True  # whether the tokenizer's token types are passed to the model
    activation_key: str = "hidden_act"  # in config.json
    norm_eps_key: str = "layer_norm_eps"
    default_norm_eps: float = 1e-12  # where config.json has none, as DistilBERT's

    def size(self, config: Mapping[str, Any], what: str) -> int:
        """A size of the model, such as "hidden", from its configuration."""
        return _size(config, what, self.config_keys[what])

    def optional_size(self, config: Mapping[str, Any], what: str) -> int | None:
        """The same, or None where the configuration leaves it open."""
        if any(key in config for key in self.config_keys.get(what, ())):
            return self.size(config, what)
        names = config.get("id2label") if what == "labels" else None
        return len(names) if isinstance(names, dict) and names else None

    def first_position(self, config: Any) -> int:
        """The position of the first token; `config` is a dictionary or a configuration of transformers."""
        if not self.positions_follow_padding:
            return 0
        padding = _get(config, "pad_token_id", 1)
        if type(padding) is not int or padding < 0:
            raise PackedConfigError(f"config.json has pad_token_id = {show(padding)}; positions are counted from it")
        return padding + 1

    def head(self, config: Mapping[str, Any]) -> HeadLayers:
        """The head of the class that the configuration names; an empty one if that is not a class of the family."""
        architectures = config.get("architectures")
        if isinstance(architectures, list) and len(architectures) == 1 and isinstance(architectures[0], str):
            for suffix, head in self.heads.items():
                if architectures[0] == self.class_prefix + suffix:
                    return head
        return HeadLayers()

    def prefix(self, names: Mapping[str, Any]) -> str:
        """What the encoder's tensor names start with: `bert.` in a model with a head, nothing in a bare encoder."""
        ending = f"{self.w_e}.weight"
        found = next((name for name in names if name == ending or name.endswith(f".{ending}")), ending)
        return found.removesuffix(ending)

    def modules(
        self, config: Mapping[str, Any], head: HeadLayers, *, prefix: str | None = None, pooler: bool = False
    ) -> Iterator[Module]:
        """Every module with a weight under its full name; `pooler` includes one that the head does not use."""
        start = f"{self.encoder_prefix}." if prefix is None else prefix
        for name, sizes, bias in self._encoder(config, pooler=pooler or head.pooler):
            yield Module(start + name, sizes, bias)
        if head.dense is not None:
            yield Module(head.dense, SQUARE)
        if head.projection is not None:
            yield Module(head.projection, (head.outputs, "hidden"))

    def _encoder(self, config: Mapping[str, Any], *, pooler: bool) -> Iterator[Module]:
        yield Module(self.w_e, MATRICES["w_e"], bias=False)
        yield Module(self.position_embedding, ("positions", "embedding"), bias=False)
        if self.token_type_embedding is not None:
            yield Module(self.token_type_embedding, ("token_types", "embedding"), bias=False)
        yield Module(self.embedding_norm, ("embedding",))
        if self.embedding_projection and self.size(config, "embedding") != self.size(config, "hidden"):
            yield Module(self.embedding_projection, ("hidden", "embedding"))
        for layer in range(self.size(config, "layers")):
            for symbol in LAYER_MATRICES:
                yield Module(f"{self.layers}.{layer}.{getattr(self, symbol)}", MATRICES[symbol])
            for norm in (self.attention_norm, self.output_norm):
                yield Module(f"{self.layers}.{layer}.{norm}", ("hidden",))
        if pooler and self.w_p is not None:
            yield Module(self.w_p, MATRICES["w_p"])

    @cached_property
    def matrix_pattern(self) -> str:
        """A regular expression for the names of the quantized weights; the group that matches is the symbol."""
        names = {symbol: getattr(self, symbol) for symbol in MATRICES}
        groups = {symbol: f"(?P<{symbol}>{re.escape(name)})" for symbol, name in names.items() if name is not None}
        inner = "|".join(groups.pop(symbol) for symbol in LAYER_MATRICES)
        layer = rf"{re.escape(self.layers)}\.(?P<layer>\d{{1,4}})\.(?:{inner})"
        return rf"(?:.*\.)?(?:{'|'.join(groups.values())}|{layer})\.weight"


def _heads(classifier: HeadLayers, **more: HeadLayers) -> dict[str, HeadLayers]:
    """The heads of a family by the end of their class names; language models have none that a packed folder holds."""
    return {
        "Model": HeadLayers(),
        "ForTokenClassification": HeadLayers("classifier"),
        "ForQuestionAnswering": HeadLayers("qa_outputs", ANY),
        "ForSequenceClassification": classifier,
        **more,
    }


_POOLED_CHOICE = HeadLayers("classifier", ANY, pooler=True)  # one score per choice, whatever the labels
_ROBERTA_HEADS = _heads(
    HeadLayers("classifier.out_proj", dense="classifier.dense"),
    ForMultipleChoice=_POOLED_CHOICE,
)
FAMILIES: dict[str, Family] = {
    "bert": Family(
        "Bert",
        "bert",
        _heads(
            HeadLayers("classifier", pooler=True),
            ForMultipleChoice=_POOLED_CHOICE,
            ForNextSentencePrediction=HeadLayers("cls.seq_relationship", ANY, pooler=True),
        ),
        _CONFIG_KEYS,
    ),
    **{
        model_type: Family(
            class_prefix,
            "roberta",
            _ROBERTA_HEADS,
            _CONFIG_KEYS,
            positions_follow_padding=True,
            uses_token_types=False,
        )
        for model_type, class_prefix in (
            ("roberta", "Roberta"),
            ("xlm-roberta", "XLMRoberta"),
            ("camembert", "Camembert"),
        )
    },
    "electra": Family(
        "Electra",
        "electra",
        _heads(
            HeadLayers("classifier.out_proj", dense="classifier.dense", activation="gelu"),
            ForMultipleChoice=HeadLayers("classifier", ANY),  # whether its summary has tensors depends on the config
            ForPreTraining=HeadLayers(
                "discriminator_predictions.dense_prediction", ANY, dense="discriminator_predictions.dense"
            ),
        ),
        _CONFIG_KEYS,
        embedding_projection="embeddings_project",
    ),
    "distilbert": Family(
        "DistilBert",
        "distilbert",
        _heads(
            HeadLayers("classifier", dense="pre_classifier", activation="relu"),
            ForMultipleChoice=HeadLayers("classifier", ANY, dense="pre_classifier", activation="relu"),
        ),
        {
            **_CONFIG_KEYS,
            "embedding": ("dim", "hidden_size"),
            "hidden": ("dim", "hidden_size"),
            "intermediate": ("hidden_dim", "intermediate_size"),
            "layers": ("n_layers", "num_hidden_layers"),
            "heads": ("n_heads", "num_attention_heads"),
        },
        token_type_embedding=None,
        layers="transformer.layer",
        w_p=None,
        attention="attention",
        w_q="attention.q_lin",
        w_k="attention.k_lin",
        w_v="attention.v_lin",
        w_o="attention.out_lin",
        attention_norm="sa_layer_norm",
        w_1="ffn.lin1",
        w_2="ffn.lin2",
        output_norm="output_layer_norm",
        uses_token_types=False,
        activation_key="activation",
    ),
}


def family_of(config: Any) -> Family:
    """The family of a model by its configuration, a dictionary or one of transformers; an error if it has no record."""
    family = known_family(config)
    if family is None:
        model_type = _get(config, "model_type", None)
        raise UnsupportedModelError(
            f"models of type '{model_type!s:.80}' are not supported{suggest(model_type, FAMILIES)}"
        )
    return family


def known_family(config: Any) -> Family | None:
    """The same, or None where there is no record."""
    model_type = _get(config, "model_type", None)
    return FAMILIES.get(model_type) if isinstance(model_type, str) else None


def max_tokens(config: Any) -> int | None:
    """How many tokens the model can read, also of a family without a record; None where the configuration is silent."""
    family = known_family(config)
    keys = (_CONFIG_KEYS if family is None else family.config_keys)["positions"]
    positions = next((value for key in keys if (value := _get(config, key, None)) is not None), None)
    if positions is None:
        return None
    return int(positions) - (0 if family is None else family.first_position(config))


def head_kind(config: Mapping[str, Any]) -> HeadKind:
    """What the model predicts, by the class that its configuration names."""
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or not architectures or not isinstance(architectures[0], str):
        raise PackedConfigError(
            f"config.json has architectures = {show(architectures)}; it must name the model's class"
        )
    return next((kind for kind in HeadKind if architectures[0].endswith(kind.value)), HeadKind.NONE)


def tensor_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Every tensor of the model that a configuration describes, by name; the configuration must give all sizes."""
    family, shapes = family_of(config), {}
    labels = family.optional_size(config, "labels") or _DEFAULT_LABELS
    for name, sizes, bias in family.modules(config, family.head(config)):
        # Where the configuration does not determine the outputs of a head, transformers makes one per label.
        shape = tuple(labels if what in ("labels", ANY) else family.size(config, what) for what in sizes)
        shapes[f"{name}.weight"] = shape
        if bias:
            shapes[f"{name}.bias"] = shape[:1]
    return shapes


def any_size(config: Mapping[str, Any], what: str) -> int:
    """A size of a model of any family, also of one without a record, under whichever key some family has for it."""
    keys = dict.fromkeys(key for family in FAMILIES.values() for key in family.config_keys[what])
    return _size(config, what, tuple(keys))


def find_matrix(name: str) -> MatrixName | None:
    """Which of the paper's matrices a tensor is in some family; None if it is not quantized."""
    for pattern in _patterns(tuple(FAMILIES.values())):
        if match := pattern.fullmatch(name):
            layer = match["layer"]
            return MatrixName(str(match.lastgroup), None if layer is None else int(layer))
    return None


def is_quantized(name: str, *, pooler: bool = True) -> bool:
    """Whether the paper quantizes this tensor; for the pooler that is a choice."""
    matrix = find_matrix(name)
    return matrix is not None and (pooler or matrix.symbol != "w_p")


def is_word_embedding(name: str) -> bool:
    """Whether this is the word embedding, whose bits and granularity are chosen separately."""
    matrix = find_matrix(name)
    return matrix is not None and matrix.symbol == "w_e"


def short_name(name: str) -> str:
    """A tensor's name for a table: layer.3.output.dense."""
    return _common_start(tuple(FAMILIES.values())).sub("", name).removesuffix(".weight")


def natural_order(name: str) -> list[str]:
    """A key to sort tensor names by: layer 2 before layer 10."""
    return [part.zfill(6) if part.isdecimal() else part for part in name.split(".")]


@lru_cache(maxsize=4)
def _patterns(families: tuple[Family, ...]) -> tuple[re.Pattern[str], ...]:
    """One pattern per spelling: most families share BERT's."""
    return tuple(re.compile(pattern) for pattern in dict.fromkeys(family.matrix_pattern for family in families))


@lru_cache(maxsize=4)
def _common_start(families: tuple[Family, ...]) -> re.Pattern[str]:
    """What tensor names start with before the parts that differ: `bert.`, `bert.encoder.`."""
    parents: set[str] = set()  # of the layers
    names: set[str] = set()  # the first parts of names that are shown in full
    for family in families:
        parent, _, layer = family.layers.rpartition(".")
        parents.add(re.escape(f"{parent}." if parent else ""))
        names |= {re.escape(name.partition(".")[0]) for name in (family.w_e, family.w_p, layer) if name}
    return re.compile(rf"^(\w+\.)?({'|'.join(parents)})?(?={'|'.join(names)})")


def _get(config: Any, key: str, default: object) -> Any:
    return config.get(key, default) if isinstance(config, Mapping) else getattr(config, key, default)


def _size(config: Mapping[str, Any], what: str, keys: tuple[str, ...]) -> int:
    for key in keys:
        if key in config:
            value = config[key]
            if type(value) is not int or not 0 < value <= _LARGEST_SIZE:
                raise PackedConfigError(f"config.json has {key} = {show(value)}; it must be a positive integer")
            return value
    raise PackedConfigError(f"config.json has no {what} size; expected the key {' or '.join(keys)}")
