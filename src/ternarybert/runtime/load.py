"""From a packed folder to a model that predicts: read, checked, handed to an engine. Takes milliseconds.

`load` reads the folder, `network_of` turns its tensors into a `Network` by the record of the model's family
(families.py), an engine takes the network, and a class of model.py gives meaning to its outputs. A model that computes
something the engines cannot, such as relative positions, is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from reprlib import repr as show  # values from a file can be arbitrarily long; messages must not be
from typing import Any, Literal

import numpy as np

from ternarybert import packed
from ternarybert.errors import OptionError, PackedConfigError, UnsupportedModelError, suggest
from ternarybert.families import Family, HeadKind, HeadLayers, family_of, head_kind, known_family
from ternarybert.packed import PackedModel, PackedTensor
from ternarybert.packed.embedder_modules import EmbedderModules, has_modules, read_modules
from ternarybert.packed.model import check_modules, recipe_of
from ternarybert.recipe import TOKEN
from ternarybert.runtime.embedder import Embedder
from ternarybert.runtime.engine import Engine, thread_count
from ternarybert.runtime.installed import model_folder
from ternarybert.runtime.model import Answerer, Classifier, Model, Tagger
from ternarybert.runtime.network import Floats, Function, Layer, Linear, Matrix, Network, Norm, Range, Runner, Sizes
from ternarybert.runtime.oracle import Oracle
from ternarybert.runtime.text import TextEncoder

ENGINES = ("native", "oracle")
_MODELS: Mapping[HeadKind, type[Model]] = {
    HeadKind.SEQUENCE_CLASSIFICATION: Classifier,
    HeadKind.TOKEN_CLASSIFICATION: Tagger,
    HeadKind.QUESTION_ANSWERING: Answerer,
    HeadKind.NONE: Model,
}
_FUNCTIONS = {
    "gelu": Function.GELU,
    "gelu_new": Function.GELU_TANH,
    "gelu_pytorch_tanh": Function.GELU_TANH,
    "relu": Function.RELU,
}
_REFUSED = {
    "is_decoder": "is a decoder",
    "is_encoder_decoder": "is an encoder and decoder",
    "add_cross_attention": "has cross-attention",
    "pruned_heads": "has pruned heads",
}
_LARGEST_EPS = 1e6  # of LayerNorm; usual are 1e-12 and 1e-5
_FOR_C: tuple[Literal["C"], Literal["A"]] = ("C", "A")  # contiguous rows at aligned addresses


def load(
    folder: str | Path,
    *,
    num_threads: int | None = None,
    kernel: str | None = None,
    engine: str = "native",
    max_length: int | None = None,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
) -> Model:
    """Load a packed folder, an installed model by its name, or a model of the hub by its id, to run it without torch.

    `num_threads` limits the threads of a call (default: TERNARYBERT_THREADS, else all usable cores). `kernel` selects a
    kernel by name (default: TERNARYBERT_KERNEL, else the fastest). `engine="oracle"` computes in slow NumPy. Texts are
    truncated to `max_length` tokens, or to what the model can read. `revision`, `token` and `cache_dir` are for hub ids
    and mean what they mean in huggingface_hub.
    """
    hub_options = {"revision": revision, "token": token, "cache_dir": cache_dir}
    path, threads = model_folder(folder, **hub_options), thread_count(num_threads)
    content = packed.read(path)
    network = network_of(content)
    has_types = family_of(content.config).uses_token_types and network.sizes.types > 1
    sizes, modules = network.sizes, _embedder_modules(path, content, network)
    given_length = max_length
    if modules is not None and modules.max_length is not None and max_length is None:
        max_length = min(modules.max_length, sizes.max_tokens)
    text = TextEncoder(path, sizes.max_tokens, has_types=has_types, max_length=max_length, vocabulary=sizes.vocabulary)
    runner = _runner(network, engine, threads, kernel)
    model: Model
    if modules is None:
        model = _MODELS[head_kind(content.config)](runner, text, content.config, threads)
    else:
        model = Embedder(runner, text, content.config, threads, modules=modules)
    model.folder = path.absolute()
    model.load_options = {"num_threads": threads, "kernel": kernel, "engine": engine, "max_length": given_length}
    return model


def _embedder_modules(folder: Path, content: PackedModel, network: Network) -> EmbedderModules | None:
    """The modules behind an encoder; None if the folder has none, or has a task head."""
    if head_kind(content.config) != HeadKind.NONE or not has_modules(folder):
        return None
    modules = read_modules(folder)
    modules.check_width(network.sizes.hidden)
    return modules


def network_of(model: PackedModel) -> Network:
    """The network of a packed model."""
    config, recipe = model.config, recipe_of(model)
    family, kind = family_of(config), head_kind(config)
    check_computation(config)
    head_layers = family.heads.get(kind.value)
    if head_layers is None:
        raise UnsupportedModelError(f"the runtime cannot run {config['architectures'][0]}: its head is unknown")
    check_modules(family, head_layers, config, model.shapes)
    tensors = _Tensors(model, family)
    word, position, types = tensors.embeddings()
    head = _head(tensors, head_layers)
    return Network(
        sizes=_sizes(family, config, (word, position, types), head),
        function=_function(family, config),
        norm_eps=_norm_eps(family, config),
        activation_bits=recipe.bits.a,
        # One range for the whole batch, as in the paper, would make results depend on the rest of the batch.
        range=Range.TOKEN if recipe.activation.granularity == TOKEN else Range.SEQUENCE,
        symmetric=recipe.activation.scheme == "symmetric",
        clip=recipe.activation.clip,
        word=word,
        position=position,
        type=types,
        embedding_norm=tensors.norm(family.embedding_norm),
        layers=tuple(_layer(tensors, family, i) for i in range(family.size(config, "layers"))),
        dense=head.dense,
        dense_function=head.function,
        dense_quantized=head.is_pooler and recipe.pooler and recipe.bits.a != 32,
        head=head.projection,
    )


def check_computation(config: Mapping[str, Any]) -> None:
    """Refuse a model that computes something the engines cannot, by its configuration alone.

    A family without a record is not looked at: `family_of` refuses it.
    """
    family = known_family(config)
    if family is None:
        return
    positions = config.get("position_embedding_type") or "absolute"
    if positions != "absolute":
        raise UnsupportedModelError(f"the model has {positions} positions; the runtime supports only absolute ones")
    for key, what in _REFUSED.items():
        if config.get(key):
            raise UnsupportedModelError(f"the model {what} ({key} in config.json); the runtime runs plain encoders")
    _function(family, config)
    embedding, hidden = (family.size(config, what) for what in ("embedding", "hidden"))
    if embedding != hidden:
        raise UnsupportedModelError(
            f"the embeddings are {embedding} wide and the layers {hidden}; the runtime has no projection between them "
            "(as in small ELECTRA models)"
        )


class _Tensors:
    """A packed model's tensors by the family's names, as C reads them. `check_modules` has checked them."""

    def __init__(self, model: PackedModel, family: Family) -> None:
        self._tensors, self._family = model.tensors, family
        self._prefix = family.prefix(model.tensors)

    def embeddings(self) -> tuple[Matrix, Floats, Floats | None]:
        """The embeddings of words, of positions and, where the family has them, of token types."""
        types = self._family.token_type_embedding
        return (
            self._matrix(f"{self._prefix}{self._family.w_e}.weight"),
            self._floats(f"{self._prefix}{self._family.position_embedding}.weight"),
            None if types is None else self._floats(f"{self._prefix}{types}.weight"),
        )

    def linear(self, name: str) -> Linear:
        """A linear layer of the encoder."""
        return self.head_linear(self._prefix + name)

    def head_linear(self, name: str) -> Linear:
        """A linear layer of the task head."""
        return Linear(self._matrix(f"{name}.weight"), self._floats(f"{name}.bias"))

    def norm(self, name: str) -> Norm:
        """A LayerNorm of the encoder."""
        weight, bias = (self._floats(f"{self._prefix}{name}.{part}") for part in ("weight", "bias"))
        return Norm(weight, bias)

    def pooler(self) -> Linear | None:
        """The pooler, where the model has one."""
        name = self._family.w_p
        return None if name is None or f"{self._prefix}{name}.weight" not in self._tensors else self.linear(name)

    def _matrix(self, name: str) -> Matrix:
        tensor = self._tensors[name]
        if not isinstance(tensor, PackedTensor):
            return np.require(tensor, np.float32, _FOR_C)  # float16 is widened
        if tensor.scale.flags.aligned:
            return tensor
        return replace(tensor, scale=np.require(tensor.scale, requirements=_FOR_C))  # another program wrote the file

    def _floats(self, name: str) -> Floats:
        tensor = self._matrix(name)
        if isinstance(tensor, PackedTensor):
            raise UnsupportedModelError(f"the folder packs '{name}', which the runtime needs as floats")
        return tensor


@dataclass(frozen=True, eq=False)
class _NetworkHead:
    """The layers that read the last hidden states."""

    dense: Linear | None = None
    function: Function = Function.IDENTITY
    is_pooler: bool = False  # recipes quantize the pooler, never another head layer
    projection: Linear | None = None


def _head(tensors: _Tensors, head: HeadLayers) -> _NetworkHead:
    projection = None if head.projection is None else tensors.head_linear(head.projection)
    function = Function[head.activation.upper()]
    if head.dense is not None:
        return _NetworkHead(tensors.head_linear(head.dense), function, False, projection)
    # A bare encoder gives the output of its pooler, if it has one.
    if (head.pooler or projection is None) and (pooler := tensors.pooler()) is not None:
        return _NetworkHead(pooler, function, True, projection)
    return _NetworkHead(projection=projection)


def _layer(tensors: _Tensors, family: Family, index: int) -> Layer:
    start = f"{family.layers}.{index}."
    return Layer(
        query=tensors.linear(start + family.w_q),
        key=tensors.linear(start + family.w_k),
        value=tensors.linear(start + family.w_v),
        attention_output=tensors.linear(start + family.w_o),
        attention_norm=tensors.norm(start + family.attention_norm),
        up=tensors.linear(start + family.w_1),
        down=tensors.linear(start + family.w_2),
        output_norm=tensors.norm(start + family.output_norm),
    )


def _sizes(
    family: Family, config: Mapping[str, Any], embeddings: tuple[Matrix, Floats, Floats | None], head: _NetworkHead
) -> Sizes:
    word, position, types = embeddings
    hidden, heads = family.size(config, "hidden"), family.size(config, "heads")
    if hidden % heads:
        raise PackedConfigError(f"config.json has {heads} attention heads, which do not divide the width {hidden}")
    first = family.first_position(config)
    if len(position) <= first:
        raise PackedConfigError(f"there are {len(position)} positions, and the first token would have position {first}")
    return Sizes(
        vocabulary=word.shape[0],
        hidden=hidden,
        heads=heads,
        intermediate=family.size(config, "intermediate"),
        layers=family.size(config, "layers"),
        positions=len(position),
        first_position=first,
        types=0 if types is None else len(types),
        dense=0 if head.dense is None else head.dense.weight.shape[0],
        head=0 if head.projection is None else head.projection.weight.shape[0],
    )


def _norm_eps(family: Family, config: Mapping[str, Any]) -> float:
    value = config.get(family.norm_eps_key, family.default_norm_eps)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= _LARGEST_EPS:
        raise PackedConfigError(f"config.json has {family.norm_eps_key} = {show(value)}; it must be a small number")
    return float(value)


def _function(family: Family, config: Mapping[str, Any]) -> Function:
    name = config.get(family.activation_key)
    if not isinstance(name, str) or name not in _FUNCTIONS:
        raise UnsupportedModelError(
            f"the runtime does not support the activation function '{name!s:.80}'{suggest(name, _FUNCTIONS)}"
        )
    return _FUNCTIONS[name]


def _runner(network: Network, engine: str, threads: int, kernel: str | None) -> Runner:
    if engine not in ENGINES:
        raise OptionError(f"unknown engine '{engine}'{suggest(engine, ENGINES)}")
    return Oracle(network) if engine == "oracle" else Engine(network, num_threads=threads, kernel=kernel)
