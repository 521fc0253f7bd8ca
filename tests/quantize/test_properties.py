"""What must hold for any weights: optimality, idempotence, equivariance, and that nothing odd slips through."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ternarybert.errors import NonFiniteError, QuantizationError
from ternarybert.quantize import (
    LAYER,
    ROW,
    SAMPLE,
    TENSOR,
    TOKEN,
    Granularity,
    Quantized,
    quantize_laq,
    quantize_minmax,
    quantize_symmetric,
    ternarize_lat,
    ternarize_learned,
    ternarize_twn,
)
from ternarybert.quantize.learned import start_scale

ROUNDING = 1e-5  # relative slack for sums in float32
GRANULARITIES = [LAYER, ROW, Granularity.group(2)]


def matrices(max_rows: int = 12, even_rows: bool = False) -> st.SearchStrategy[torch.Tensor]:
    """Weights of very different sizes, zero rows and ties among them."""
    values = st.floats(-8, 8, width=32).map(lambda x: 0.0 if abs(x) < 1e-3 else x)
    rows = st.integers(1, max_rows // 2).map(lambda r: 2 * r) if even_rows else st.integers(1, max_rows)
    shapes = st.tuples(rows, st.integers(1, 12))
    return shapes.flatmap(lambda shape: hnp.arrays(np.float32, shape, elements=values)).map(torch.from_numpy)


def moments_like(w: torch.Tensor, seed: int) -> torch.Tensor:
    return torch.rand(w.shape, generator=torch.Generator().manual_seed(seed)) * 1e-6


def objective(w: torch.Tensor, q: Quantized, d: torch.Tensor | None = None) -> torch.Tensor:
    """The error of each row, in float64."""
    error = (w.double() - q.codes.double() * q.scale.double()) ** 2
    return (error if d is None else error * d.double()).sum(1)


# Weights, second moments, granularity. A new quantizer is tested by adding it here.
WEIGHT_QUANTIZERS = {
    "twn": lambda w, v, g: ternarize_twn(w, g),
    "twn exact": lambda w, v, g: ternarize_twn(w, g, exact=True),
    "lat": ternarize_lat,
    "lat exact": lambda w, v, g: ternarize_lat(w, v, g, exact=True),
    "lsq": lambda w, v, g: ternarize_learned(w, start_scale(w, g), g),
    "laq 3": lambda w, v, g: quantize_laq(w, v, 3, g),
    "laq 3 log": lambda w, v, g: quantize_laq(w, v, 3, g, levels="log"),
    "laq 3 least squares": lambda w, v, g: quantize_laq(w, v, 3, g, alpha="least_squares"),
    "laq 4 least squares": lambda w, v, g: quantize_laq(w, v, 4, g, alpha="least_squares"),
    "symmetric 8": lambda w, v, g: quantize_symmetric(w, 8, g),
}
# LAQ is not among them: its alternation starts anew from ternary codes and may settle elsewhere.
IDEMPOTENT = ["twn", "twn exact", "lat", "lat exact"]


@given(matrices(), st.sampled_from([LAYER, ROW]))
def test_exact_beats_alternating_beats_twn(w, granularity):
    """Each in the objective it minimizes, summed over what shares a scale."""
    v = moments_like(w, 1)
    d = v.sqrt() + 1e-8
    total = lambda q: objective(w, q, d).sum() if granularity == LAYER else objective(w, q, d)  # noqa: E731
    twn = ternarize_twn(w, granularity)
    alternating, exact = ternarize_lat(w, v, granularity), ternarize_lat(w, v, granularity, exact=True)
    slack = ROUNDING * (d * w**2).sum().double()
    assert (total(exact) <= total(alternating) + slack).all()
    assert (total(alternating) <= total(twn) + slack).all()
    plain = objective(w, ternarize_twn(w, granularity, exact=True)).sum()
    assert plain <= objective(w, twn).sum() + ROUNDING * (w**2).sum()


@given(matrices(), st.integers(2, 4))
def test_laq_alternation_never_ends_worse_than_it_starts_when_alpha_is_the_minimizer(w, bits):
    v = moments_like(w, 2)
    d = v.sqrt() + 1e-8
    start, end = ternarize_twn(w, ROW), quantize_laq(w, v, bits, ROW, alpha="least_squares")
    slack = ROUNDING * (d * w**2).sum(1).double()
    assert (objective(w, end, d) <= objective(w, start, d) + slack).all()


@given(hnp.arrays(np.float32, st.integers(1, 7), elements=st.floats(-4, 4, width=32)), st.booleans())
@settings(max_examples=60)
def test_exact_equals_brute_force(values, weighted):
    w = torch.from_numpy(values).double()
    v = moments_like(w, 3).double() if weighted else torch.ones_like(w)
    d = v.sqrt() + 1e-8
    b = torch.tensor(list(itertools.product([-1, 0, 1], repeat=len(w))), dtype=torch.float64)
    alpha = ((d * b * w).sum(1) / (d * b * b).sum(1)).nan_to_num(0).clamp(min=0)  # codes that are all 0: 0 / 0
    best = float((d * (w - alpha[:, None] * b) ** 2).sum(1).min())
    ours = ternarize_lat(w, v, exact=True)
    assert float((d * (w - ours.dequantize()) ** 2).sum()) == pytest.approx(best, rel=1e-9, abs=1e-18)
    if not weighted:
        twn = ternarize_twn(w, exact=True)
        assert float(((w - twn.dequantize()) ** 2).sum()) == pytest.approx(best, rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("name", IDEMPOTENT)
@given(w=matrices(), granularity=st.sampled_from([LAYER, ROW]))
def test_quantizing_twice_changes_nothing(name, w, granularity):
    v = moments_like(w, 0)
    once = WEIGHT_QUANTIZERS[name](w, v, granularity)
    twice = WEIGHT_QUANTIZERS[name](once.dequantize(), v, granularity)
    assert torch.equal(once.codes, twice.codes)
    torch.testing.assert_close(once.scale, twice.scale, rtol=ROUNDING, atol=0)


@given(x=hnp.arrays(np.float32, (3, 4), elements=st.floats(-8, 8, width=32)).map(torch.from_numpy))
def test_uniform_twice_changes_nothing(x):
    for quantize in (quantize_minmax, quantize_symmetric):
        once = quantize(x)
        torch.testing.assert_close(quantize(once.dequantize()).dequantize(), once.dequantize(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", WEIGHT_QUANTIZERS)
@given(w=matrices(even_rows=True), granularity=st.sampled_from(GRANULARITIES), power=st.integers(-6, 6))
def test_scaling_the_input_scales_alpha_and_leaves_the_codes(name, w, granularity, power):
    """By powers of two, which float arithmetic follows exactly."""
    quantize = WEIGHT_QUANTIZERS[name]
    v = moments_like(w, 0)
    plain, scaled = quantize(w, v, granularity), quantize(w * 2.0**power, v, granularity)
    assert torch.equal(plain.codes, scaled.codes)
    assert torch.equal(plain.scale * 2.0**power, scaled.scale)


@pytest.mark.parametrize("name", WEIGHT_QUANTIZERS)
@given(w=matrices(max_rows=4, even_rows=True))  # each part is quantized again: two groups of two rows are enough
def test_finer_granularity_is_layer_wise_on_each_part(name, w):
    quantize, v = WEIGHT_QUANTIZERS[name], moments_like(w, 0)
    for granularity, size in ((ROW, 1), (Granularity.group(2), 2)):
        whole = quantize(w, v, granularity)
        for i in range(0, len(w), size):
            part = quantize(w[i : i + size], v[i : i + size], LAYER)
            assert torch.equal(whole.codes[i : i + size], part.codes)
            scale = whole.scale[i : i + size]
            torch.testing.assert_close(scale, part.scale.expand_as(scale), rtol=ROUNDING, atol=0)


@pytest.mark.parametrize("name", WEIGHT_QUANTIZERS)
@given(w=matrices(), zero=st.integers(0, 11))
def test_alpha_is_positive_unless_the_row_is_zero(name, w, zero):
    w[zero % len(w)] = 0
    q = WEIGHT_QUANTIZERS[name](w, moments_like(w, 0), ROW)
    empty = (w == 0).all(1)
    assert (q.scale[empty] == 0).all()
    assert (q.codes[empty] == 0).all()
    assert (q.scale[~empty] > 0).all()
    assert q.dequantize().isfinite().all()


@given(hnp.arrays(np.float32, (3, 5, 4), elements=st.floats(-100, 100, width=32)), st.integers(2, 8))
def test_error_of_uniform_quantization_is_at_most_half_a_step(values, bits):
    x = torch.from_numpy(values)
    for granularity in (TENSOR, SAMPLE, TOKEN):
        for quantize in (quantize_minmax, quantize_symmetric):
            q = quantize(x, bits, granularity)
            slack = 4e-7 * x.abs().max() + 1e-30
            assert ((q.dequantize() - x).abs() <= q.scale * (0.5 + 1e-4) + slack).all()


@given(hnp.arrays(np.float32, (2, 4, 3), elements=st.floats(-9, 9, width=32)), st.integers(1, 4), st.floats(-1e6, 1e6))
def test_ranges_never_look_at_padding(values, length, junk):
    x = torch.from_numpy(values)
    mask = (torch.arange(4) < length).view(1, 4, 1)
    padded = torch.where(mask, x, torch.tensor(junk, dtype=torch.float32))
    for granularity in (TENSOR, SAMPLE):
        for quantize in (quantize_minmax, quantize_symmetric):
            short = quantize(x[:, :length], 8, granularity)
            masked = quantize(padded, 8, granularity, mask=mask)
            assert torch.equal(masked.codes[:, :length], short.codes)
            assert torch.equal(masked.scale, short.scale)
    nothing = quantize_minmax(x, mask=torch.zeros(2, 4, 1, dtype=torch.bool))
    assert (nothing.scale == 0).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("granularity", [LAYER, ROW])
def test_nan_and_infinity_raise(bad, granularity):
    w = torch.randn(4, 6)
    w[2, 3] = bad
    for name, quantize in WEIGHT_QUANTIZERS.items():
        with pytest.raises(NonFiniteError, match="NaN"):
            quantize(w, torch.ones_like(w), granularity)
            pytest.fail(name)
    with pytest.raises(NonFiniteError):
        quantize_minmax(w)
    with pytest.raises(NonFiniteError):
        quantize_minmax(w, clip=2.5)
    v = torch.ones(4, 6)
    v[0, 0] = bad
    with pytest.raises(NonFiniteError, match="second moment"):
        ternarize_lat(torch.randn(4, 6), v)


def test_bfloat16_is_computed_in_float32():
    w = (torch.randn(8, 16) * 0.04).bfloat16()
    for quantize in [*WEIGHT_QUANTIZERS.values(), lambda x, *_: quantize_minmax(x, 8, TOKEN)]:
        v = moments_like(w, 0)
        ours, wide = quantize(w, v, ROW), quantize(w.float(), v, ROW)
        assert torch.equal(ours.codes, wide.codes)
        assert torch.equal(ours.scale, wide.scale)
        assert ours.dequantize().dtype is torch.bfloat16


def test_no_gradient_flows_through_codes_and_scales():
    w = torch.randn(4, 6, requires_grad=True)
    for quantize in [*WEIGHT_QUANTIZERS.values(), lambda x, *_: quantize_minmax(x)]:
        assert not quantize(w, moments_like(w, 0), ROW).dequantize().requires_grad


def test_half_precision_and_views():
    w = (torch.randn(8, 16) * 0.04).half()
    for quantize in WEIGHT_QUANTIZERS.values():
        assert quantize(w, moments_like(w, 0), ROW).dequantize().dtype is torch.float16
        view = torch.randn(16, 8).T
        v = moments_like(view, 0)
        assert torch.equal(quantize(view, v, ROW).codes, quantize(view.contiguous(), v, ROW).codes)


def test_values_too_large_to_add_up_are_refused_not_zeroed():
    w = torch.randn(4, 6) * 3e37
    with pytest.raises(NonFiniteError, match="too large"):
        quantize_laq(w, torch.ones_like(w), 3)


@pytest.mark.parametrize("levels", ["linear", "log"])
def test_more_bits_and_the_better_scale_lower_the_error(levels):
    """On Gaussian weights; the authors' scale does not profit from a fourth bit."""
    w = torch.randn(64, 96) * 0.04
    v = torch.ones_like(w)

    def error(bits: int, alpha: str) -> float:
        q = quantize_laq(w, v, bits, levels=levels, alpha=alpha)
        return float((w - q.dequantize()).square().sum() / w.square().sum())

    best = [error(bits, "least_squares") for bits in (2, 3, 4)]
    assert best == sorted(best, reverse=True)
    assert best[2] < 0.3 * best[0]
    assert error(2, "l1") == pytest.approx(best[0])
    assert all(error(bits, "least_squares") < 0.7 * error(bits, "l1") for bits in (3, 4))


