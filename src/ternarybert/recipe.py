"""Recipes: everything that decides what a ternary model becomes, as one frozen value.

A `Recipe` is written to and read from YAML, is stored in the packed folder, and is checked when it is made: an unknown
field, a bad value or an impossible combination is a `RecipeError` that lists what is allowed. There are three presets:
`paper` is what the paper describes, `reference` what its released code computes, `default` what gives the best model.

Nothing here imports torch, because the runtime reads recipes too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ternarybert.errors import RecipeError, suggest
from ternarybert.recipe_io import (
    LONGEST_YAML,
    SWITCH,
    at_least,
    from_plain,
    one_of,
    positive_or_none,
    read_yaml,
    set_field,
    show,
    to_plain,
    write_yaml,
)


@dataclass(frozen=True)
class Granularity:
    """How many numbers share one scale.

    Weights: `LAYER` (the whole matrix), `ROW` (one per output neuron or vocabulary entry), `Granularity.group(k)`
    (k rows together). Activations: `TENSOR` (the whole batch, as in the paper), `SAMPLE` (one sequence), `TOKEN`
    (one row). In YAML they are the words `layer`, `row`, `group:8`, `tensor`, `sample`, `token`.
    """

    kind: str
    rows: int = 1

    def __post_init__(self) -> None:
        if self.kind not in (*_GRANULARITIES, "group"):
            allowed = [*_GRANULARITIES, "group:<rows>"]
            raise RecipeError(f"unknown granularity '{self.kind}'{suggest(self.kind, allowed)}")
        if self.rows < 1 or (self.rows > 1 and self.kind != "group"):
            raise RecipeError(
                f"a group needs at least 1 row, and only groups have rows; got {self.kind} of {self.rows}"
            )

    @classmethod
    def group(cls, rows: int) -> Granularity:
        """`rows` adjacent rows of a weight matrix share a scale."""
        return cls("group", rows)

    @classmethod
    def parse(cls, text: str) -> Granularity:
        """The granularity with this `str()`."""
        kind, _, rows = text.partition(":")
        if kind == "group" and rows.isdecimal():
            return cls.group(int(rows))
        return cls(text)

    def __str__(self) -> str:
        return f"group:{self.rows}" if self.kind == "group" else self.kind


_GRANULARITIES = ("layer", "row", "tensor", "sample", "token")
LAYER, ROW, TENSOR, SAMPLE, TOKEN = (Granularity(kind) for kind in _GRANULARITIES)
_WEIGHT_KINDS = ("layer", "row", "group")
_ACTIVATION_KINDS = ("tensor", "sample", "token")

# The bits that each quantizer supports. 32 bits means "not quantized".
METHOD_BITS: Mapping[str, tuple[int, ...]] = {
    "twn": (2,),
    "lat": (2,),
    "lsq": (2,),
    "laq": (2, 3, 4),
    "symmetric": (4, 8),
    "none": (32,),
}
_WEIGHT_BITS = (2, 3, 4, 8, 32)
_ACTIVATION_BITS = (4, 8, 32)


@dataclass(frozen=True)
class Bits:
    """Bits of weights, word embedding and activations, printed as in the paper: `2-2-8`."""

    w: int = 2
    e: int = 2
    a: int = 8

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("W", self.w, _WEIGHT_BITS),
            ("E", self.e, _WEIGHT_BITS),
            ("A", self.a, _ACTIVATION_BITS),
        ):
            if value not in allowed:
                raise RecipeError(f"{name} cannot have {value} bits; allowed: {', '.join(map(str, allowed))}")

    @classmethod
    def parse(cls, text: str) -> Bits:
        """`Bits.parse("2-2-8") == Bits(w=2, e=2, a=8)`."""
        parts = text.split("-")
        if len(parts) != 3 or not all(part.isdecimal() for part in parts):
            raise RecipeError(f"bits are written W-E-A, such as 2-2-8; got '{text}'")
        return cls(*map(int, parts))

    def __str__(self) -> str:
        return f"{self.w}-{self.e}-{self.a}"


@dataclass(frozen=True)
class WeightScheme:
    """How one kind of weight is quantized: Q_w.

    `twn` and `lat` compute α from the weights in every step; `lsq` learns α by gradient, starting from TWN's.
    """

    method: str = "twn"
    granularity: Granularity = LAYER
    exact: bool = False  # solve by sorting, not by the 0.7 rule (TWN) or by alternation (LAT)
    levels: str = "linear"  # LAQ: equidistant levels, or powers of two ("log")
    clip: float | None = None  # cut weights at +-clip first; their gradient is then zero outside
    alpha: str = "l1"  # LAQ: the authors' scale, or the minimizer ("least_squares")

    def __post_init__(self) -> None:
        one_of("method", self.method, METHOD_BITS)
        one_of("levels", self.levels, ("linear", "log"))
        one_of("alpha", self.alpha, ("l1", "least_squares"))
        positive_or_none("clip", self.clip)
        if self.granularity.kind not in _WEIGHT_KINDS:
            raise RecipeError(f"weights have granularity layer, row or group:<rows>, not '{self.granularity}'")
        if self.exact and self.method not in ("twn", "lat"):
            raise RecipeError(f"method '{self.method}' has no exact form; exact: true goes with: lat, twn")
        if self.levels == "log" and self.method != "laq":
            raise RecipeError(f"levels: log goes with method 'laq', not '{self.method}'")

    def check_bits(self, part: str, bits: int) -> None:
        """Raise unless the method supports this many bits."""
        if bits not in METHOD_BITS[self.method]:
            able = [name for name, possible in METHOD_BITS.items() if bits in possible]
            raise RecipeError(f"{part}: method '{self.method}' does not support {bits} bits; use {', '.join(able)}")
        if self.levels == "log" and bits not in (3, 4):
            raise RecipeError(f"{part}: levels: log goes with 3 or 4 bits, not {bits}")

    def for_bits(self, bits: int) -> WeightScheme:
        """The scheme itself if it supports that many bits, else the paper's choice for them (at 8: layer-wise)."""
        if bits in METHOD_BITS[self.method]:
            return self
        if bits == 8:
            return WeightScheme("symmetric", LAYER, clip=self.clip)
        method = {2: "twn", 3: "laq", 4: "laq", 32: "none"}[bits]
        alpha = "least_squares" if bits == 4 else self.alpha  # with the authors' scale, 4 bits are no better than 3
        return WeightScheme(method, self.granularity, alpha=alpha, clip=self.clip)


