"""Our quantizers against what the released code computed. Codes must be equal, scales within 1e-6 relative."""

import itertools

import pytest
import torch

from ternarybert.quantize import (
    LAYER,
    ROW,
    SAMPLE,
    TENSOR,
    TOKEN,
    Quantized,
    quantize_laq,
    quantize_minmax,
    quantize_symmetric,
    straight_through,
    ternarize_lat,
    ternarize_twn,
)

SCALE_TOLERANCE = 1e-6  # float32 sums in another order
WEIGHT_GRANULARITY = {"layer": LAYER, "row": ROW}
CLIPS = {"clip2.5": 2.5, "noclip": None}


def assert_same(ours: Quantized, theirs: torch.Tensor) -> None:
    """Equal codes and scales, seen through the values: a code off by one is off by a whole step."""
    x_hat = ours.dequantize()
    largest = theirs.abs().max()
    assert x_hat.shape == theirs.shape
    assert x_hat.dtype == theirs.dtype
    assert (x_hat - theirs).abs().max() <= SCALE_TOLERANCE * largest
    if ours.offset is None:  # scale times code, so every single value tells the relative error of its scale
        torch.testing.assert_close(x_hat, theirs, rtol=SCALE_TOLERANCE, atol=0)


@pytest.mark.parametrize(("granularity", "clip"), list(itertools.product(WEIGHT_GRANULARITY, CLIPS)))
def test_twn(golden, granularity, clip):
    case = f"twn_{granularity}_{clip}"
    w = golden(f"{case}/x")
    cut = w if CLIPS[clip] is None else w.clamp(-CLIPS[clip], CLIPS[clip])
    assert_same(ternarize_twn(cut, WEIGHT_GRANULARITY[granularity]), golden(f"{case}/y"))


def test_twn_with_some_zero_rows(golden):
    w = golden("twn_layer_zero_rows/x").clamp(-2.5, 2.5)  # recorded with the released clip
    assert_same(ternarize_twn(w), golden("twn_layer_zero_rows/y"))


@pytest.mark.parametrize("case", ["twn_row_zero_rows_REF_HAS_NAN", "twn_row_embed_REF_HAS_NAN"])
def test_zero_rows_give_zeros_where_the_released_code_gives_nan(golden, case):
    w, theirs = golden(f"{case}/x").clamp(-2.5, 2.5), golden(f"{case}/y")
    nan_rows = theirs.isnan().any(1)
    assert nan_rows.any()
    ours = ternarize_twn(w, ROW)
    assert torch.equal(ours.codes[nan_rows], torch.zeros_like(ours.codes[nan_rows]))
    assert (ours.scale[nan_rows] == 0).all()
    torch.testing.assert_close(ours.dequantize()[~nan_rows], theirs[~nan_rows], rtol=SCALE_TOLERANCE, atol=0)


@pytest.mark.parametrize(("bits", "clip"), list(itertools.product([8, 4, 3, 2], CLIPS)))
def test_activations_one_range_for_the_tensor(golden, bits, clip):
    for prefix, quantize in (("sym", quantize_symmetric), ("asym", quantize_minmax)):
        case = f"{prefix}{bits}_layer_{clip}"
        assert_same(quantize(golden(f"{case}/x"), bits, TENSOR, clip=CLIPS[clip]), golden(f"{case}/y"))


@pytest.mark.parametrize("clip", CLIPS)
def test_activations_finer(golden, clip):
    limit = CLIPS[clip]
    x = golden(f"sym8_row_{clip}/x")
    assert_same(quantize_symmetric(x, 8, TOKEN, clip=limit), golden(f"sym8_row_{clip}/y"))
    assert_same(quantize_minmax(golden(f"asym8_row_{clip}/x"), 8, TOKEN, clip=limit), golden(f"asym8_row_{clip}/y"))
    heads = golden(f"asym8_attn_head_{clip}/x")  # one range for each sequence and head
    ours = quantize_minmax(heads.flatten(0, 1), 8, SAMPLE, clip=limit)
    assert_same(ours, golden(f"asym8_attn_head_{clip}/y").flatten(0, 1))
    for prefix, quantize in (("sym8", quantize_symmetric), ("asym8", quantize_minmax)):
        case = f"{prefix}_attn_layer_{clip}"
        assert_same(quantize(golden(f"{case}/x"), 8, TENSOR, clip=limit), golden(f"{case}/y"))


@pytest.mark.parametrize(("granularity", "clip"), list(itertools.product(WEIGHT_GRANULARITY, CLIPS)))
def test_8_bit_weights(golden, granularity, clip):
    case = f"sym8_w_{granularity}_{clip}"
    ours = quantize_symmetric(golden(f"{case}/x"), 8, WEIGHT_GRANULARITY[granularity], clip=CLIPS[clip])
    assert_same(ours, golden(f"{case}/y"))


