"""A linear layer whose gradients are multiplied in bfloat16."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from ternarybert.student.products import bf16_linear as linear

SIZE = st.integers(1, 40)


def gradients(x, w, bias, how, upstream):
    """The outputs and what comes back to inputs, weights and bias."""
    leaves = [None if each is None else each.clone().requires_grad_() for each in (x, w, bias)]
    y = linear(*leaves, how)
    y.backward(upstream)
    return y.detach(), [leaf.grad for leaf in leaves if leaf is not None]


@given(batch=st.integers(1, 3), rows=SIZE, inputs=SIZE, outputs=SIZE, biased=st.booleans(), seed=st.integers(0, 9999))
def test_outputs_are_exact_and_gradients_close(batch, rows, inputs, outputs, biased, seed):
    draw = torch.Generator().manual_seed(seed)
    x, w = torch.randn(batch, rows, inputs, generator=draw), torch.randn(outputs, inputs, generator=draw)
    bias = torch.randn(outputs, generator=draw) if biased else None
    upstream = torch.randn(batch, rows, outputs, generator=draw)
    y, exact = gradients(x, w, bias, torch.float32, upstream)
    y_short, short = gradients(x, w, bias, torch.bfloat16, upstream)
    assert torch.equal(y, y_short)
    # Both factors and the sum are rounded to 8 significant bits, by up to 2^-8 each; the bias is spared.
    of_x = upstream.abs() @ w.abs()
    of_w = upstream.abs().flatten(0, 1).T @ x.abs().flatten(0, 1)
    for got, wanted, most in zip(short, exact, (of_x, of_w), strict=False):
        assert ((got - wanted).abs() <= 3.1 * 2**-8 * most + 1e-6).all()
    if biased:
        assert torch.equal(short[2], exact[2])
    assert all(each.dtype is torch.float32 for each in short)


def test_only_what_is_asked_for():
    x, w = torch.randn(5, 4), torch.randn(3, 4, requires_grad=True)
    linear(x, w, None, torch.bfloat16).sum().backward()
    assert x.grad is None
    assert w.grad is not None
    assert torch.equal(linear(x, w, None, torch.float32), nn.functional.linear(x, w))


@pytest.mark.parametrize("seed", range(3))
def test_gradients_that_bfloat16_holds_are_exact(seed):
    draw = torch.Generator().manual_seed(seed)
    x, w = (torch.randint(-3, 4, (4, 6), generator=draw).float() for _ in range(2))
    upstream = torch.randint(-2, 3, (4, 4), generator=draw).float()
    _, exact = gradients(x, w, None, torch.float32, upstream)
    _, short = gradients(x, w, None, torch.bfloat16, upstream)
    for got, wanted in zip(short, exact, strict=True):
        assert torch.equal(got, wanted)
