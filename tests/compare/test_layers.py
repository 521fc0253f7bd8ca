"""Ranges that move while training and stand still afterwards."""

import pytest
import torch

from ternarybert.compare.layers import MovingRange
from ternarybert.student.activations import Padding


def test_the_range_is_a_moving_average():
    moving = MovingRange(8, Padding(), symmetric=False, decay=0.9)
    moving(torch.tensor([[-1.0, 3.0]]))
    moving(torch.tensor([[-2.0, 5.0]]))
    assert float(moving.low) == pytest.approx(-1.1)
    assert float(moving.high) == pytest.approx(3.2)


def test_a_symmetric_range_averages_the_largest_magnitude():
    moving = MovingRange(8, Padding(), symmetric=True, decay=0.9)
    moving(torch.tensor([[-4.0, 3.0]]))
    moving(torch.tensor([[-1.0, 5.0]]))
    assert float(moving.high) == pytest.approx(0.9 * 4 + 0.1 * 5)
    assert float(moving.low) == -float(moving.high)


def test_evaluation_does_not_move_it_and_cuts():
    moving = MovingRange(8, Padding(), symmetric=True)
    moving(torch.tensor([[-1.0, 1.0]]))
    moving.eval()
    assert moving(torch.tensor([[7.0, 0.0, -9.0]])).tolist() == [[1.0, 0.0, -1.0]]
    assert float(moving.high) == 1.0


@pytest.mark.parametrize("symmetric", [True, False])
def test_values_within_the_range_are_off_by_half_a_step_at_most(symmetric):
    moving = MovingRange(4, Padding(), symmetric=symmetric)
    x = torch.randn(8, 5, 6)
    x_hat = moving(x)
    levels = 14 if symmetric else 15
    assert (x - x_hat).abs().max() <= float(moving.high - moving.low) / levels / 2 + 1e-6
    assert len(x_hat.unique()) <= levels + 1


def test_padding_widens_nothing_and_the_gradient_passes():
    padding = Padding(torch.tensor([[True, True, False]]))
    moving = MovingRange(8, padding, symmetric=False)
    x = torch.tensor([[[1.0], [2.0], [99.0]]], requires_grad=True)
    moving(x).sum().backward()
    assert (float(moving.low), float(moving.high)) == (1.0, 2.0)
    assert x.grad.flatten().tolist() == [1.0, 1.0, 1.0]


def test_before_anything_was_seen_nothing_is_cut():
    moving = MovingRange(8, Padding(), symmetric=True).eval()
    x = torch.randn(2, 3)
    assert moving(x) is x


def test_a_checkpoint_keeps_it():
    moving, other = (MovingRange(8, Padding(), symmetric=True) for _ in range(2))
    moving(torch.tensor([[-1.0, 2.0]]))
    other.load_state_dict(moving.state_dict())
    assert other.eval()(torch.tensor([[9.0]])).item() == 2.0
