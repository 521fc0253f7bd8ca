"""The average of the weights: its formula, and that it is what is evaluated while training continues as ever."""

import pytest
import torch
from torch import nn

from ternarybert.recipe import PRESETS
from ternarybert.training.average import AverageWeights
from tests.training.test_trainer import latent, make_trainer

RECIPE = PRESETS["default"].override({"schedule.learning_rate": "1e-3"})


def test_it_is_a_mean_at_first_and_forgets_later():
    model = nn.Linear(1, 1, bias=False)
    average, values = AverageWeights(model, 0.2), [3.0, 5.0, 1.0, 9.0]
    seen = []
    for step, value in enumerate(values, 1):
        with torch.no_grad():
            model.weight.fill_(value)
        average.update(step, 10)
        seen.append(float(average.state()[0]))
    assert seen == pytest.approx([3.0, 4.0, 2.5, 5.75])  # n = 2: means of 1 and 2 steps, then half the way each time


def test_the_model_has_it_for_an_evaluation_only(data, tmp_path):
    plain = make_trainer(data, tmp_path / "a", RECIPE)
    plain.train()
    trainer = make_trainer(data, tmp_path / "b", RECIPE.override({"schedule.average": 0.9}))
    trainer.train()
    assert torch.equal(latent(trainer), latent(plain))
    own = latent(trainer)
    with trainer.average.applied():
        averaged = latent(trainer)
    assert torch.equal(latent(trainer), own)
    assert not torch.equal(averaged, own)
    logits = trainer.evaluator.history.evaluations[-1]
    with trainer.average.applied():
        again = trainer.evaluator.evaluate(trainer.model, 99, trainer.precision(), writes=False)
    assert again.items() >= logits.scores.items()
