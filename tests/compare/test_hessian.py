"""Power iteration against matrices and functions whose eigenvalues are known."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ternarybert.compare.hessian import layer_eigenvalues, mixed_bits, sensitivities, top_eigenvalue


@given(st.integers(0, 1000), st.floats(-50, 50).filter(lambda x: abs(x) > 2))
def test_the_top_eigenvalue_of_a_known_matrix(seed, top):
    generator = torch.Generator().manual_seed(seed)
    basis = torch.linalg.qr(torch.randn(6, 6, generator=generator)).Q
    matrix = basis @ torch.diag(torch.tensor([top, 1.0, -0.5, 0.3, 0.1, 0.0])) @ basis.T
    found = top_eigenvalue(lambda v: [matrix @ v[0]], [torch.zeros(6)], iterations=200, tolerance=1e-7)
    assert found == pytest.approx(top, rel=1e-3)


def test_each_layer_has_the_hessian_of_its_own_weights():
    """A loss with a known Hessian in each of two layers, and a product between them that must not count."""
    a, b = torch.randn(3, requires_grad=True), torch.randn(2, 2, requires_grad=True)
    curved = torch.diag(torch.tensor([8.0, 2.0, 1.0]))
    loss = 0.5 * a @ curved @ a + 0.5 * 3.0 * b.square().sum() + a[0] * b[0, 0]
    first, second = layer_eigenvalues(loss, [[a], [b]], iterations=200, tolerance=1e-7)
    assert first == pytest.approx(8.0, rel=1e-3)
    assert second == pytest.approx(3.0, rel=1e-3)


def test_several_weights_of_a_layer_count_together():
    a, b = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    loss = (a * b).sum()  # Hessian [[0, 1], [1, 0]] and a little more, for a single top eigenvalue
    loss = loss + 0.25 * (a.square() + b.square()).sum()
    [value] = layer_eigenvalues(loss, [[a, b]], iterations=500, tolerance=1e-9)
    assert value == pytest.approx(1.5, rel=1e-3)


def test_a_flat_loss_has_no_curvature():
    a = torch.ones(3, requires_grad=True)
    assert layer_eigenvalues((a * a).sum() * 0.0, [[a]]) == [0.0]


def test_sensitivity_is_mean_plus_deviation():
    assert sensitivities([[1.0, -4.0], [3.0, -4.0]]) == pytest.approx([3.0, 4.0])


def test_the_most_sensitive_layers_get_more_bits():
    assert mixed_bits([0.1, 5.0, 0.2, 3.0], 2, 4) == [2, 4, 2, 4]
    assert mixed_bits([1.0, 2.0, 3.0], 2, 3, share=1 / 3) == [2, 2, 3]
