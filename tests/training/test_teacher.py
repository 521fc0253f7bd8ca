"""What a classroom does to a student before it learns."""

from functools import partial

import pytest
import torch

from ternarybert.compare.layers import BaselineLinear
from ternarybert.compare.models import quantize_model
from ternarybert.compare.quantizers import minmax
from ternarybert.recipe import PRESETS
from ternarybert.student import TernaryLinear, expose_scores, make_student
from ternarybert.training.options import Settings
from ternarybert.training.teacher import Classroom, StudentTrainer, shorten
from tests import tiny

SHORT = Settings(device="cpu", bf16=True)


def gradients(student):
    return {module.gradient_dtype for module in student.modules() if isinstance(module, TernaryLinear)}


@pytest.mark.parametrize("bits", ["2-2-8", "2-2-32"])
def test_bfloat16_is_for_the_gradients_of_quantized_students(bits):
    student = make_student(tiny.bert(), PRESETS["default"].with_bits(bits))
    assert not shorten(student, SHORT).bf16
    assert gradients(student) == {torch.bfloat16}
    assert not shorten(student, Settings(device="cpu")).bf16
    assert gradients(student) == {torch.float32}


@pytest.mark.parametrize("bf16", [True, False])
def test_its_teacher_is_asked_in_the_same(data, tmp_path, bf16):
    tokenizer = tiny.tokenizer()
    teacher, pupil = (expose_scores(tiny.bert(vocab_size=len(tokenizer))) for _ in range(2))
    room = Classroom.open(teacher, data, tokenizer)
    student, settings = make_student(pupil, PRESETS["default"]), Settings(device="cpu", bf16=bf16)
    trainer = room.trainer(StudentTrainer, student, PRESETS["default"], settings, tmp_path)
    assert (trainer.short_teacher, trainer.args.bf16) == (bf16, False)


def test_all_others_are_left_to_autocast(monkeypatch):
    assert shorten(make_student(tiny.bert(), PRESETS["default"].with_bits("32-2-8")), SHORT) is SHORT
    assert shorten(tiny.bert(), SHORT) is SHORT
    monkeypatch.setenv("TERNARYBERT_KERNEL", "portable")
    assert shorten(make_student(tiny.bert(), PRESETS["default"]), SHORT) is SHORT


def test_a_baseline_is_shortened_too():
    model = quantize_model(tiny.bert(), lambda _: partial(minmax, bits=8), activation_bits=8)
    assert not shorten(model, SHORT).bf16
    assert {layer.gradient_dtype for layer in model.modules() if isinstance(layer, BaselineLinear)} == {torch.bfloat16}