@dataclass(frozen=True)
class ActivationScheme:
    """How activations are quantized: the inputs of linear layers, Q, K, the softmax output and V."""

    scheme: str = "minmax"
    granularity: Granularity = TENSOR
    clip: float | None = None
    masked: bool = True  # ranges ignore padding

    def __post_init__(self) -> None:
        one_of("scheme", self.scheme, ("minmax", "symmetric"))
        positive_or_none("clip", self.clip)
        if self.granularity.kind not in _ACTIVATION_KINDS:
            raise RecipeError(f"activations have granularity tensor, sample or token, not '{self.granularity}'")


def _share(name: str, value: float) -> None:
    if not 0.0 <= value < 1.0:
        raise RecipeError(f"{name} must be in [0, 1), got {value}")


@dataclass(frozen=True)
class Distill:
    """The weights of the loss terms (0 or false disables one), how they are averaged, and what layers are fed.

    `L = hidden * Σ MSE(H_l^S, H_l^T) + attention * Σ MSE(A_l^S, A_l^T) + logits * SCE(P^S, P^T) + labels * CE(labels)`.

    With `normalize: variance` each MSE is divided by Var(H_l^T) or Var(A_l^T), the teacher's own variance in that
    layer, and the MSE of a regression's logits by Var(P^T). With `attention_loss: maps` the attention term is
    `Σ KL(softmax(A_l^T) ‖ softmax(A_l^S))`. Neither depends on the model's scale.
    """

    hidden: float = field(default=1.0, metadata=SWITCH)
    attention: float = field(default=1.0, metadata=SWITCH)
    logits: float = field(default=1.0, metadata=SWITCH)
    labels: float = field(default=0.0, metadata=SWITCH)
    masked: bool = True  # leave padding out of every term
    sce: str = (
        "example"  # "example": mean over examples; "element": also over classes or tokens, as in the released code
    )
    layer_map: str = "same"  # "same": student and teacher have the same depth; "uniform": every k-th teacher layer
    normalize: str = "none"  # "variance": squared errors relative to the teacher's variance in that layer
    attention_loss: str = "scores"  # "scores": squared error before the softmax; "maps": KL divergence after it
    intervention: float = 0.0  # share of the steps in which layers may get the teacher's input; p falls from 1 to 0

    def __post_init__(self) -> None:
        for name in ("hidden", "attention", "logits", "labels"):
            at_least(name, getattr(self, name), 0.0)
        one_of("normalize", self.normalize, ("none", "variance"))
        one_of("attention_loss", self.attention_loss, ("scores", "maps"))
        _share("intervention", self.intervention)
        one_of("sce", self.sce, ("element", "example"))
        one_of("layer_map", self.layer_map, ("same", "uniform"))

    @property
    def needs_teacher(self) -> bool:
        """Whether any term needs the teacher."""
        return any((self.hidden, self.attention, self.logits))


