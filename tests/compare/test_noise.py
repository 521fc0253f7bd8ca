"""Quant-Noise: how much is quantized, and what gradient the rest sees."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ternarybert.compare.quantizers import draw, noisy, symmetric


@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.1, 0.5, 0.9]))
def test_the_share_of_quantized_blocks_is_the_rate(seed, rate):
    torch.manual_seed(seed)
    drawn = draw(torch.zeros(512, 128), rate, 8)
    blocks = drawn.view(-1, 8)
    assert torch.equal(blocks.all(1), blocks.any(1)), "a block is drawn as a whole"
    share, count = float(drawn.float().mean()), len(blocks)
    assert abs(share - rate) < 5 * (rate * (1 - rate) / count) ** 0.5


@pytest.mark.parametrize("proxy", [True, False])
def test_only_the_drawn_weights_change(proxy):
    w = torch.randn(16, 32)
    w_hat = symmetric(w, 8).w_hat
    drawn = draw(w, 0.3, 8)
    mixed = noisy(w, None if proxy else w_hat, drawn)
    assert torch.equal(mixed[~drawn], w[~drawn])
    assert torch.equal(mixed[drawn], torch.zeros_like(w[drawn]) if proxy else w_hat[drawn])


def test_weights_that_were_not_drawn_see_the_true_gradient():
    """Against the gradient by differences of the loss at the noisy weights."""
    w = torch.randn(4, 8, dtype=torch.float64, requires_grad=True)
    x, y = torch.randn(10, 8, dtype=torch.float64), torch.randn(10, 4, dtype=torch.float64)
    drawn = draw(w, 0.4, 4)

    def loss(weight):
        return (torch.tanh(x @ weight.T) - y).square().mean()

    loss(noisy(w, None, drawn)).backward()
    at = torch.where(drawn, 0.0, w.detach())
    for row, column in (~drawn).nonzero().tolist():
        step = torch.zeros_like(at)
        step[row, column] = 1e-6
        difference = (loss(at + step) - loss(at - step)) / 2e-6
        assert float(w.grad[row, column]) == pytest.approx(float(difference), abs=1e-7)


def test_drawn_weights_still_learn():
    w = torch.randn(4, 8, requires_grad=True)
    noisy(w, None, torch.ones(4, 8, dtype=torch.bool)).sum().backward()
    assert torch.equal(w.grad, torch.ones(4, 8))
