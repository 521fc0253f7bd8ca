import copy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from ternarybert.recipe import PRESETS, Schedule
from ternarybert.student import make_student, quantized_layers
from ternarybert.training.optimizer import OPTIMIZERS, BertAdam, clip_norm, learning_rate_factor, parameter_groups
from tests import tiny

GOLDEN = np.load(Path(__file__).parent.parent / "golden" / "released.npz")


def test_bertadams_trajectory_is_the_recorded_one():
    """20 steps of the released settings: rate 2e-5, warm-up 10 %, decay 0.01, every tensor's norm cut at 1."""
    p = torch.nn.Parameter(torch.from_numpy(GOLDEN["bertadam/p0"].copy()))
    steps = len(GOLDEN["bertadam/grads"])
    optimizer = BertAdam([p], lr=2e-5, weight_decay=0.01, clip_tensors=True)
    recorded = zip(GOLDEN["bertadam/grads"], GOLDEN["bertadam/traj"], strict=True)
    for step, (gradient, wanted) in enumerate(recorded):
        optimizer.param_groups[0]["lr"] = 2e-5 * learning_rate_factor(step / steps, Schedule(warmup=0.1))
        p.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
        np.testing.assert_allclose(p.detach().numpy(), wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(optimizer.state[p]["exp_avg"].numpy(), GOLDEN["bertadam/m"], rtol=1e-9)
    np.testing.assert_allclose(optimizer.state[p]["exp_avg_sq"].numpy(), GOLDEN["bertadam/v"], rtol=1e-9)


def test_no_bias_correction():
    """The first step moves by (1 - b1) / sqrt(1 - b2) = 3.16 learning rates, not by one."""
    p = torch.nn.Parameter(torch.zeros(3))
    optimizer = BertAdam([p], lr=1e-3, weight_decay=0.0)
    p.grad = torch.tensor([1.0, -2.0, 0.5])
    optimizer.step()
    torch.testing.assert_close(p.detach(), -1e-3 * 0.1 / 0.001**0.5 * p.grad.sign(), rtol=1e-4, atol=0)


def test_state_survives_saving():
    torch.manual_seed(0)
    twins = [torch.nn.Parameter(torch.ones(4)) for _ in range(2)]
    first, second = (BertAdam([p], lr=1e-2) for p in twins)
    gradients = torch.randn(6, 4)
    for step, gradient in enumerate(gradients):
        if step == 3:
            second.load_state_dict(copy.deepcopy(first.state_dict()))
            twins[1].data.copy_(twins[0].data)
        for number, (p, optimizer) in enumerate(zip(twins, (first, second), strict=True)):
            if number == 0 or step >= 3:
                p.grad = gradient.clone()
                optimizer.step()
    assert torch.equal(twins[0], twins[1])


def test_clip_norm():
    gradient = torch.full((4,), 5.0)
    clip_norm(gradient)
    assert float(gradient.norm()) == pytest.approx(1.0, rel=1e-5)
    small = torch.full((4,), 0.01)
    clip_norm(small)
    assert torch.equal(small, torch.full((4,), 0.01))


def test_schedule():
    factors = [learning_rate_factor(step / 10, Schedule(warmup=0.2)) for step in range(11)]
    assert factors == pytest.approx([0, 0.5, 1, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0])


def test_a_tail_begins_at_its_own_learning_rate():
    plan = Schedule(warmup=0.2, tail=0.2, tail_rate=0.1)
    factors = [learning_rate_factor(step / 10, plan) for step in range(11)]
    assert factors == pytest.approx([0, 0.5, 1, 0.85, 0.7, 0.55, 0.4, 0.25, 0.1, 0.05, 0])


def test_a_cosine_falls_slowly_at_first_and_at_last():
    factors = [learning_rate_factor(step / 4, Schedule(decay="cosine")) for step in range(5)]
    assert factors == pytest.approx([1, 0.5 + 0.125**0.5, 0.5, 0.5 - 0.125**0.5, 0])
    plan = Schedule(decay="cosine", tail=0.5, tail_rate=0.2)
    assert [learning_rate_factor(x, plan) for x in (0, 0.25, 0.5, 0.75, 1)] == pytest.approx([1, 0.6, 0.2, 0.1, 0])


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_quantized_layers_see_every_update(name):
    student = make_student(tiny.bert(), PRESETS["default"])
    layer = next(layer for _, layer in quantized_layers(student))
    optimizer = OPTIMIZERS[name](student, Schedule(learning_rate=0.1))
    before = layer.w_hat().clone()
    layer.weight.grad = torch.randn_like(layer.weight)
    optimizer.step()
    assert not layer.is_current
    assert not torch.equal(layer.w_hat(), before)


def test_importing_the_package_leaves_other_optimizers_alone():
    code = """
import torch
from torch.optim import optimizer
import ternarybert.hf, ternarybert.training.ternarize
assert not optimizer._global_optimizer_post_hooks
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_learned_scales_do_not_decay():
    student = make_student(tiny.bert(), PRESETS["default"].override({"weight.method": "lsq"}))
    decayed, free = ({id(p) for p in group["params"]} for group in parameter_groups(student, 0.01))
    layers = [layer for _, layer in quantized_layers(student) if layer.scheme.method == "lsq"]
    assert layers
    assert all(id(layer.alpha) in free and id(layer.weight) in decayed for layer in layers)


def test_biases_and_norms_do_not_decay():
    model = torch.nn.ModuleDict({"dense": torch.nn.Linear(2, 2), "LayerNorm": torch.nn.LayerNorm(2)})
    decayed, free = parameter_groups(model, 0.01)
    assert [p.shape for p in decayed["params"]] == [torch.Size([2, 2])]
    assert len(free["params"]) == 3
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.01, 0.0)
