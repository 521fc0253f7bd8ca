"""Integer products: the bits of numerics.linear, the gradients of fake quantization, and gradients in bfloat16."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ternarybert.errors import KernelError
from ternarybert.recipe import LAYER, PRESETS, ROW, SAMPLE, TENSOR, TOKEN, ActivationScheme, WeightScheme
from ternarybert.student import TernaryLinear, integer_eval, make_student, products
from ternarybert.student.activations import ActivationQuantizer, Padding
from tests import tiny

METHODS = {2: ("twn", "lat"), 3: ("laq",), 4: ("laq",), 8: ("symmetric",)}


@pytest.fixture
def calls(monkeypatch):
    """Shapes of the weights that the native kernels multiplied with."""
    seen = []
    original = products.multiply
    monkeypatch.setattr(products, "multiply", lambda x, w, *rest: seen.append(tuple(w.shape)) or original(x, w, *rest))
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
    padding.set_mask(mask)
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
            patch.setattr(products, "kernels_apply", lambda *_: False)
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
        patch.setattr(products, "kernels_apply", lambda *_: False)
        for one, other in zip(ours, trained(layer, x, towards), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5 * float(other.abs().max()))


def test_bfloat16_changes_only_the_gradients():
    quantizer = ActivationQuantizer(ActivationScheme(granularity=TOKEN), 8, Padding())
    layer = TernaryLinear.from_linear(torch.nn.Linear(192, 96), WeightScheme(), 2, quantizer)
    x, towards = torch.randn(4, 50, 192), torch.randn(4, 50, 96)
    exact_y, *exact_gradients = trained(layer, x, towards)
    layer.gradient_dtype = torch.bfloat16
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
    assert isinstance(integers, integer_eval.IntegerWeight)
    assert torch.equal(linear.w_hat(), integers.codes * integers.scale)
    assert linear.integers() is integers


SIZE = st.integers(1, 40)


def float_gradients(x, w, bias, dtype, upstream):
    """The outputs, and the gradients of inputs, weights and bias."""
    leaves = [None if each is None else each.clone().requires_grad_() for each in (x, w, bias)]
    y = products.float_linear(*leaves, dtype)
    y.backward(upstream)
    return y.detach(), [leaf.grad for leaf in leaves if leaf is not None]


@given(batch=st.integers(1, 3), rows=SIZE, inputs=SIZE, outputs=SIZE, biased=st.booleans(), seed=st.integers(0, 9999))
def test_outputs_are_exact_and_gradients_close(batch, rows, inputs, outputs, biased, seed):
    draw = torch.Generator().manual_seed(seed)
    x, w = torch.randn(batch, rows, inputs, generator=draw), torch.randn(outputs, inputs, generator=draw)
    bias = torch.randn(outputs, generator=draw) if biased else None
    upstream = torch.randn(batch, rows, outputs, generator=draw)
    y, exact = float_gradients(x, w, bias, torch.float32, upstream)
    y_narrow, narrow = float_gradients(x, w, bias, torch.bfloat16, upstream)
    assert torch.equal(y, y_narrow)
    # Both factors and the sum are rounded to 8 significant bits, by up to 2^-8 each; the bias is spared.
    of_x = upstream.abs() @ w.abs()
    of_w = upstream.abs().flatten(0, 1).T @ x.abs().flatten(0, 1)
    for got, wanted, most in zip(narrow, exact, (of_x, of_w), strict=False):
        assert ((got - wanted).abs() <= 3.1 * 2**-8 * most + 1e-6).all()
    if biased:
        assert torch.equal(narrow[2], exact[2])
    assert all(each.dtype is torch.float32 for each in narrow)


def test_only_the_required_gradients_are_computed():
    x, w = torch.randn(5, 4), torch.randn(3, 4, requires_grad=True)
    products.float_linear(x, w, None, torch.bfloat16).sum().backward()
    assert x.grad is None
    assert w.grad is not None
    assert torch.equal(products.float_linear(x, w, None, torch.float32), torch.nn.functional.linear(x, w))


@pytest.mark.parametrize("seed", range(3))
def test_gradients_that_bfloat16_holds_are_exact(seed):
    draw = torch.Generator().manual_seed(seed)
    x, w = (torch.randint(-3, 4, (4, 6), generator=draw).float() for _ in range(2))
    upstream = torch.randint(-2, 3, (4, 4), generator=draw).float()
    _, exact = float_gradients(x, w, None, torch.float32, upstream)
    _, narrow = float_gradients(x, w, None, torch.bfloat16, upstream)
    for got, wanted in zip(narrow, exact, strict=True):
        assert torch.equal(got, wanted)
