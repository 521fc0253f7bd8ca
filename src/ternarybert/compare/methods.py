"""Every method of the comparison as a record: how a student is made of the teacher, and what it then learns from.

A method that trains uses the trainer of our own method. The ones that their papers train on labels have no distillation
terms, and the schedule and optimizer of `finetune`; post-training methods are done when they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

from ternarybert.compare.cells import PRODUCT, Widths
from ternarybert.compare.hessian import layer_sensitivities, mixed_bits, some_batches
from ternarybert.compare.layers import ProductQuantizer, block_noise, freeze_codes
from ternarybert.compare.models import QuantizableWeight, calibrate, layer_drop, quantize_model, shallower
from ternarybert.compare.quantizers import (
    BLOCK,
    NOISE_RATE,
    WeightQuantizer,
    gobo,
    grouped,
    minmax,
    symmetric,
    unquantized,
)
from ternarybert.errors import OptionError
from ternarybert.recipe import Bits, Distill, Recipe, Stage, WeightScheme
from ternarybert.student import make_student
from ternarybert.training.finetune import usual_schedule
from ternarybert.training.models import check_tokenizer, load_encoder, load_tokenizer, load_trained, set_dropout
from ternarybert.training.teacher import Classroom
from ternarybert.training.ternarize import check_depths

CALIBRATION = 8  # batches of 32 rows, from which post-training quantization takes the ranges of activations
FLOATS = Recipe(
    name="labels",
    bits=Bits(32, 32, 32),
    weight=WeightScheme("none"),
    embedding=WeightScheme("none"),
    distill=Distill(hidden=0.0, attention=0.0, logits=0.0, labels=1.0),
)
# TinyBERT learns the Transformer layers first and the predictions afterwards.
TINY_STAGES = (Stage(0.5, ("hidden", "attention")), Stage(0.5, ("logits",)))


@dataclass(frozen=True)
class Lesson:
    """What a method is given to make a student of."""

    room: Classroom
    teacher: str  # its folder or hub id
    bits: str
    recipe: Recipe  # of our own method, at these bits where it can have them
    seed: int = 42
    source: str | None = None  # another pre-trained model, where the method starts from one

    def copy(self) -> PreTrainedModel:
        """The teacher once more, to be changed."""
        return load_trained(self.teacher, self.room.head)

    @property
    def widths(self) -> Widths:
        """The bits as numbers."""
        return Widths.parse(self.bits)


@dataclass(frozen=True)
class Student:
    """What a method makes."""

    model: PreTrainedModel
    recipe: Recipe | None = None  # None: learns from labels, as a teacher does
    trains: bool = True
    callbacks: tuple[TrainerCallback, ...] = ()
    tokenizer: PreTrainedTokenizerBase | None = None  # where it does not read the teacher's tokens

    def lessons(self) -> Recipe:
        """What it learns from, and how fast."""
        return self.recipe or replace(FLOATS, schedule=usual_schedule(self.model.config))


def ternarybert(lesson: Lesson) -> Student:
    """Our own: quantized weights and activations, distillation; from the teacher, or from a pre-trained model."""
    pretrained = lesson.source
    if pretrained is None:
        return _distilled(lesson.copy(), lesson.recipe)
    start = load_encoder(pretrained, lesson.room.head, lesson.seed)
    start.config.id2label = lesson.room.teacher.config.id2label  # a new head: its outputs mean what the teacher's do
    check_depths(start, lesson.room.teacher, lesson.recipe)
    return _distilled(start, lesson.recipe)


def tinybert(lesson: Lesson) -> Student:
    """A student with half of the layers and a layer map, distilled in float32 or, at fewer bits, quantized too."""
    recipe = lesson.recipe.override({"distill.layer_map": "uniform"})
    if recipe.bits == FLOATS.bits:
        recipe = replace(recipe, stages=TINY_STAGES)
    return _distilled(shallower(lesson.copy()), recipe)


def q8bert(lesson: Lesson) -> Student:
    """Q8BERT, and at two bits Q2BERT: symmetric weights, moving-average ranges of activations."""
    widths = lesson.widths
    return Student(
        quantize_model(
            lesson.copy(),
            lambda place: partial(symmetric, bits=widths.e if place.is_embedding else widths.w),
            activation_bits=widths.a,
            symmetric=True,
        )
    )


def qbert(lesson: Lesson) -> Student:
    """Q-BERT: min-max in 128 groups; with two widths, the wider one for the layers where the loss curves most."""
    widths = lesson.widths
    depth = lesson.room.teacher.config.num_hidden_layers
    by_layer = [widths.w] * depth
    if widths.w_high is not None:
        by_layer = mixed_bits(layer_sensitivities(lesson.copy(), lesson.room), widths.w, widths.w_high)

    def quantizer(place: QuantizableWeight) -> WeightQuantizer:
        bits = widths.e if place.is_embedding else widths.w if place.layer is None else by_layer[place.layer]
        return partial(grouped, bits=bits)

    return Student(quantize_model(lesson.copy(), quantizer, activation_bits=widths.a))


def gobo_student(lesson: Lesson) -> Student:
    """GOBO: post-training, weights only."""
    return Student(_post_training(lesson, gobo), trains=False)


def minmax_student(lesson: Lesson) -> Student:
    """Plain post-training min-max: a range a matrix, and ranges of activations from a few training rows."""
    model = _post_training(lesson, minmax).to(lesson.room.teacher.device)
    calibrate(model, some_batches(lesson.room, CALIBRATION, 32, lesson.seed))
    return Student(model, trains=False)


def quant_noise(lesson: Lesson) -> Student:
    """Quant-Noise: product quantization, its centroids learned in the second half, or int8."""
    if lesson.bits == PRODUCT:
        model = quantize_model(
            lesson.copy(),
            lambda place: ProductQuantizer(place.module.weight),
            noise=block_noise(NOISE_RATE, BLOCK, proxy=True),
        )
        return Student(model, callbacks=(FreezeCodes(),))
    widths = lesson.widths
    model = quantize_model(
        lesson.copy(),
        lambda place: partial(minmax, bits=widths.e if place.is_embedding else widths.w),
        activation_bits=widths.a,
        noise=block_noise(NOISE_RATE, BLOCK, proxy=False),
    )
    return Student(model)


def layerdrop(lesson: Lesson, keep_every: int = 2) -> Student:
    """LayerDrop: random depth in training, every second or fourth layer afterwards."""
    return Student(layer_drop(lesson.copy(), keep_every))


def pretrained(lesson: Lesson) -> Student:
    """DistilBERT, ALBERT or any other encoder: fine-tuned on the labels."""
    if lesson.source is None:
        raise OptionError("this method is a pre-trained model, and none was named: --source METHOD=MODEL")
    model, tokenizer = load_encoder(lesson.source, lesson.room.head, lesson.seed), load_tokenizer(lesson.source)
    check_tokenizer(tokenizer, model)
    return Student(model, tokenizer=tokenizer)


METHODS: Mapping[str, Callable[[Lesson], Student]] = {
    "ternarybert": ternarybert,
    "tinybert": tinybert,
    "q2bert": q8bert,
    "q8bert": q8bert,
    "qbert": qbert,
    "gobo": gobo_student,
    "quant-noise": quant_noise,
    "minmax": minmax_student,
    "layerdrop": layerdrop,
    "layerdrop-quarter": partial(layerdrop, keep_every=4),
    "distilbert": pretrained,
    "albert": pretrained,
}


class FreezeCodes(TrainerCallback):  # type: ignore[misc]
    """Half of the way through, product quantization fixes its codes and goes on with the centroids."""

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Look whether it is time."""
        if 2 * state.global_step >= state.max_steps:
            freeze_codes(model)


def _distilled(start: PreTrainedModel, recipe: Recipe) -> Student:
    student = make_student(start, recipe)
    set_dropout(student, recipe.schedule.dropout)
    return Student(student, recipe)


def _post_training(lesson: Lesson, quantize: Callable[[Any, int], Any]) -> PreTrainedModel:
    widths = lesson.widths

    def quantizer(place: QuantizableWeight) -> WeightQuantizer:
        bits = widths.e if place.is_embedding else widths.w
        return unquantized if bits == 32 else partial(quantize, bits=bits)  # type: ignore[call-arg]

    return quantize_model(lesson.copy(), quantizer, activation_bits=widths.a)
