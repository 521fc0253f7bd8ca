"""The student's evaluation against numerics.py: equal to the bit, whatever the padding."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import erfc

from ternarybert import numerics
from ternarybert.recipe import PRESETS, SAMPLE, TENSOR, TOKEN, ActivationScheme
from ternarybert.student import integer_eval, make_student
from ternarybert.student.integer_eval import IntegerWeight, TensorCodes
from tests import tiny

SEEDS = st.integers(0, 2**32 - 1)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def as_torch(codes):
    return TensorCodes(*(torch.from_numpy(np.asarray(a, np.float32)) for a in (codes.codes, codes.scale, codes.offset)))


def same(ours, expected):
    np.testing.assert_array_equal(ours.numpy(), expected)


@pytest.mark.parametrize("kind", ["gelu", "gelu_tanh"])
def test_gelu(kind):
    x = np.concatenate(
        [np.linspace(-9, 9, 100_001, dtype=np.float32), np.float32([0, -0.0, 6, -6, 1e30, -1e30, 1e-40])]
    )
    same(integer_eval.gelu(torch.from_numpy(x), kind), numerics.gelu(x, kind))
    true = torch.nn.functional.gelu(torch.from_numpy(x).double(), approximate="tanh" if kind == "gelu_tanh" else "none")
    finite = np.abs(x) < 1e3
    assert np.abs(numerics.gelu(x, kind) - true.numpy())[finite].max() < 3e-7


def test_gelu_is_the_one_of_the_error_function():
    x = np.linspace(-9, 9, 10_001, dtype=np.float32)
    assert np.abs(numerics.gelu(x) - x * 0.5 * erfc(-x.astype(float) / np.sqrt(2))).max() < 3e-7


def test_exp():
    x = np.linspace(-90, 0, 100_001, dtype=np.float32)
    same(integer_eval.exp(torch.from_numpy(x)), numerics.exp(x))
    inside = x >= -80
    assert np.abs(numerics.exp(x) / np.exp(x.astype(float)) - 1)[inside].max() < 1e-7
    assert numerics.exp(np.float32([0, -1e30])).tolist() == [1, float(numerics.exp(np.float32([-80]))[0])]


@given(SEEDS, st.integers(1, 40))
def test_layer_norm(seed, width):
    x, weight, bias = normal(seed, 5, width) * 3 + 1, normal(seed + 1, width), normal(seed + 2, width)
    norm = integer_eval.EvalLayerNorm(width, eps=1e-12)
    norm.weight.data, norm.bias.data = torch.from_numpy(weight), torch.from_numpy(bias)
    with torch.no_grad():
        same(norm.eval()(torch.from_numpy(x)), numerics.layer_norm(x, weight, bias, 1e-12))
    plain = torch.nn.functional.layer_norm(torch.from_numpy(x).double(), (width,), eps=1e-12).numpy() * weight + bias
    if width > 2:  # two numbers may be so close that their deviation is rounding
        np.testing.assert_allclose(numerics.layer_norm(x, weight, bias, 1e-12), plain, rtol=1e-3, atol=1e-4)


@given(SEEDS, st.integers(1, 40))
def test_softmax(seed, keys):
    x = normal(seed, 3, keys) * 5
    same(integer_eval.softmax(torch.from_numpy(x), None), numerics.softmax(x))
    np.testing.assert_allclose(numerics.softmax(x), torch.from_numpy(x).double().softmax(-1), rtol=1e-5, atol=1e-30)


@given(SEEDS, st.integers(1, 20), st.integers(0, 9))
def test_masked_keys_are_as_if_they_were_not_there(seed, keys, masked):
    x = normal(seed, 1, 1, 3, keys + masked) * 5
    mask = torch.zeros(1, 1, 1, keys + masked)
    mask[..., keys:] = torch.finfo(torch.float32).min
    p = integer_eval.softmax(torch.from_numpy(x), mask)
    same(p[..., :keys], numerics.softmax(x[..., :keys]))
    assert not p[..., keys:].any()


@pytest.mark.parametrize("scheme", ["minmax", "symmetric"])
@pytest.mark.parametrize(("granularity", "axes"), [(TOKEN, (-1,)), (SAMPLE, (-2, -1)), (TENSOR, (-3, -2, -1))])
@pytest.mark.parametrize("clip", [None, 1.5])
@given(seed=SEEDS, bits=st.integers(2, 8))
def test_codes(seed, bits, scheme, granularity, axes, clip):
    x = normal(seed, 3, 4, 5)
    x[0] *= seed % 2  # sometimes a constant unit
    ours = integer_eval.quantize(
        torch.from_numpy(x), ActivationScheme(scheme, granularity, clip=clip), bits, granularity
    )
    expected = numerics.quantize(x, axes, bits=bits, symmetric=scheme == "symmetric", clip=clip)
    for one, other in zip(ours, (expected.codes, expected.scale, expected.offset), strict=True):
        same(one, other)


@given(SEEDS, st.integers(1, 70), st.sampled_from([1, 4, 64, 127]))
def test_linear(seed, width, largest):
    rng = np.random.default_rng(seed)
    x = numerics.quantize(normal(seed, 6, width), (-1,))
    weight = rng.integers(-largest, largest + 1, (7, width))
    scale, bias = rng.random((7, 1), np.float32), normal(seed, 7)
    expected = numerics.linear(x, weight, scale[:, 0], bias)
    ours = integer_eval.linear(
        as_torch(x), IntegerWeight.from_codes(torch.from_numpy(weight), torch.from_numpy(scale)), torch.from_numpy(bias)
    )
    same(ours, expected)
    plain = (x.scale * x.codes.astype(float) + x.offset) @ (scale * weight).astype(float).T + bias
    np.testing.assert_allclose(expected, plain, rtol=1e-4, atol=1e-3 * largest)


@given(SEEDS, st.integers(1, 300))
def test_attention(seed, keys):
    q = numerics.quantize(normal(seed, 2, 3, 8), (-1,))
    k = numerics.quantize(normal(seed + 1, 2, keys, 8), (-1,))
    v = numerics.quantize(normal(seed + 2, 2, keys, 8), (-2, -1))
    scores = numerics.scores(q, k, 8**-0.5)
    same(integer_eval.scores(as_torch(q), as_torch(k), 8**-0.5), scores)
    q_hat, k_hat, v_hat = (a.scale * a.codes.astype(float) + a.offset for a in (q, k, v))
    np.testing.assert_allclose(scores, q_hat @ k_hat.swapaxes(-1, -2) * 8**-0.5, atol=1e-5)
    p = numerics.quantize(numerics.softmax(scores), (-1,))
    context = numerics.context(p, v)
    same(integer_eval.context(as_torch(p), as_torch(v), None), context)
    np.testing.assert_allclose(context, (p.scale * p.codes.astype(float) + p.offset) @ v_hat, atol=1e-5)


@given(SEEDS, st.integers(1, 99))
def test_sums_are_those_of_float64(seed, n):
    x = normal(seed, n)
    assert numerics.total(x) == pytest.approx(x.astype(float).sum(), rel=1e-12, abs=1e-12)


def student(preset="default"):
    torch.manual_seed(0)
    return make_student(tiny.bert(), PRESETS[preset]).eval()


def test_an_evaluation_does_not_depend_on_padding_to_the_last_bit():
    model = student()
    ids = torch.randint(5, 30, (1, 7))
    padded = torch.cat([ids, torch.zeros(1, 9, dtype=torch.long)], 1)
    mask = torch.cat([torch.ones(1, 7), torch.zeros(1, 9)], 1).long()
    with torch.no_grad():
        alone, beside = model(input_ids=ids).logits, model(input_ids=padded, attention_mask=mask).logits
    assert torch.equal(alone, beside)


@pytest.mark.parametrize("preset", ["default", "paper", "reference"])
def test_training_and_evaluation_compute_the_same_model(preset):
    """They differ by rounding, which a flipped code can make a hundredth; not by a mistake in a formula."""
    model = student(preset)
    ids = torch.randint(5, 30, (4, 12))
    with torch.no_grad():
        evaluated = model(input_ids=ids, output_hidden_states=True)
    trained = model(input_ids=ids, output_hidden_states=True)
    pairs = list(zip(evaluated.hidden_states, trained.hidden_states, strict=True))
    assert not all(torch.equal(*pair) for pair in pairs)  # two ways of computing it
    for ours, theirs in pairs:
        assert (ours - theirs).abs().mean() < 5e-3
