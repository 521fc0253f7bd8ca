"""The methods of a comparison: how each makes a student from the teacher, and what the student is trained on.

A method that trains uses the same loop as our own. Methods that their papers train on labels have no distillation
terms, and the schedule and optimizer of `finetune`; a post-training student is finished when it is made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ternarybert.compare.cells import PRODUCT, Widths
from ternarybert.compare.hessian import layer_sensitivities, mixed_bits, some_batches
from ternarybert.compare.layers import ProductQuantizer, block_noise, freeze_codes
from ternarybert.compare.models import Place, calibrate, layer_drop, quantize_model, shallower
from ternarybert.compare.quantizers import BLOCK, RATE, WeightQuantizer, gobo, grouped, keep, minmax, symmetric
from ternarybert.errors import OptionError
from ternarybert.recipe import Bits, Recipe, Stage, WeightScheme
from ternarybert.student import make_student
from ternarybert.training.callbacks import TrainingCallback, TrainingProgress
from ternarybert.training.finetune import LABELS_ONLY, usual_schedule
from ternarybert.training.models import check_tokenizer, load_encoder, load_tokenizer, load_trained, set_dropout
from ternarybert.training.teacher import Teacher
from ternarybert.training.ternarize import check_depths

CALIBRATION = 8  # batches of 32 rows, from which post-training quantization takes the ranges of activations
FLOATS = Recipe(
    name="labels",
    bits=Bits(32, 32, 32),
    weight=WeightScheme("none"),
    embedding=WeightScheme("none"),
    distill=LABELS_ONLY,
)
# TinyBERT distills the Transformer layers first and the predictions afterwards.
TINY_STAGES = (Stage(0.5, ("hidden", "attention")), Stage(0.5, ("logits",)))


@dataclass(frozen=True)
class MethodInput:
    """What a method makes a student from."""

    teacher: Teacher
    folder: str  # of the teacher, or its hub id
    bits: str
    recipe: Recipe  # of our own method, at these bits where it supports them
    seed: int = 42
    source: str | None = None  # another pre-trained model, where the method starts from one

    def copy_teacher(self) -> PreTrainedModel:
        """A second copy of the teacher's model, to be changed."""
        return load_trained(self.folder, self.teacher.head)

    @property
    def widths(self) -> Widths:
        """The bits as numbers."""
        return Widths.parse(self.bits)


@dataclass(frozen=True)
class MethodStudent:
    """What a method makes."""

    model: PreTrainedModel
    recipe: Recipe | None = None  # None: trained on labels, as a teacher is
    trains: bool = True
    callbacks: tuple[TrainingCallback, ...] = ()
    tokenizer: PreTrainedTokenizerBase | None = None  # where it is not the teacher's

    def training_recipe(self) -> Recipe:
        """The recipe that it is trained with."""
        return self.recipe or replace(FLOATS, schedule=usual_schedule(self.model.config))


def ternarybert(given: MethodInput) -> MethodStudent:
    """Our own: quantized weights and activations, distillation; from the teacher, or from a pre-trained model."""
    pretrained = given.source
    if pretrained is None:
        return _distilled(given.copy_teacher(), given.recipe)
    start = load_encoder(pretrained, given.teacher.head, given.seed)
    start.config.id2label = given.teacher.model.config.id2label  # a new head: its outputs mean what the teacher's do
    check_depths(start, given.teacher.model, given.recipe)
    return _distilled(start, given.recipe)


def tinybert(given: MethodInput) -> MethodStudent:
    """A student with half of the layers and a layer map, distilled in float32 or, at fewer bits, quantized too."""
    recipe = given.recipe.override({"distill.layer_map": "uniform"})
    if recipe.bits == FLOATS.bits:
        recipe = replace(recipe, stages=TINY_STAGES)
    return _distilled(shallower(given.copy_teacher()), recipe)