TERMS = ("hidden", "attention", "logits", "labels")


@dataclass(frozen=True)
class Stage:
    """A part of the training, as a share of its steps, in which only some loss terms count."""

    share: float = 1.0
    terms: tuple[str, ...] = TERMS

    def __post_init__(self) -> None:
        if not 0.0 < self.share <= 1.0:
            raise RecipeError(f"the share of a stage must be in (0, 1], got {self.share}")
        for term in self.terms:
            one_of("terms", term, TERMS)


ONE_STAGE = (Stage(),)
# First L_trm, then L (section 4.2). The paper does not say when the second starts; we take the middle.
TWO_STAGES = (Stage(0.5, ("hidden", "attention")), Stage(0.5))


@dataclass(frozen=True)
class Schedule:
    """Optimizer and batches. Values that are None depend on the task, as in section 4.1 of the paper.

    The learning rate η rises over `warmup`, then falls from `learning_rate` to `tail_rate * learning_rate` until the
    tail begins, and to 0 in the tail. Without a tail it falls to 0.
    """

    learning_rate: float = 2e-5
    epochs: float | None = None
    stretch: float = 1.0  # multiplies the task's epochs; ignored if `epochs` is set
    batch_size: int | None = None
    warmup: float = 0.0  # share of the steps with a linearly increasing learning rate
    weight_decay: float = 0.01
    gradient_clip: str = "none"  # "tensor": each tensor's norm clipped to 1, as released; "global": the total norm
    dropout: float | None = None  # None: as in the teacher's config
    pad: str = "dynamic"  # "dynamic": to the longest in a batch of similar lengths; "max": to max_length
    decay: str = "linear"  # how the learning rate falls: "linear" or "cosine"
    tail: float = 0.0  # share of the steps, at the end, with a low learning rate
    tail_rate: float = 0.05  # with which learning rate the tail begins, as a share of `learning_rate`
    average: float = 0.0  # evaluate and export an exponential average of w over about this share of the steps

    def __post_init__(self) -> None:
        for name in ("learning_rate", "epochs", "stretch", "batch_size"):
            positive_or_none(name, getattr(self, name))
        one_of("decay", self.decay, ("linear", "cosine"))
        for name in ("tail", "average"):
            _share(name, getattr(self, name))
        if not 0.0 <= self.tail_rate <= 1.0:
            raise RecipeError(f"tail_rate must be in [0, 1], got {self.tail_rate}")
        at_least("weight_decay", self.weight_decay, 0.0)
        one_of("gradient_clip", self.gradient_clip, ("none", "tensor", "global"))
        one_of("pad", self.pad, ("dynamic", "max"))
        for name in ("warmup", "dropout"):
            value = getattr(self, name)
            if value is not None:
                _share(name, value)
        if self.warmup + self.tail >= 1.0:
            raise RecipeError(f"warmup and tail together must be below 1, got {self.warmup} and {self.tail}")


