"""The student's forward pass against a NumPy BERT that shares no code with it, and what must never change it."""

import copy
import dataclasses

import numpy as np
import pytest
import torch

from ternarybert.recipe import PRESETS, SAMPLE, TENSOR, TOKEN, ActivationScheme
from ternarybert.student import make_student
from tests import tiny
from tests.student.numpy_bert import NumpyBert

# Both sides compute in float64. In float32 sums in another order can put an activation that lies near a rounding
# boundary on its other side, a step of 1/255 of its range, and nothing could be told from the difference.
FORWARD_TOLERANCE = 1e-9


@pytest.mark.parametrize(("preset", "mode"), [("reference", "reference"), ("default", "token")])
def test_equals_an_independent_numpy_computation(preset, mode):
    model = tiny.bert().double()
    state = {name: p.detach().numpy() for name, p in model.state_dict().items()}
    inputs = tiny.batch()
    student = make_student(model, PRESETS[preset].override({"weight.granularity": "layer"}))
    with torch.no_grad():
        ours = student(**inputs, output_hidden_states=True, output_attentions=True)
    oracle = NumpyBert(state, model.config, mode)
    logits, hidden, scores = oracle(*(inputs[k].numpy() for k in ("input_ids", "token_type_ids", "attention_mask")))
    real = inputs["attention_mask"].bool().numpy()
    np.testing.assert_allclose(ours.logits.numpy(), logits, atol=FORWARD_TOLERANCE)
    for mine, theirs in zip(ours.hidden_states, hidden, strict=True):
        assert np.abs(mine.numpy() - theirs)[real].max() < FORWARD_TOLERANCE
    for mine, theirs in zip(ours.attentions, scores, strict=True):
        pairs = (real[:, None, :, None] & real[:, None, None, :]).repeat(mine.shape[1], 1)
        assert np.abs(mine.numpy() - theirs)[pairs].max() < FORWARD_TOLERANCE


def test_32_bits_everywhere_is_the_model_itself():
    model, inputs = tiny.bert(), tiny.batch()
    with torch.no_grad():
        plain = model(**inputs).logits
        student = make_student(copy.deepcopy(model), PRESETS["paper"].with_bits("32-32-32"))
        assert torch.allclose(student(**inputs).logits, plain, atol=1e-6)


@pytest.mark.parametrize("granularity", [SAMPLE, TOKEN])
@pytest.mark.parametrize("scheme", ["minmax", "symmetric"])
def test_an_answer_depends_on_nothing_else_in_the_batch(granularity, scheme):
    recipe = dataclasses.replace(PRESETS["paper"], activation=ActivationScheme(scheme, granularity))
    student = make_student(tiny.bert(), recipe)
    inputs = tiny.batch(lengths=(9, 5, 7))
    with torch.no_grad():
        together = student(**inputs).logits
        for row, length in enumerate((9, 5, 7)):
            alone = student(**{name: value[row : row + 1, :length] for name, value in inputs.items()}).logits
            assert torch.allclose(together[row : row + 1], alone, atol=1e-6)


def test_one_range_for_the_batch_does_depend_on_it_but_not_on_padding():
    recipe = dataclasses.replace(PRESETS["paper"], activation=ActivationScheme("minmax", TENSOR))
    student = make_student(tiny.bert(), recipe)
    inputs = tiny.batch(lengths=(9, 5, 7))
    padded = {name: torch.nn.functional.pad(value, (0, 6)) for name, value in inputs.items()}
    with torch.no_grad():
        assert torch.allclose(student(**inputs).logits, student(**padded).logits, atol=1e-6)
        alone = student(**{name: value[1:2, :5] for name, value in inputs.items()}).logits
        assert not torch.allclose(student(**inputs).logits[1:2], alone, atol=1e-6)
