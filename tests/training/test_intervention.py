"""Teacher intervention: the probability, the draw, and what a layer that is fed the teacher's input computes."""

import dataclasses

import pytest
import torch

from ternarybert.recipe import PRESETS
from ternarybert.training.intervention import TeacherInputs, fed_layers, intervention_probability
from tests import tiny
from tests.training.test_trainer import latent, make_trainer

RECIPE = PRESETS["default"].override({"schedule.learning_rate": "1e-3", "distill.intervention": 0.5})


def test_the_probability_falls_to_zero_over_the_share():
    assert [intervention_probability(done, 0.4) for done in (0, 0.1, 0.2, 0.4, 0.9)] == pytest.approx(
        [1, 0.75, 0.5, 0, 0]
    )
    assert intervention_probability(0.0, 0.0) == 0.0


def test_the_draw_depends_on_seed_and_step_alone():
    assert fed_layers(12, 0.5, 1, 7) == fed_layers(12, 0.5, 1, 7)
    assert len({tuple(fed_layers(12, 0.5, seed, step)) for seed in (1, 2) for step in (7, 8)}) == 4
    assert fed_layers(3, 1.0, 1, 0) == [True] * 3
    assert fed_layers(3, 0.0, 1, 0) == [False] * 3
    mean = sum(sum(fed_layers(12, 0.3, 5, step)) for step in range(500)) / 6000
    assert mean == pytest.approx(0.3, abs=0.03)


def test_a_layer_that_is_fed_computes_its_own_part_of_the_error(data, tmp_path):
    """Fed the teacher's states, layer l returns layer_l(H_(l-1)^T); the first state stays the student's own."""
    trainer, inputs = make_trainer(data, tmp_path, RECIPE), tiny.batch(vocabulary=60)
    weights = trainer.term_weights()
    trainer.model.eval()
    with torch.no_grad():
        teacher, alone = trainer.teacher_outputs(inputs, weights, None), trainer.student_outputs(inputs, weights)
        fed = trainer.student_outputs(inputs, weights, teacher, [False, True])
        both = trainer.student_outputs(inputs, weights, teacher, [True, True])
        layers = TeacherInputs(trainer.model).layers
        with TeacherInputs(trainer.model).feeding(teacher.hidden_states[:2], [True, True]):
            pass  # leaves no trace
        again = trainer.student_outputs(inputs, weights)
    real = inputs["attention_mask"].bool()
    for own in (fed, both, again):
        assert torch.equal(own.hidden_states[0], alone.hidden_states[0])
    assert torch.equal(fed.hidden_states[1], alone.hidden_states[1])
    assert not torch.equal(fed.hidden_states[2], alone.hidden_states[2])
    assert torch.equal(fed.hidden_states[2], both.hidden_states[2])
    assert torch.equal(again.logits, alone.logits)
    assert not torch.equal(both.hidden_states[1][real], alone.hidden_states[1][real])
    assert all(not layer._forward_pre_hooks for layer in layers)


def test_no_gradient_crosses_a_layer_that_is_fed(data, tmp_path):
    recipe = dataclasses.replace(RECIPE, distill=dataclasses.replace(RECIPE.distill, hidden=0.0, attention=0.0))
    trainer = make_trainer(data, tmp_path, recipe)
    trainer.batch_loss(tiny.batch(vocabulary=60)).backward()  # step 0: every layer is fed
    first, last = TeacherInputs(trainer.model).layers
    assert all(parameter.grad is None for parameter in first.parameters())
    assert any(parameter.grad is not None for parameter in last.parameters())


def test_micro_batches_add_up(data, tmp_path):
    settings = {"distill.normalize": "variance", "distill.attention_loss": "maps", "weight.method": "lsq"}
    recipe = RECIPE.override({**settings, "weight.granularity": "row", "embedding.method": "lsq"})
    whole = make_trainer(data, tmp_path / "a", recipe)
    parts = make_trainer(data, tmp_path / "b", recipe, accumulation=4)
    assert whole.variances == parts.variances
    whole.train()
    parts.train()
    assert (latent(whole) - latent(parts)).abs().mean() < 1e-6


def test_a_shallower_student_is_fed_the_layers_below_its_teachers(data, tmp_path):
    recipe = RECIPE.override({"distill.layer_map": "uniform"})
    trainer, inputs = make_trainer(data, tmp_path, recipe, layers=4), tiny.batch(vocabulary=60)
    seen = []
    for layer in TeacherInputs(trainer.model).layers:
        layer.register_forward_hook(lambda _, arguments, __: seen.append(arguments[0]))
    trainer.batch_loss(inputs)
    teacher = trainer.teacher_outputs(inputs, trainer.term_weights(), None)
    assert torch.equal(seen[0], teacher.hidden_states[0])
    assert torch.equal(seen[1], teacher.hidden_states[2])
