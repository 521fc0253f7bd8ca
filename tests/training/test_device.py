"""The precision in which students and their teacher compute."""

from functools import partial

import pytest
import torch

from ternarybert.compare.layers import BaselineLinear
from ternarybert.compare.models import quantize_model
from ternarybert.compare.quantizers import minmax
from ternarybert.recipe import PRESETS
from ternarybert.student import TernaryLinear, make_student
from ternarybert.training.device import set_precision
from ternarybert.training.options import TrainingOptions
from tests import tiny

SHORT = TrainingOptions(device="cpu", bf16=True)


def gradients(student):
    return {module.gradient_dtype for module in student.modules() if isinstance(module, TernaryLinear)}


@pytest.mark.parametrize("bits", ["2-2-8", "2-2-32"])
def test_bfloat16_is_for_the_gradients_of_quantized_students(bits):
    student = make_student(tiny.bert(), PRESETS["default"].with_bits(bits))
    assert not set_precision(student, SHORT)
    assert gradients(student) == {torch.bfloat16}
    assert not set_precision(student, TrainingOptions(device="cpu"))
    assert gradients(student) == {torch.float32}


def test_all_others_are_left_to_autocast(monkeypatch):
    assert set_precision(make_student(tiny.bert(), PRESETS["default"].with_bits("32-2-8")), SHORT)
    assert set_precision(tiny.bert(), SHORT)
    monkeypatch.setenv("TERNARYBERT_KERNEL", "portable")
    assert set_precision(make_student(tiny.bert(), PRESETS["default"]), SHORT)


def test_a_baseline_is_shortened_too():
    model = quantize_model(tiny.bert(), lambda _: partial(minmax, bits=8), activation_bits=8)
    assert not set_precision(model, SHORT)
    assert {layer.gradient_dtype for layer in model.modules() if isinstance(layer, BaselineLinear)} == {torch.bfloat16}
