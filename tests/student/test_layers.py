"""When weights are quantized, what gradients they get, and that export sees what forward used."""

import copy

import pytest
import torch

from ternarybert.quantize import ternarize_lat, ternarize_twn
from ternarybert.recipe import LAYER, PRESETS, ROW, TOKEN, ActivationScheme, Granularity, WeightScheme
from ternarybert.student import TernaryEmbedding, TernaryLinear, make_student, quantized_layers
from ternarybert.student import layers as module
from ternarybert.student.activations import ActivationQuantizer, Padding, fake_quantize
from tests import tiny


@pytest.fixture
def count(monkeypatch):
    calls = []
    original = module.quantize_weight
    monkeypatch.setattr(module, "quantize_weight", lambda *a: calls.append(a[0].shape) or original(*a))
    return calls


def test_once_per_step_and_once_per_evaluation(count):
    student = make_student(tiny.bert(), PRESETS["paper"].override({"embedding.granularity": "layer"}))
    layers = len(list(quantized_layers(student)))
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
    for seed in range(3):  # three micro-batches
        student(**tiny.batch(seed)).logits.sum().backward()
    assert len(count) == layers
    optimizer.step()
    with torch.no_grad():
        for seed in range(3):
            student(**tiny.batch(seed))
    assert len(count) == 2 * layers


@pytest.mark.parametrize("settings", [{}, {"fused": True}, {"foreach": True}])
def test_no_optimizer_leaves_stale_weights(settings):
    linear = TernaryLinear.from_linear(torch.nn.Linear(6, 4), WeightScheme(), 2, None)
    optimizer = torch.optim.AdamW(linear.parameters(), lr=0.1, **settings)
    for _ in range(2):
        linear(torch.randn(5, 6)).sum().backward()
        optimizer.step()
        assert torch.equal(linear.w_hat(), ternarize_twn(linear.weight.detach()).dequantize())


def test_row_wise_embedding_touches_only_the_batchs_rows(count):
    embedding = TernaryEmbedding.from_embedding(torch.nn.Embedding(1000, 8), WeightScheme(granularity=ROW), 2)
    ids = torch.tensor([[3, 5, 3], [7, 999, 0]])
    rows = embedding(ids)
    assert count == [torch.Size([6, 8])]
    assert torch.equal(rows, ternarize_twn(embedding.weight.detach(), ROW).dequantize()[ids])
    assert torch.equal(rows, embedding.quantized().dequantize()[ids])
    rows.sum().backward()
    touched = embedding.weight.grad.abs().sum(1).nonzero().flatten().tolist()
    assert touched == [0, 3, 5, 7, 999]
    assert embedding.weight.grad[3, 0] == 2  # twice in the batch


def test_gradient_goes_straight_through():
    linear = TernaryLinear.from_linear(torch.nn.Linear(6, 4), WeightScheme(), 2, None)
    x = torch.randn(5, 6)
    linear(x).sum().backward()
    torch.testing.assert_close(linear.weight.grad, x.sum(0).expand(4, -1), rtol=1e-5, atol=1e-5)
    clipped = TernaryLinear.from_linear(torch.nn.Linear(6, 4), WeightScheme(clip=0.2), 2, None)
    clipped(x).sum().backward()
    assert ((clipped.weight.grad == 0) == (clipped.weight.abs() >= 0.2)).all()