def test_the_authors_scale_shrinks_what_is_quantized_already():
    w, v = torch.randn(64, 96), torch.ones(64, 96)
    once = quantize_laq(w, v, 3)
    twice = quantize_laq(once.dequantize(), v, 3)
    assert twice.dequantize().norm() < 0.99 * once.dequantize().norm()


def test_a_previous_of_zeros_is_no_trap():
    w, v = torch.randn(4, 30), torch.ones(4, 30)
    for quantize in (ternarize_lat, lambda w, v, g, **k: quantize_laq(w, v, 3, g, **k)):
        assert torch.equal(quantize(w, v, ROW, previous=torch.zeros_like(w)).codes, quantize(w, v, ROW).codes)
        with pytest.raises(QuantizationError, match="previous"):
            quantize(w, v, ROW, previous=torch.zeros(30, 4))
        with pytest.raises(NonFiniteError, match="previous"):
            quantize(w, v, ROW, previous=torch.full_like(w, float("nan")))


def test_one_bit_is_the_sign_and_the_mean():
    w = torch.tensor([[-3.0, 1.0, 0.5], [0.0, 0.0, 0.0]])
    q = quantize_laq(w, torch.ones_like(w), 1, ROW)
    assert q.codes[0].tolist() == [-1, 1, 1]
    assert q.scale.flatten().tolist() == pytest.approx([1.5, 0.0])


