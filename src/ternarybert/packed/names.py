"""Which tensors of a BERT-like model are quantized, by their Hugging Face names.

One row per matrix of the paper. BERT, RoBERTa and ELECTRA share names; DistilBERT spells its own. Everything that no
row names stays float: position and segment embeddings, biases, LayerNorm and the task head.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from reprlib import repr as show  # what others wrote may be endless; messages are not
from typing import Any

from ternarybert.errors import PackedConfigError

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Rule:
    """A matrix of the paper: its names, and what its shape is called in the model's configuration."""

    symbol: str
    names: re.Pattern[str]
    rows: str
    columns: str


def _rule(symbol: str, names: str, rows: str, columns: str) -> Rule:
    return Rule(symbol, re.compile(rf"(?:.*\.)?{names}\.weight"), rows, columns)


RULES = (
    _rule("w_e", r"embeddings\.word_embeddings", "vocabulary", "embedding"),
    _rule("w_q", r"layer\.(\d{1,4})\.attention\.(?:self\.query|q_lin)", "hidden", "hidden"),
    _rule("w_k", r"layer\.(\d{1,4})\.attention\.(?:self\.key|k_lin)", "hidden", "hidden"),
    _rule("w_v", r"layer\.(\d{1,4})\.attention\.(?:self\.value|v_lin)", "hidden", "hidden"),
    _rule("w_o", r"layer\.(\d{1,4})\.attention\.(?:output\.dense|out_lin)", "hidden", "hidden"),
    _rule("w_1", r"layer\.(\d{1,4})\.(?:intermediate\.dense|ffn\.lin1)", "intermediate", "hidden"),
    _rule("w_2", r"layer\.(\d{1,4})\.(?:output\.dense|ffn\.lin2)", "hidden", "intermediate"),
    _rule("w_p", r"pooler\.dense", "hidden", "hidden"),
)
_IN_EVERY_LAYER = ("w_q", "w_k", "w_v", "w_o", "w_1", "w_2")

# What each family calls a size; the first key present counts. ELECTRA's embedding may be narrower than its layers.
SIZES = {
    "vocabulary": ("vocab_size",),
    "embedding": ("embedding_size", "hidden_size", "dim"),
    "hidden": ("hidden_size", "dim"),
    "intermediate": ("intermediate_size", "hidden_dim"),
    "layers": ("num_hidden_layers", "n_layers"),
    "positions": ("max_position_embeddings",),
    "segments": ("type_vocab_size",),
    "labels": ("num_labels",),
}


def find_rule(name: str) -> tuple[Rule, int | None] | None:
    """Find the matrix of the paper that a tensor is, and its layer if it is in one."""
    for rule in RULES:
        if match := rule.names.fullmatch(name):
            return rule, int(match[1]) if match.lastindex else None
    return None


def is_quantized(name: str, *, pooler: bool = True) -> bool:
    """Tell whether the paper quantizes this tensor; for the pooler that is a choice."""
    found = find_rule(name)
    return found is not None and (pooler or found[0].symbol != "w_p")


def is_word_embedding(name: str) -> bool:
    """Tell whether this is the word embedding, whose bits and granularity are chosen apart from the rest."""
    found = find_rule(name)
    return found is not None and found[0].symbol == "w_e"


def short_name(name: str) -> str:
    """The name without what all have in common: layer.3.output.dense."""
    return re.sub(r"^(\w+\.)?((encoder|transformer)\.)?(?=embeddings|layer|pooler)", "", name).removesuffix(".weight")


def in_order(name: str) -> list[str]:
    """A key to sort names by: layer 2 before layer 10."""
    return [part.zfill(6) if part.isdecimal() else part for part in name.split(".")]


def check_fit(config: Mapping[str, Any], shapes: Shapes) -> None:
    """Refuse matrices that are not those of the model which the configuration describes."""
    seen: dict[tuple[str, int | None], str] = {}
    for name, shape in shapes.items():
        if found := find_rule(name):
            rule, layer = found
            if (other := seen.setdefault((rule.symbol, layer), name)) != name:
                raise PackedConfigError(f"'{other}' and '{name}' are both {_which(rule.symbol, layer)}")
            expected = (size(config, rule.rows), size(config, rule.columns))
            if shape != expected:
                raise PackedConfigError(f"tensor '{name}' is {shape}, but config.json makes it {expected}")
    layers = size(config, "layers")
    if layers > len(shapes):
        raise PackedConfigError(
            f"config.json describes a model of {layers} layers, but there are {len(shapes)} tensors"
        )
    expected_matrices = {("w_e", None), *((symbol, layer) for symbol in _IN_EVERY_LAYER for layer in range(layers))}
    _compare(expected_matrices, seen.keys() - {("w_p", None)}, layers)


def _compare(expected: set[tuple[str, int | None]], seen: set[tuple[str, int | None]], layers: int) -> None:
    if expected != seen:
        which = "lack" if expected - seen else "have"
        symbol, layer = min(expected - seen or seen - expected, key=str)
        raise PackedConfigError(
            f"config.json describes a model of {layers} layers, but the tensors {which} {_which(symbol, layer)}"
        )


def _which(symbol: str, layer: int | None) -> str:
    return symbol if layer is None else f"{symbol} of layer {layer}"


def size(config: Mapping[str, Any], what: str) -> int:
    """A size of the model, by whichever key its family gives it."""
    for key in SIZES[what]:
        if key in config:
            value = config[key]
            if type(value) is not int or not 0 < value <= 1 << 31:
                raise PackedConfigError(f"config.json has {key} = {show(value)}; it must be a positive integer")
            return value
    raise PackedConfigError(f"config.json does not say its {what} size; expected the key {' or '.join(SIZES[what])}")