@pytest.mark.parametrize("granularity", [LAYER, ROW, Granularity.group(2)])
@pytest.mark.parametrize("quantizes_inputs", [False, True])
def test_learned_scales_get_the_gradient_of_the_formula(granularity, quantizes_inputs):
    """That of autograd through x (α · round(clip(w / α, -1, 1)))ᵀ, times 1/√n."""
    torch.manual_seed(0)
    quantizer = ActivationQuantizer(ActivationScheme(granularity=TOKEN), 8, Padding()) if quantizes_inputs else None
    linear = TernaryLinear.from_linear(torch.nn.Linear(6, 4), WeightScheme("lsq", granularity), 2, quantizer)
    x, upstream = torch.randn(5, 6), torch.randn(5, 4)
    (linear(x) * upstream).sum().backward()

    alpha, w = linear.alpha.detach().clone().requires_grad_(), linear.weight.detach()
    scales = alpha.repeat_interleave(4 // len(alpha), 0)
    relative = (w / scales).clamp(-1, 1)
    w_hat = scales * (relative + (relative.round() - relative).detach())
    x_hat = x if quantizer is None else fake_quantize(x, ActivationScheme(granularity=TOKEN), 8, TOKEN, None)
    ((x_hat @ w_hat.T + linear.bias.detach()) * upstream).sum().backward()
    torch.testing.assert_close(linear.alpha.grad, alpha.grad * (24 / len(alpha)) ** -0.5, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(linear.weight.grad, upstream.T @ x_hat, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("granularity", [LAYER, ROW])
def test_learned_scales_of_an_embedding(count, granularity):
    embedding = TernaryEmbedding.from_embedding(torch.nn.Embedding(50, 8), WeightScheme("lsq", granularity), 2)
    ids, upstream = torch.tensor([[3, 5, 3], [7, 9, 0]]), torch.randn(2, 3, 8)
    rows = embedding(ids)
    assert torch.equal(rows, embedding.quantized().dequantize()[ids])
    (rows * upstream).sum().backward()
    alpha, w = embedding.alpha.detach().clone().requires_grad_(), embedding.weight.detach()
    relative = (w / alpha).clamp(-1, 1)
    w_hat = alpha * (relative + (relative.round() - relative).detach())
    (w_hat[ids] * upstream).sum().backward()
    n = 8 if granularity == ROW else 400
    torch.testing.assert_close(embedding.alpha.grad, alpha.grad * n**-0.5)


def test_a_learned_scale_that_moves_is_used_at_once():
    linear = TernaryLinear.from_linear(torch.nn.Linear(6, 4), WeightScheme("lsq", ROW), 2, None)
    before = linear.w_hat().clone()
    with torch.no_grad():
        linear.alpha.mul_(2)
    assert not torch.equal(linear.w_hat(), before)
    assert torch.equal(linear.quantized().scale, linear.alpha)


def test_second_moments_are_read_when_the_weight_changes():
    linear = TernaryLinear.from_linear(torch.nn.Linear(40, 4), WeightScheme("lat"), 2, None)
    assert torch.equal(linear.w_hat(), ternarize_lat(linear.weight.detach(), torch.zeros(4, 40)).dequantize())
    v = torch.rand(4, 40) ** 8
    linear.second_moment = lambda: v
    with torch.no_grad():
        linear.weight.add_(0.01)
    expected = ternarize_lat(linear.weight.detach(), v)
    assert torch.equal(linear.w_hat(), expected.dequantize())
    assert torch.equal(linear.quantized().codes, expected.codes)


def test_query_key_and_value_quantize_their_input_once(monkeypatch):
    calls = []
    from ternarybert.student import activations

    for name in ("fake_quantize", "quantize_straight_through"):
        original = getattr(activations, name)
        monkeypatch.setattr(activations, name, lambda *a, how=original, **k: calls.append(1) or how(*a, **k))
    student = make_student(tiny.bert(num_hidden_layers=1), PRESETS["default"])
    student(**tiny.batch())
    # x for q, k, v; Q; K; V; P; context; FFN in; FFN middle; pooler
    assert len(calls) == 9


def test_fake_quantization_is_quantization():
    from ternarybert.quantize import quantize_minmax, quantize_symmetric

    x = torch.randn(3, 5, 8)
    mask = torch.rand(3, 5, 1) > 0.3
    for scheme, quantize in (("minmax", quantize_minmax), ("symmetric", quantize_symmetric)):
        for clip in (None, 0.7):
            for granularity in (TOKEN, PRESETS["paper"].activation.granularity):
                ours = fake_quantize(x, ActivationScheme(scheme, granularity, clip=clip), 8, granularity, mask)
                assert torch.equal(ours, quantize(x, 8, granularity, mask=mask, clip=clip).dequantize())


def test_a_student_can_be_copied_after_a_forward_pass():
    student = make_student(tiny.bert(), PRESETS["default"])
    student(**tiny.batch())
    twin = copy.deepcopy(student)
    with torch.no_grad():
        assert torch.equal(twin(**tiny.batch(1)).logits, student(**tiny.batch(1)).logits)


def test_padding_is_forgotten_when_there_is_none():
    padding = Padding()
    padding.set_mask(torch.tensor([[1, 0]]))
    assert padding.mask is not None
    padding.set_mask(torch.ones(1, 2))
    assert padding.mask is None
    padding.set_mask(None)
    assert padding.mask is None


def test_the_optimizers_of_others_are_left_alone():
    """Fused updates are counted for the weights of quantized layers only."""
    ours = TernaryLinear.from_linear(torch.nn.Linear(8, 8), PRESETS["paper"].weight, 2, None)
    theirs = torch.nn.Linear(8, 8)
    ours(torch.ones(1, 8)).sum().backward()
    theirs(torch.ones(1, 8)).sum().backward()
    before = ours.w_hat().clone(), ours.weight._version, theirs.weight._version
    optimizer = torch.optim.AdamW([*ours.parameters(), *theirs.parameters()], lr=1.0, fused=True)
    optimizer.step()
    assert ours.weight._version > before[1]
    assert not torch.equal(ours.w_hat(), before[0])
    alone = torch.nn.Linear(8, 8)
    alone(torch.ones(1, 8)).sum().backward()
    version = alone.weight._version
    torch.optim.AdamW(alone.parameters(), lr=1.0, fused=True).step()
    assert theirs.weight._version - before[2] == alone.weight._version - version == 0
