"""Products by the native kernels: exact.linear's bits, and the gradients of fake quantization."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ternarybert.errors import KernelError
from ternarybert.recipe import LAYER, PRESETS, ROW, SAMPLE, TENSOR, TOKEN, ActivationScheme, WeightScheme
from ternarybert.student import TernaryLinear, make_student
from ternarybert.student import integer_eval as exact
from ternarybert.student import products as native
from ternarybert.student.activations import ActivationQuantizer, Padding
from tests import tiny

METHODS = {2: ("twn", "lat"), 3: ("laq",), 4: ("laq",), 8: ("symmetric",)}


@pytest.fixture
def calls(monkeypatch):
    """Shapes of the weights that the native kernels multiplied with."""
    seen = []
    original = native.multiply
    monkeypatch.setattr(native, "multiply", lambda x, w, *rest: seen.append(tuple(w.shape)) or original(x, w, *rest))
    return seen


@st.composite
def layers(draw):
    """Any quantized linear layer, and an input for it with some padding."""
    bits = draw(st.sampled_from([2, 2, 3, 4, 8]))
    scheme = WeightScheme(
        draw(st.sampled_from(METHODS[bits])),
        draw(st.sampled_from([LAYER, ROW])),
        clip=draw(st.sampled_from([None, 0.1])),
    )
    activation = ActivationScheme(
        draw(st.sampled_from(["minmax", "symmetric"])),
        draw(st.sampled_from([TOKEN, SAMPLE, TENSOR])),
        clip=draw(st.sampled_from([None, 1.5])),
    )
    torch.manual_seed(draw(st.integers(0, 10_000)))
    plain = torch.nn.Linear(draw(st.integers(1, 200)), draw(st.integers(1, 70)), bias=draw(st.booleans()))
    sequences, tokens = draw(st.integers(1, 3)), draw(st.integers(1, 40))
    mask = torch.rand(sequences, tokens) < 0.8
    mask[:, 0] = True
    padding = Padding()
    padding.see(mask)
    quantizer = ActivationQuantizer(activation, draw(st.sampled_from([8, 8, 4])), padding)
    x = torch.randn(sequences, tokens, plain.in_features)
    return TernaryLinear.from_linear(plain, scheme, bits, quantizer), x


@given(layers(), st.integers(1, 2))
def test_an_evaluation_has_the_same_bits(layer_and_input, threads):
    layer, x = layer_and_input
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
            ours = layer.eval()(x)
            patch.setattr(native, "fits", lambda *_: False)
            assert torch.equal(ours, layer(x))
    finally:
        torch.set_num_threads(before)


def trained(layer, x, towards):
    """The output, and the gradients of input, weight and bias."""
    layer.zero_grad()
    own = x.clone().requires_grad_()
    y = layer.train()(own)
    (y * towards).sum().backward()
    return [y.detach(), own.grad, *(p.grad for p in layer.parameters())]


@given(layers())
def test_training_has_the_gradients_of_fake_quantization(layer_and_input):
    layer, x = layer_and_input
    towards = torch.randn(*x.shape[:-1], layer.out_features)
    ours = trained(layer, x, towards)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "fits", lambda *_: False)
        for one, other in zip(ours, trained(layer, x, towards), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 * float(other.abs().max()))


def test_bfloat16_shortens_the_gradients_alone():
    quantizer = ActivationQuantizer(ActivationScheme(granularity=TOKEN), 8, Padding())
    layer = TernaryLinear.from_linear(torch.nn.Linear(192, 96), WeightScheme(), 2, quantizer)
    x, towards = torch.randn(4, 50, 192), torch.randn(4, 50, 96)
    exact_y, *exact_gradients = trained(layer, x, towards)
    layer.gradients = torch.bfloat16
    y, *gradients = trained(layer, x, towards)
    assert torch.equal(y, exact_y)
    for one, other in zip(gradients, exact_gradients, strict=True):
        assert one.dtype is torch.float32
        assert (one - other).norm() < 0.01 * other.norm()  # factors and sum rounded to 8 bits: 3 errors of up to 0.002
    assert not torch.equal(gradients[1], exact_gradients[1])


def test_a_student_trains_and_evaluates_with_them(calls):
    student = make_student(tiny.bert(num_hidden_layers=1), PRESETS["default"]).train()
    student(**tiny.batch()).logits.sum().backward()
    assert len(calls) == 7  # q, k, v, output, up, down, pooler
    with torch.no_grad():
        student.eval()(**tiny.batch())
    assert len(calls) == 14


def test_what_they_cannot_do_torch_does(calls):
    student = make_student(tiny.bert(num_hidden_layers=1), PRESETS["default"]).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        student(**tiny.batch()).logits.sum().backward()
    make_student(tiny.bert(), PRESETS["default"]).double().train()(**tiny.batch())
    make_student(tiny.bert(), PRESETS["default"].with_bits("2-2-32")).train()(**tiny.batch())
    make_student(tiny.bert(), PRESETS["default"].with_bits("32-2-8")).train()(**tiny.batch())
    assert not calls


def test_frozen_parts_get_no_gradient():
    quantizer = ActivationQuantizer(ActivationScheme(), 8, Padding())
    layer = TernaryLinear.from_linear(torch.nn.Linear(6, 4), WeightScheme(), 2, quantizer)
    layer.weight.requires_grad_(False)
    layer(torch.randn(5, 6)).sum().backward()
    assert layer.weight.grad is None
    assert torch.equal(layer.bias.grad, torch.full((4,), 5.0))


def test_a_forced_kernel_is_used(monkeypatch, calls):
    student = make_student(tiny.bert(num_hidden_layers=1), PRESETS["default"]).eval()
    monkeypatch.setenv("TERNARYBERT_KERNEL", "portable")  # slower than torch
    with torch.no_grad():
        student(**tiny.batch())
    assert not calls
    monkeypatch.setenv("TERNARYBERT_KERNEL", "nonesuch")
    with torch.no_grad(), pytest.raises(KernelError, match="nonesuch"):
        student(**tiny.batch())


def test_weights_are_quantized_once_for_training_and_evaluation():
    linear = TernaryLinear.from_linear(torch.nn.Linear(6, 4), WeightScheme(), 2, None)
    integers = linear.integers()
    assert isinstance(integers, exact.Weight)
    assert torch.equal(linear.w_hat(), integers.codes * integers.scale)
    assert linear.integers() is integers
