"""What a classroom does to a student before it learns."""

import torch

from ternarybert.distill.classroom import shorten
from ternarybert.distill.run import Settings
from ternarybert.recipe import PRESETS
from ternarybert.student import TernaryLinear, make_student
from tests import tiny

SHORT = Settings(device="cpu", bf16=True)


def gradients(student):
    return {module.gradients for module in student.modules() if isinstance(module, TernaryLinear)}


def test_bfloat16_is_for_the_gradients_of_students_that_multiply_integers():
    student = make_student(tiny.bert(), PRESETS["default"])
    assert not shorten(student, SHORT).bf16
    assert gradients(student) == {torch.bfloat16}
    assert not shorten(student, Settings(device="cpu")).bf16
    assert gradients(student) == {torch.float32}


def test_all_others_are_left_to_autocast(monkeypatch):
    for bits in ("2-2-32", "32-2-8"):
        assert shorten(make_student(tiny.bert(), PRESETS["default"].with_bits(bits)), SHORT) is SHORT
    assert shorten(tiny.bert(), SHORT) is SHORT
    monkeypatch.setenv("TERNARYBERT_KERNEL", "portable")
    assert shorten(make_student(tiny.bert(), PRESETS["default"]), SHORT) is SHORT
