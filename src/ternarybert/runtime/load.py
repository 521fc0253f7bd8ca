"""From a packed folder to a model that answers: read, checked, handed to the engine. Takes milliseconds.

MERGED-DOCS:
From a packed folder to a `Network`.

The folder's matrices were checked when it was read; here the rest of the tensors is, against the configuration. What
would need another computation than the engines' is refused by name, before anything is computed wrongly.

"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ternarybert import packed
from ternarybert.errors import NotPackedError, OptionError, PackedConfigError, UnsupportedModelError, nearby, suggest
from ternarybert.packed import PackedModel, PackedTensor
from ternarybert.packed.model import recipe_of
from ternarybert.recipe import TOKEN
from ternarybert.runtime.engine import Engine, thread_count
from ternarybert.runtime.families import FUNCTIONS, POOLER, Family, Kind, family_of, kind_of
from ternarybert.runtime.model import Classifier, Model, Tagger
from ternarybert.runtime.network import Floats, Function, Layer, Linear, Matrix, Network, Norm, Range, Runner, Sizes
from ternarybert.runtime.oracle import Oracle
from ternarybert.runtime.text import TextEncoder

_DISTILBERT_EPS = 1e-12  # its configuration has none
_WORD = "embeddings.word_embeddings.weight"
_REFUSED = {
    "is_decoder": "is a decoder",
    "is_encoder_decoder": "is an encoder and decoder",
    "add_cross_attention": "has cross-attention",
    "pruned_heads": "has pruned heads",
}
_FOR_C: tuple[Literal["C"], Literal["A"]] = ("C", "A")  # rows one behind the other, at addresses that C can read


def network_of(model: PackedModel) -> Network:
    """The network that a packed folder holds."""
    family, kind, recipe = family_of(model.config), kind_of(model.config), recipe_of(model)
    _refuse_other_computations(model.config)
    tensors = _Tensors(model, family)
    layers = tuple(_layer(tensors, family, i) for i in range(_number(model.config, "num_hidden_layers", "n_layers")))
    head = _head(tensors, family, kind)
    return Network(
        sizes=_sizes(tensors, family, len(layers), head),
        function=_function(model.config),
        norm_eps=float(model.config.get("layer_norm_eps", _DISTILBERT_EPS)),
        activation_bits=recipe.bits.a,
        # One range for the whole batch, as in the paper, would let answers depend on what else is in it.
        range=Range.TOKEN if recipe.activation.granularity == TOKEN else Range.SEQUENCE,
        symmetric=recipe.activation.scheme == "symmetric",
        clip=recipe.activation.clip,
        word=tensors.word,
        position=tensors.position,
        type=tensors.type,
        embedding_norm=tensors.norm("embeddings.LayerNorm"),
        layers=layers,
        dense=head.dense,
        dense_function=head.function,
        dense_quantized=head.is_pooler and recipe.pooler and recipe.bits.a != 32,
        head=head.projection,
    )


@dataclass(frozen=True, eq=False)
class _Head:
    """What reads the last hidden states."""

    dense: Linear | None = None
    function: Function = Function.IDENTITY
    is_pooler: bool = False  # the encoder's own, which recipes quantize
    projection: Linear | None = None


def _head(tensors: _Tensors, family: Family, kind: Kind) -> _Head:
    if kind == Kind.TOKENS:
        return _Head(projection=tensors.head("classifier"))
    if kind == Kind.QUESTIONS:
        return _Head(projection=tensors.head("qa_outputs"))
    if kind == Kind.ENCODER:
        pooled = tensors.has(f"{POOLER}.weight")
        return _Head(tensors.linear(POOLER), Function.TANH, is_pooler=True) if pooled else _Head()
    names = family.head
    if names.dense == POOLER:
        return _Head(tensors.linear(POOLER), names.function, True, tensors.head(names.projection))
    dense = tensors.head(names.dense, rows=tensors.hidden)
    return _Head(dense, names.function, False, tensors.head(names.projection))


class _Tensors:
    """The folder's tensors by the family's names, checked against the sizes of the model."""

    def __init__(self, model: PackedModel, family: Family) -> None:
        self._tensors = model.tensors
        # With a head, names begin with that of the encoder, such as `bert.`; in a plain encoder they do not.
        self._prefix = "" if _WORD in model.tensors else f"{family.prefix}."
        self.hidden = _number(model.config, "hidden_size", "dim")
        self.heads = _number(model.config, "num_attention_heads", "n_heads")
        self.intermediate = _number(model.config, "intermediate_size", "hidden_dim")
        self.first_position = _padding(model.config) + 1 if family.padded_positions else 0
        if self.hidden % self.heads:
            raise PackedConfigError(f"config.json has {self.heads} heads, which do not divide the width {self.hidden}")
        self.word = self.matrix(_WORD)
        _check_width(self.word.shape[1], self.hidden)
        self.position = self._table("embeddings.position_embeddings.weight")
        types = "embeddings.token_type_embeddings.weight"
        self.type = self._table(types) if self.has(types) else None

    def has(self, name: str) -> bool:
        """Whether the encoder has such a tensor."""
        return self._prefix + name in self._tensors

    def matrix(self, name: str, *, of_encoder: bool = True) -> Matrix:
        """A weight, packed or float."""
        name = self._prefix + name if of_encoder else name
        tensor = self._tensors.get(name)
        if tensor is None:
            raise PackedConfigError(f"the folder lacks the tensor '{name}'")
        return _aligned(tensor) if isinstance(tensor, PackedTensor) else _float32(tensor)

    def linear(self, name: str, rows: int | None = None, columns: int | None = None) -> Linear:
        """A linear layer of the encoder; hidden x hidden unless said otherwise."""
        return self._linear(self._prefix + name, rows or self.hidden, columns or self.hidden)

    def head(self, name: str, rows: int | None = None) -> Linear:
        """A linear layer of the task head; without `rows`, as many as it has."""
        return self._linear(name, rows, self.hidden)

    def norm(self, name: str) -> Norm:
        """A LayerNorm of the encoder."""
        weight, bias = (self._vector(f"{self._prefix}{name}.{part}", self.hidden) for part in ("weight", "bias"))
        return Norm(weight, bias)

    def _linear(self, name: str, rows: int | None, columns: int) -> Linear:
        weight = self.matrix(f"{name}.weight", of_encoder=False)
        _expect(f"{name}.weight", weight.shape, (rows or weight.shape[0], columns))
        has_bias = f"{name}.bias" in self._tensors
        return Linear(weight, self._vector(f"{name}.bias", weight.shape[0]) if has_bias else None)

    def _vector(self, name: str, length: int) -> Floats:
        vector = self._plain(name)
        _expect(name, vector.shape, (length,))
        return vector

    def _table(self, name: str) -> Floats:
        table = self._plain(self._prefix + name)
        _expect(self._prefix + name, table.shape, (len(table), self.hidden))
        return table

    def _plain(self, name: str) -> Floats:
        tensor = self.matrix(name, of_encoder=False)
        if isinstance(tensor, PackedTensor):
            raise UnsupportedModelError(f"the folder packs '{name}', which the runtime wants as floats")
        return tensor


def _layer(tensors: _Tensors, family: Family, index: int) -> Layer:
    at = f"{family.layers}.{index}."
    inner = tensors.intermediate
    return Layer(
        query=tensors.linear(at + family.query),
        key=tensors.linear(at + family.key),
        value=tensors.linear(at + family.value),
        attention_output=tensors.linear(at + family.attention_output),
        attention_norm=tensors.norm(at + family.attention_norm),
        up=tensors.linear(at + family.up, rows=inner),
        down=tensors.linear(at + family.down, columns=inner),
        output_norm=tensors.norm(at + family.output_norm),
    )


def _sizes(tensors: _Tensors, family: Family, layers: int, head: _Head) -> Sizes:
    if len(tensors.position) <= tensors.first_position:
        raise PackedConfigError(f"{len(tensors.position)} positions leave none for tokens")
    return Sizes(
        vocabulary=tensors.word.shape[0],
        hidden=tensors.hidden,
        heads=tensors.heads,
        intermediate=tensors.intermediate,
        layers=layers,
        positions=len(tensors.position),
        first_position=tensors.first_position,
        types=0 if tensors.type is None else len(tensors.type),
        dense=0 if head.dense is None else head.dense.weight.shape[0],
        head=0 if head.projection is None else head.projection.weight.shape[0],
    )


def check_computation(config: Mapping[str, Any]) -> None:
    """Refuse models of a known family that compute something which the runtime cannot, by their configuration."""
    _refuse_other_computations(config)
    _function(config)
    hidden = config.get("hidden_size")
    _check_width(config.get("embedding_size", hidden), hidden)


def _check_width(embedding: object, hidden: object) -> None:
    if embedding != hidden:
        raise UnsupportedModelError(
            f"the embeddings are {embedding} wide and the layers {hidden}; the runtime has no projection between them "
            "(as in small ELECTRA models)"
        )


def _refuse_other_computations(config: Mapping[str, Any]) -> None:
    positions = config.get("position_embedding_type") or "absolute"
    if positions != "absolute":
        raise UnsupportedModelError(f"the model has {positions} positions; the runtime knows only absolute ones")
    for key, what in _REFUSED.items():
        if config.get(key):
            raise UnsupportedModelError(f"the model {what} ({key} in config.json); the runtime runs plain encoders")


def _function(config: Mapping[str, Any]) -> Function:
    name = config.get("hidden_act", config.get("activation"))
    if name not in FUNCTIONS:
        raise UnsupportedModelError(
            f"the runtime does not know the activation function '{name}'{suggest(name, FUNCTIONS)}"
        )
    return FUNCTIONS[name]


def _number(config: Mapping[str, Any], *keys: str) -> int:
    """A size under one of its names; `packed` has checked those that decide the shapes of matrices."""
    value = next((config[key] for key in keys if key in config), None)
    if type(value) is not int or value < 1:
        raise PackedConfigError(f"config.json has {keys[0]} = {value!r:.40}; it must be a positive integer")
    return value


def _padding(config: Mapping[str, Any]) -> int:
    value = config.get("pad_token_id", 1)
    if type(value) is not int or value < 0:
        raise PackedConfigError(f"config.json has pad_token_id = {value!r:.40}; positions are counted from it on")
    return value


def _aligned(tensor: PackedTensor) -> PackedTensor:
    """The tensor with scales that C can read: other programs than ours may have put them at odd addresses."""
    if tensor.scale.flags.aligned:
        return tensor
    return replace(tensor, scale=np.require(tensor.scale, requirements=_FOR_C))


def _float32(tensor: Any) -> Floats:
    """Whole, aligned float32, as C reads it; what is stored in half precision becomes single."""
    return np.require(tensor, np.float32, _FOR_C)


def _expect(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if shape != expected:
        raise PackedConfigError(f"tensor '{name}' is {shape}, but the model wants {expected}")


ENGINES = ("native", "oracle")


def load(
    folder: str | Path,
    *,
    num_threads: int | None = None,
    kernel: str | None = None,
    engine: str = "native",
    max_length: int | None = None,
) -> Model:
    """Load a packed folder to run it without torch.

    `num_threads` is how many threads a call may use (else TERNARYBERT_THREADS, else all usable cores), `kernel` names
    one instead of the best (else TERNARYBERT_KERNEL), `engine="oracle"` computes in slow NumPy. Texts are cut at
    `max_length` tokens, or at what the model can read.
    """
    place, threads = _existing(Path(folder)), thread_count(num_threads)
    content = packed.read(place)
    network = network_of(content)
    family = family_of(content.config)
    text = TextEncoder(
        place, network.sizes.max_tokens, has_types=family.has_types and network.sizes.types > 1, max_length=max_length
    )
    kind, runner = kind_of(content.config), _runner(network, engine, threads, kernel)
    if kind == Kind.QUESTIONS:
        from ternarybert.runtime.model import Answerer  # late: other models need nothing of tasks/

        model: Model = Answerer(runner, text, content.config, threads)
    else:
        classes: dict[Kind, type[Model]] = {Kind.SEQUENCES: Classifier, Kind.TOKENS: Tagger}
        model = classes.get(kind, Model)(runner, text, content.config, threads)
    model.folder = place
    return model


def _runner(network: Network, engine: str, threads: int, kernel: str | None) -> Runner:
    if engine not in ENGINES:
        raise OptionError(f"unknown engine '{engine}'{suggest(engine, ENGINES)}")
    return Oracle(network) if engine == "oracle" else Engine(network, num_threads=threads, kernel=kernel)


def _existing(folder: Path) -> Path:
    if folder.is_dir():
        return folder
    raise NotPackedError(f"there is no folder '{folder}'{nearby(folder)}")