def q8bert(given: MethodInput) -> MethodStudent:
    """Q8BERT, and at two bits Q2BERT: symmetric weights, moving-average ranges of activations."""
    widths = given.widths
    return MethodStudent(
        quantize_model(
            given.copy_teacher(),
            lambda place: partial(symmetric, bits=widths.e if place.is_embedding else widths.w),
            activation_bits=widths.a,
            symmetric=True,
        )
    )


def qbert(given: MethodInput) -> MethodStudent:
    """Q-BERT: min-max in 128 groups; with two widths, the wider one for the layers where the loss curves most."""
    widths = given.widths
    depth = given.teacher.model.config.num_hidden_layers
    by_layer = [widths.w] * depth
    if widths.w_high is not None:
        by_layer = mixed_bits(layer_sensitivities(given.copy_teacher(), given.teacher), widths.w, widths.w_high)

    def quantizer(place: Place) -> WeightQuantizer:
        bits = widths.e if place.is_embedding else widths.w if place.layer is None else by_layer[place.layer]
        return partial(grouped, bits=bits)

    return MethodStudent(quantize_model(given.copy_teacher(), quantizer, activation_bits=widths.a))


def gobo_student(given: MethodInput) -> MethodStudent:
    """GOBO: post-training, weights only."""
    return MethodStudent(_post_training(given, gobo), trains=False)


def minmax_student(given: MethodInput) -> MethodStudent:
    """Plain post-training min-max: a range a matrix, and ranges of activations from a few training rows."""
    model = _post_training(given, minmax).to(given.teacher.model.device)
    calibrate(model, some_batches(given.teacher, CALIBRATION, 32, given.seed))
    return MethodStudent(model, trains=False)


def quant_noise(given: MethodInput) -> MethodStudent:
    """Quant-Noise: product quantization, its centroids learned in the second half, or int8."""
    if given.bits == PRODUCT:
        model = quantize_model(
            given.copy_teacher(),
            lambda place: ProductQuantizer(place.module.weight),
            noise=block_noise(RATE, BLOCK, proxy=True),
        )
        return MethodStudent(model, callbacks=(FreezeCodes(),))
    widths = given.widths
    model = quantize_model(
        given.copy_teacher(),
        lambda place: partial(minmax, bits=widths.e if place.is_embedding else widths.w),
        activation_bits=widths.a,
        noise=block_noise(RATE, BLOCK, proxy=False),
    )
    return MethodStudent(model)


def layerdrop(given: MethodInput, keep_every: int = 2) -> MethodStudent:
    """LayerDrop: random depth in training, every second or fourth layer afterwards."""
    return MethodStudent(layer_drop(given.copy_teacher(), keep_every))


def pretrained(given: MethodInput) -> MethodStudent:
    """DistilBERT, ALBERT or any other encoder: fine-tuned on the labels."""
    if given.source is None:
        raise OptionError("this method is a pre-trained model, and none is given: --source METHOD=MODEL")
    model, tokenizer = load_encoder(given.source, given.teacher.head, given.seed), load_tokenizer(given.source)
    check_tokenizer(tokenizer, model)
    return MethodStudent(model, tokenizer=tokenizer)


METHODS: Mapping[str, Callable[[MethodInput], MethodStudent]] = {
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


class FreezeCodes(TrainingCallback):
    """Halfway through, product quantization fixes its codes and continues with the centroids alone."""

    def on_step(self, progress: TrainingProgress) -> None:
        """Freeze the codes in the second half."""
        if 2 * progress.step >= progress.steps:
            freeze_codes(progress.model)


def _distilled(start: PreTrainedModel, recipe: Recipe) -> MethodStudent:
    student = make_student(start, recipe)
    set_dropout(student, recipe.schedule.dropout)
    return MethodStudent(student, recipe)


def _post_training(given: MethodInput, quantize: Callable[[Any, int], Any]) -> PreTrainedModel:
    widths = given.widths

    def quantizer(place: Place) -> WeightQuantizer:
        bits = widths.e if place.is_embedding else widths.w
        return keep if bits == 32 else partial(quantize, bits=bits)  # type: ignore[call-arg]

    return quantize_model(given.copy_teacher(), quantizer, activation_bits=widths.a)
