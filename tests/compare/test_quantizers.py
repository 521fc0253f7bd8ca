"""The defining property of every baseline's quantizer, on any weights."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ternarybert.compare import quantizers
from ternarybert.compare.quantizers import FLOAT, add_noise, draw_blocks, grouped, minmax, symmetric, unquantized
from ternarybert.errors import NonFiniteError, QuantizationError

SEEDS = st.integers(0, 10_000)
ROWS = st.integers(1, 300)


def weights(seed, rows=24, columns=16, outliers=0):
    generator = torch.Generator().manual_seed(seed)
    w = torch.randn(rows, columns, generator=generator) * 0.04
    flat = w.view(-1)
    flat[: min(outliers, len(flat))] = 1.0
    return w


def error(w, stored):
    return float((w - stored.w_hat).square().sum())


@given(SEEDS, ROWS, st.sampled_from([2, 4, 8]))
def test_symmetric_has_levels_around_zero(seed, rows, bits):
    w = weights(seed, rows)
    stored = symmetric(w, bits)
    largest = 2 ** (bits - 1) - 1
    codes = stored.w_hat / (w.abs().max() / largest)
    assert torch.allclose(codes, codes.round(), atol=1e-3)
    assert codes.abs().max() <= largest + 1e-3
    assert stored.parts == {"codes": w.numel() * bits, "scales": FLOAT}


@given(SEEDS)
def test_q2bert_keeps_only_what_is_larger_than_half_of_the_largest(seed):
    """Why it fails in the paper: of Gaussian weights nearly all are then zero."""
    w = weights(seed, 200)
    stored = symmetric(w, 2)
    kept = stored.w_hat != 0
    assert torch.equal(kept, w.abs() > w.abs().max() / 2)
    assert torch.allclose(stored.w_hat[kept].abs(), w.abs().max())
    assert kept.float().mean() < 0.2


@given(SEEDS, ROWS, st.sampled_from([2, 3, 4, 8]), st.integers(1, 200))
def test_each_group_has_its_own_range(seed, rows, bits, groups):
    w = weights(seed, rows)
    stored = grouped(w, bits, groups)
    size = -(-rows // groups)
    for start in range(0, rows, size):
        alone = minmax(w[start : start + size], bits)
        assert torch.allclose(stored.w_hat[start : start + size], alone.w_hat, atol=1e-6)
    used = -(-rows // size)
    assert used <= groups
    assert stored.bits == w.numel() * bits + 2 * FLOAT * used


@given(SEEDS, st.sampled_from([2, 3, 4]))
def test_the_error_falls_with_more_groups_and_with_more_bits(seed, bits):
    w = weights(seed, 256, outliers=3)
    errors = [error(w, grouped(w, bits, groups)) for groups in (1, 4, 16, 64, 256)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0]
    assert error(w, grouped(w, bits + 1, 16)) < error(w, grouped(w, bits, 16))


@given(SEEDS, st.integers(2, 8))
def test_minmax_is_off_by_half_a_step_at_most(seed, bits):
    w = weights(seed)
    step = (w.max() - w.min()) / (2**bits - 1)
    assert (w - minmax(w, bits).w_hat).abs().max() <= step / 2 + 1e-6


@given(SEEDS, st.integers(0, 5), st.sampled_from([2, 3, 4]))
def test_gobo_keeps_outliers_exactly(seed, count, bits):
    w = weights(seed, 200, outliers=count)
    stored = quantizers.gobo(w, bits)
    outliers = quantizers.is_outlier(w.double())
    assert outliers.view(-1)[:count].all()
    assert torch.equal(stored.w_hat[outliers], w[outliers])
    assert len(stored.w_hat[~outliers].unique()) <= 2**bits
    inliers = w.numel() - int(outliers.sum())
    assert stored.bits == inliers * bits + 2**bits * FLOAT + int(outliers.sum()) * (FLOAT + quantizers.POSITION)


@given(SEEDS, st.sampled_from([2, 3, 4]))
def test_gobo_lowers_the_sum_of_distances(seed, bits):
    """Against the bins it starts from, and against equidistant levels of as many bits."""
    w = weights(seed, 200).double().view(-1)
    bins = w.sort().values.tensor_split(2**bits)
    start = torch.stack([part.mean() for part in bins])
    found = quantizers.centroids(w, bits)
    distance = {
        name: float((w - c[quantizers.nearest(w, c)]).abs().sum()) for name, c in (("start", start), ("found", found))
    }
    assert distance["found"] <= distance["start"]
    assert distance["found"] < float((w - minmax(w[None], bits).w_hat[0]).abs().sum())


def test_gobo_counts_distances_as_they_are():
    w = torch.randn(500, dtype=torch.float64).sort().values
    c = torch.tensor([-1.0, -0.1, 0.4, 1.5], dtype=torch.float64)
    sums = torch.cat([w.new_zeros(1), w.cumsum(0)])
    counted = quantizers._distances(w, sums, quantizers._edges(w, c), c)
    assert float(counted) == pytest.approx(float((w - c[quantizers.nearest(w, c)]).abs().sum()))


def test_gobo_takes_about_one_in_a_thousand_of_bert_like_weights_for_outliers():
    w = torch.randn(1_000_000, dtype=torch.float64) * 0.04
    share = float(quantizers.is_outlier(w).double().mean())
    z = math.sqrt(2 * (4 - math.log(0.04 * math.sqrt(2 * math.pi))))
    assert share == pytest.approx(math.erfc(z / math.sqrt(2)), rel=0.2)
    assert 1e-4 < share < 2e-3


@pytest.mark.parametrize("w", [torch.zeros(4, 8), torch.full((4, 8), 0.3)], ids=["zeros", "constant"])
def test_what_has_no_spread_stays(w):
    for stored in (
        symmetric(w, 2),
        minmax(w, 2),
        grouped(w, 3, 2),
        quantizers.gobo(w, 2),
        quantizers.product_quantize(w),
    ):
        assert torch.allclose(stored.w_hat, w)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_a_number_is_refused(bad):
    w = weights(0)
    w[3, 3] = bad
    for quantize in (lambda: symmetric(w, 8), lambda: grouped(w, 2), lambda: quantizers.gobo(w, 3)):
        with pytest.raises(NonFiniteError):
            quantize()
    with pytest.raises(NonFiniteError):
        quantizers.product_quantize(w)


@given(SEEDS)
def test_product_quantization_gets_closer_with_more_centroids(seed):
    w = weights(seed, 128)
    errors = [error(w, quantizers.product_quantize(w, centroids)) for centroids in (2, 8, 32, 128)]
    assert errors == sorted(errors, reverse=True)
    everything = quantizers.product_quantize(w, 256)  # a centroid for each block
    assert torch.allclose(everything.w_hat, w, atol=1e-6)


@given(SEEDS)
def test_every_round_of_k_means_lowers_the_error(seed):
    blocks = quantizers.as_blocks(weights(seed, 100), 8)

    def error_after(rounds):
        codebook = quantizers.k_means(blocks, 16, rounds=rounds)
        return float((blocks - codebook[quantizers.assign(blocks, codebook)]).square().sum())

    errors = [error_after(rounds) for rounds in (0, 1, 2, 5, 10)]
    assert all(later <= earlier * (1 + 1e-6) for earlier, later in pairwise(errors))


@given(SEEDS)
def test_blocks_go_to_their_nearest_centroid(seed):
    blocks = quantizers.as_blocks(weights(seed), 4)
    codebook = quantizers.k_means(blocks, 5)
    distances = torch.cdist(blocks, codebook)
    chosen = distances.gather(1, quantizers.assign(blocks, codebook)[:, None])[:, 0]
    assert torch.allclose(chosen, distances.min(1).values, atol=1e-6)


def test_a_product_code_costs_a_byte_a_block():
    w = weights(0, 512, 768)
    stored = quantizers.product_quantize(w)
    assert stored.parts == {"codes": w.numel() // 8 * 8, "codebooks": 256 * 8 * FLOAT}
    with pytest.raises(QuantizationError, match="blocks of 8"):
        quantizers.product_quantize(weights(0, 4, 12))


def test_kept_weights_are_whole():
    w = weights(0)
    assert unquantized(w).w_hat is w
    assert unquantized(w).bits == w.numel() * FLOAT


@given(st.integers(0, 10_000), st.sampled_from([0.05, 0.1, 0.5, 0.9]))
def test_the_share_of_quantized_blocks_is_the_rate(seed, rate):
    torch.manual_seed(seed)
    drawn = draw_blocks(torch.zeros(512, 128), rate, 8)
    blocks = drawn.view(-1, 8)
    assert torch.equal(blocks.all(1), blocks.any(1)), "a block is drawn as a whole"
    share, count = float(drawn.float().mean()), len(blocks)
    assert abs(share - rate) < 5 * (rate * (1 - rate) / count) ** 0.5


@pytest.mark.parametrize("proxy", [True, False])
def test_only_the_drawn_weights_change(proxy):
    w = torch.randn(16, 32)
    w_hat = symmetric(w, 8).w_hat
    drawn = draw_blocks(w, 0.3, 8)
    mixed = add_noise(w, None if proxy else w_hat, drawn)
    assert torch.equal(mixed[~drawn], w[~drawn])
    assert torch.equal(mixed[drawn], torch.zeros_like(w[drawn]) if proxy else w_hat[drawn])


def test_weights_that_were_not_drawn_see_the_true_gradient():
    """Against the gradient by differences of the loss at the noisy weights."""
    w = torch.randn(4, 8, dtype=torch.float64, requires_grad=True)
    x, y = torch.randn(10, 8, dtype=torch.float64), torch.randn(10, 4, dtype=torch.float64)
    drawn = draw_blocks(w, 0.4, 4)

    def loss(weight):
        return (torch.tanh(x @ weight.T) - y).square().mean()

    loss(add_noise(w, None, drawn)).backward()
    at = torch.where(drawn, 0.0, w.detach())
    for row, column in (~drawn).nonzero().tolist():
        step = torch.zeros_like(at)
        step[row, column] = 1e-6
        difference = (loss(at + step) - loss(at - step)) / 2e-6
        assert float(w.grad[row, column]) == pytest.approx(float(difference), abs=1e-7)


def test_drawn_weights_still_learn():
    w = torch.randn(4, 8, requires_grad=True)
    add_noise(w, None, torch.ones(4, 8, dtype=torch.bool)).sum().backward()
    assert torch.equal(w.grad, torch.ones(4, 8))