def test_blocks_do_not_show(monkeypatch):
    w = torch.randn(50, 8)
    whole = ternarize_twn(w, ROW)
    monkeypatch.setattr("ternarybert.quantize.ternary.CACHE_BLOCK", 24)
    in_blocks = ternarize_twn(w, ROW)
    assert torch.equal(whole.codes, in_blocks.codes)
    assert torch.equal(whole.scale, in_blocks.scale)


def test_vectors_are_one_row():
    w = torch.randn(9)
    assert torch.equal(ternarize_twn(w, ROW).dequantize(), ternarize_twn(w, LAYER).dequantize())


def test_constant_second_moments_give_the_unweighted_solution():
    w = torch.randn(6, 40)
    zero, large = torch.zeros_like(w), torch.full_like(w, 3.0)
    assert torch.equal(ternarize_lat(w, zero).codes, ternarize_lat(w, large).codes)
    assert torch.equal(ternarize_lat(w, zero, exact=True).codes, ternarize_twn(w, exact=True).codes)


def test_previous_codes_may_point_the_other_way():
    w = torch.randn(6, 40)
    q = ternarize_lat(w, torch.ones_like(w), previous=-w.sign())
    assert torch.equal(q.codes, ternarize_lat(w, torch.ones_like(w), previous=w.sign()).codes)