def test_constants(golden):
    ours = quantize_minmax(golden("asym8_constant/x"))
    torch.testing.assert_close(ours.dequantize(), golden("asym8_constant/y"), rtol=SCALE_TOLERANCE, atol=1e-8)
    zeros = quantize_symmetric(golden("sym8_zero_REF_HAS_NAN/x"))
    assert golden("sym8_zero_REF_HAS_NAN/y").isnan().any()
    assert (zeros.dequantize() == 0).all()


@pytest.mark.parametrize(("bits", "granularity"), list(itertools.product([1, 2, 3, 4], WEIGHT_GRANULARITY)))
def test_laq_with_identity_curvature(golden, bits, granularity):
    """The released form starts from the signs of the weights; everything but 1 bit depends on where one starts."""
    case = f"laqI{bits}_{granularity}"
    w = golden(f"{case}/x")
    ours = quantize_laq(w, torch.ones_like(w), bits, WEIGHT_GRANULARITY[granularity], previous=w.sign())
    assert_same(ours, golden(f"{case}/y"))
    if bits == 2:
        assert_same(
            ternarize_lat(w, torch.ones_like(w), WEIGHT_GRANULARITY[granularity], previous=w), golden(f"{case}/y")
        )


WEIGHTED = list(itertools.product(["clean", "outlier"], ["d", "I"], ["twn", "sign"]))


@pytest.mark.parametrize(("data", "curvature", "init"), WEIGHTED)
@pytest.mark.parametrize(("kind", "largest"), [("ternary", 1), ("linear", 3), ("log", 4)])
def test_alternating_solutions(golden, data, curvature, init, kind, largest):
    w, v = golden(f"lat_{data}/w"), golden(f"lat_{data}/v")
    v = v if curvature == "d" else torch.ones_like(v)
    previous = w.sign() if init == "sign" else None
    if kind == "ternary":
        ours = ternarize_lat(w, v, previous=previous)
    else:
        ours = quantize_laq(w, v, 3, levels=kind, previous=previous)
    case = f"lat_{data}/{curvature}_{init}_{kind}"
    assert torch.equal(ours.codes, (golden(f"{case}/b") * largest).round().to(torch.int8))
    torch.testing.assert_close(ours.scale.squeeze() * largest, golden(f"{case}/alpha"), rtol=SCALE_TOLERANCE, atol=0)


@pytest.mark.parametrize(("data", "curvature"), list(itertools.product(["clean", "outlier"], ["d", "I"])))
def test_exact_solutions(golden, data, curvature):
    w, v = golden(f"lat_{data}/w"), golden(f"lat_{data}/v")
    ours = ternarize_lat(w, v if curvature == "d" else torch.ones_like(v), exact=True)
    case = f"lat_{data}/{curvature}_exact"
    assert torch.equal(ours.codes, golden(f"{case}/b").to(torch.int8))
    torch.testing.assert_close(ours.scale.squeeze(), golden(f"{case}/alpha"), rtol=SCALE_TOLERANCE, atol=0)


def test_the_exact_solution_degenerates_with_outliers(golden):
    """Two weights of size 3 among 6144 of size 0.04: the optimum keeps just those. See docs/explanation/paper.md."""
    w, v = golden("lat_outlier/w"), golden("lat_outlier/v")

    def error(q: Quantized) -> float:
        return float(((v.sqrt() + 1e-8) * (w - q.dequantize()) ** 2).sum())

    exact, alternating = ternarize_lat(w, v, exact=True), ternarize_lat(w, v)
    assert exact.codes.count_nonzero() == 2
    assert error(exact) < error(alternating)
    assert alternating.codes.count_nonzero() > 0.4 * w.numel()
    # The two ways out: one scale a row, which confines the damage to the rows with outliers, or clipping first.
    by_row = ternarize_lat(w, v, ROW, exact=True)
    poor = (by_row.codes.count_nonzero(dim=1) < 0.3 * w.shape[1]).sum()
    assert poor <= (w.abs() > 1).any(1).sum()
    clipped = ternarize_lat(w.clamp(-0.2, 0.2), v, exact=True)
    assert clipped.codes.count_nonzero() > 0.4 * w.numel()


@pytest.mark.parametrize("clip", CLIPS)
def test_straight_through_gradients(golden, clip):
    for case in ("twn_layer", "twn_row", "sym8_layer", "asym8_layer", "asym8_attn_head"):
        x = golden(f"{case}_{clip}/x").requires_grad_()
        straight_through(x, golden(f"{case}_{clip}/y"), clip=CLIPS[clip]).backward(golden(f"{case}_{clip}/g"))
        assert torch.equal(x.grad, golden(f"{case}_{clip}/gx")), case