@dataclass(frozen=True)
class Recipe:
    """All choices in one value. The defaults are the paper's TernaryBERT with TWN."""

    name: str = "custom"
    bits: Bits = Bits()
    weight: WeightScheme = WeightScheme()
    embedding: WeightScheme = WeightScheme(granularity=ROW)
    activation: ActivationScheme = ActivationScheme()
    pooler: bool = True  # also quantize the pooler, as the paper's model sizes imply
    distill: Distill = Distill()
    stages: tuple[Stage, ...] | None = None  # None: depends on the task as in the paper, see `for_task`
    schedule: Schedule = field(default_factory=Schedule)

    def __post_init__(self) -> None:
        self.weight.check_bits("weight", self.bits.w)
        self.embedding.check_bits("embedding", self.bits.e)
        stages = ONE_STAGE if self.stages is None else self.stages
        if not math.isclose(sum(stage.share for stage in stages), 1.0):
            shares = ", ".join(str(stage.share) for stage in stages)
            raise RecipeError(f"the shares of the stages must add up to 1, got {shares}")
        for number, stage in enumerate(stages, 1):
            if not any(getattr(self.distill, term) for term in stage.terms):
                raise RecipeError(f"stage {number} has no loss: all of its terms have weight 0")

    def with_bits(self, bits: str | Bits) -> Recipe:
        """The same recipe at other bits; where its method does not support them, with the paper's method for them."""
        bits = Bits.parse(bits) if isinstance(bits, str) else bits
        return dataclasses.replace(
            self, bits=bits, weight=self.weight.for_bits(bits.w), embedding=self.embedding.for_bits(bits.e)
        )

    def for_task(self, *, two_stages: bool) -> Recipe:
        """The same recipe with explicit stages: its own, or the paper's for such a task.

        Without L_trm there is no first stage.
        """
        if self.stages is not None:
            return self
        two_stages = two_stages and bool(self.distill.hidden or self.distill.attention)
        return dataclasses.replace(self, stages=TWO_STAGES if two_stages else ONE_STAGE)

    def override(self, settings: Mapping[str, object]) -> Recipe:
        """Change fields by dotted name, as in `--set distill.attention=false`; strings are parsed as YAML."""
        data = self.to_dict()
        for name, value in settings.items():
            set_field(data, name, value)
        changed = Recipe.from_dict(data)
        if changed.name in PRESETS and changed != PRESETS[changed.name]:  # a changed preset must not keep its name
            return dataclasses.replace(changed, name=f"{changed.name} (changed)")
        return changed

    def to_dict(self) -> dict[str, Any]:
        """The recipe as plain values, for YAML and JSON."""
        data = to_plain(self)
        assert isinstance(data, dict)
        return data

    @classmethod
    def from_dict(cls, data: object) -> Recipe:
        """The recipe from plain values; missing fields take their defaults."""
        recipe = from_plain(cls, data, "recipe")
        assert isinstance(recipe, cls)
        return recipe

    def to_yaml(self) -> str:
        """The recipe as YAML, fields in the order of the classes above."""
        return write_yaml(self.to_dict())

    @classmethod
    def from_yaml(cls, text: str) -> Recipe:
        """The recipe from YAML."""
        data = read_yaml(text, "the recipe")
        return cls.from_dict({} if data is None else data)

    @classmethod
    def load(cls, name_or_path: str | Path) -> Recipe:
        """A preset by its name, or a YAML file."""
        if str(name_or_path) in PRESETS:
            return PRESETS[str(name_or_path)]
        path = Path(name_or_path)
        try:
            with path.open(encoding="utf-8") as file:
                text = file.read(LONGEST_YAML + 1)  # `read_yaml` refuses it if there is more
        except UnicodeDecodeError:
            raise RecipeError(f"the recipe {path} is not UTF-8 text") from None
        except OSError:
            near = suggest(path.name, PRESETS)
            raise RecipeError(f"no recipe '{show(name_or_path)}': neither a file nor a preset{near}") from None
        return cls.from_yaml(text)


_REFERENCE_CLIP = 2.5

PRESETS: Mapping[str, Recipe] = {
    "paper": Recipe(name="paper"),
    "reference": Recipe(
        name="reference",
        weight=WeightScheme(clip=_REFERENCE_CLIP),
        embedding=WeightScheme(granularity=ROW, clip=_REFERENCE_CLIP),
        activation=ActivationScheme("symmetric", TENSOR, clip=_REFERENCE_CLIP, masked=False),
        distill=Distill(masked=False, sce="element"),
        stages=ONE_STAGE,  # the released code cannot train in two
        schedule=Schedule(warmup=0.1, gradient_clip="tensor", pad="max"),
    ),
    "default": Recipe(
        name="default",
        weight=WeightScheme(alpha="least_squares"),
        embedding=WeightScheme(granularity=ROW, alpha="least_squares"),
        activation=ActivationScheme("minmax", TOKEN),
        # The paper needs two stages because L_pred is too small next to L_trm; as a mean over examples it is not.
        stages=ONE_STAGE,
        # Dropout only adds noise to the distillation targets, and sampling it takes an eighth of the time.
        # A narrow BERT needs a much larger learning rate than the paper's 2e-5, and more steps
        # (docs/development/log.md).
        schedule=Schedule(learning_rate=2e-4, stretch=2.0, warmup=0.1, dropout=0.0),
    ),
}