def test_what_cannot_be_quantized_is_said():
    w = torch.randn(4, 6)
    with pytest.raises(QuantizationError, match="4 rows do not divide into groups of 3"):
        ternarize_twn(w, Granularity.group(3))
    with pytest.raises(QuantizationError, match="shape"):
        ternarize_twn(torch.empty(0, 3))
    with pytest.raises(QuantizationError, match=r"\(6, 4\) .* \(4, 6\)"):
        ternarize_lat(w, torch.ones(6, 4))
    with pytest.raises(QuantizationError, match="got 9"):
        quantize_minmax(w, 9)
    with pytest.raises(QuantizationError, match="5 bits with levels 'log'"):
        quantize_laq(w, w.abs(), 5, levels="log")
    with pytest.raises(QuantizationError, match="allowed: l1, least_squares"):
        quantize_laq(w, w.abs(), 3, alpha="l2")
    with pytest.raises(NonFiniteError, match="second moment"):
        ternarize_lat(w, torch.full_like(w, -1.0))
    with pytest.raises(QuantizationError, match=r"torch\.int64"):
        quantize_minmax(torch.arange(6))
    with pytest.raises(QuantizationError, match="mask"):
        quantize_minmax(w, mask=torch.zeros(4, 6))
    with pytest.raises(QuantizationError, match=r"clip .* -1"):
        quantize_symmetric(w, clip=-1)
