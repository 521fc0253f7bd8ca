"""Learned scales against loops over single weights, and their gradients against autograd of the explicit formula."""

import math

import pytest
import torch
from torch import Tensor

from ternarybert.errors import NonFiniteError, QuantizationError
from ternarybert.quantize import LAYER, ROW, Granularity, ternarize_learned, ternarize_twn
from ternarybert.quantize.learned import start_scale, straight_through_scaled
from ternarybert.quantize.quantized import per_unit

GRANULARITIES = [LAYER, ROW, Granularity.group(2)]


def weights(seed: int = 0) -> Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rounded(x: Tensor) -> Tensor:
    """Rounding with the gradient of the identity."""
    return x + (x.round() - x).detach()


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_they_start_as_twns(granularity):
    w = weights()
    alpha, twn = start_scale(w, granularity), ternarize_twn(w, granularity)
    assert torch.equal(per_unit(alpha, w, granularity), twn.scale)


@pytest.mark.parametrize("granularity", GRANULARITIES)
def test_codes_are_the_nearest_ones(granularity):
    w = weights()
    alpha = 0.8 * start_scale(w, granularity)
    quantized, scales = ternarize_learned(w, alpha, granularity), per_unit(alpha, w, granularity).expand_as(w)
    for i, j in ((i, j) for i in range(4) for j in range(6)):
        errors = {code: abs(float(w[i, j] - code * scales[i, j])) for code in (-1, 0, 1)}
        assert int(quantized.codes[i, j]) == min(errors, key=errors.__getitem__)
    assert torch.equal(quantized.dequantize(), quantized.codes * scales)


@pytest.mark.parametrize("granularity", GRANULARITIES)
@pytest.mark.parametrize("clip", [None, 1.0])
def test_gradients_are_those_of_the_formula(granularity, clip):
    """Of α by autograd of α · round(clip(w / α, −1, 1)), times 1/√n; of w that of ŵ, none where it is clipped."""
    w = weights().requires_grad_()
    alpha = (0.9 * start_scale(w, granularity)).requires_grad_()
    upstream, n = weights(seed=1), w.numel() // len(alpha)
    fixed = w.detach() if clip is None else w.detach().clamp(-clip, clip)
    scales = per_unit(alpha, w, granularity)
    explicit = scales * rounded((fixed / scales).clamp(-1, 1))
    (by_formula,) = torch.autograd.grad((explicit * upstream).sum(), alpha)

    w_hat = ternarize_learned(fixed, alpha, granularity).dequantize()
    out = straight_through_scaled(w, per_unit(alpha, w, granularity), w_hat, n, clip=clip)
    torch.testing.assert_close(out, explicit)
    (out * upstream).sum().backward()
    torch.testing.assert_close(alpha.grad, by_formula / math.sqrt(n))
    free = torch.ones_like(w) if clip is None else (w.abs() < clip).double()
    torch.testing.assert_close(w.grad, upstream * free)


@pytest.mark.parametrize("value", [0.0, -0.3])
def test_a_scale_that_is_not_positive_is_zero_and_can_come_back(value):
    w = torch.tensor([[0.5, -2.0, 0.0]])
    alpha = torch.tensor([[value]], requires_grad=True)
    quantized = ternarize_learned(w, alpha, ROW)
    assert quantized.codes.tolist() == [[1, -1, 0]]
    assert quantized.dequantize().tolist() == [[0, 0, 0]]
    out = straight_through_scaled(w, alpha, quantized.dequantize(), 3, clip=None)
    (out * torch.tensor([[-1.0, 1.0, 5.0]])).sum().backward()
    torch.testing.assert_close(alpha.grad, torch.tensor([[-2.0]]) / math.sqrt(3))  # a step against it makes α larger


def test_what_cannot_be_quantized_is_said():
    with pytest.raises(QuantizationError, match="4 units"):
        ternarize_learned(weights(), torch.ones(3, 1), ROW)
    with pytest.raises(NonFiniteError, match="scale"):
        ternarize_learned(weights(), torch.full((4, 1), math.nan), ROW)
