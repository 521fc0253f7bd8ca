"""Models whose layers were swapped: what they compute, what they learn, how large they are."""

import pytest
import torch
from torch import nn

from ternarybert.compare.layers import BaselineWeight, MovingRange, ProductQuantizer, block_noise, freeze_codes
from ternarybert.compare.models import (
    calibrate,
    float_size,
    layer_drop,
    quantizable_weights,
    quantize_model,
    shallower,
    size_of,
)
from ternarybert.compare.quantizers import gobo, grouped, symmetric, unquantized
from ternarybert.errors import UnsupportedModelError
from ternarybert.packed.inspect import estimate
from ternarybert.recipe import PRESETS
from ternarybert.student import make_student
from tests import tiny


def test_the_places_are_those_of_our_student():
    ours = make_student(tiny.bert(), PRESETS["paper"])
    quantized = {name for name, module in ours.base_model.named_modules() if hasattr(module, "scheme")}
    quantized = {name for name in quantized if not name.endswith("activation_quantizer")}
    assert {place.name for place in quantizable_weights(tiny.bert())} == quantized


def test_weights_that_are_kept_change_nothing():
    batch = tiny.batch()
    with torch.no_grad():
        plain = tiny.bert()(**batch).logits
        swapped = quantize_model(tiny.bert(), lambda _: unquantized)(**batch).logits
    assert torch.equal(plain, swapped)


def test_the_forward_pass_uses_what_is_stored_and_training_the_straight_through_gradient():
    model = quantize_model(tiny.bert(), lambda _: lambda w: symmetric(w, 2))
    plain = tiny.bert()
    with torch.no_grad():
        for place in quantizable_weights(plain):
            place.module.weight.copy_(symmetric(place.module.weight, 2).w_hat)
    batch = tiny.batch()
    assert torch.allclose(model(**batch).logits, plain(**batch).logits, atol=1e-5)
    model(**batch).logits.sum().backward()
    plain(**batch).logits.sum().backward()
    for swapped, other in zip(quantizable_weights(model), quantizable_weights(plain), strict=True):
        assert torch.allclose(swapped.module.weight.grad, other.module.weight.grad, atol=1e-4), swapped.name


def test_a_changed_weight_is_quantized_anew():
    model = quantize_model(tiny.bert(), lambda _: lambda w: grouped(w, 2))
    layer = next(module for module in model.modules() if isinstance(module, BaselineWeight))
    before = layer.stored()
    assert layer.stored() is before
    with torch.no_grad():
        layer.weight.mul_(2)
    assert torch.allclose(layer.stored().w_hat, 2 * before.w_hat, atol=1e-5)


def test_activations_are_calibrated_and_then_stand_still():
    model = quantize_model(tiny.bert(), lambda _: unquantized, activation_bits=8)
    ranges = [module for module in model.modules() if isinstance(module, MovingRange)]
    assert len(ranges) == 2 * 6 + 1
    calibrate(model, [tiny.batch(0), tiny.batch(1)])
    assert all(bool(module.seen) and not module.training for module in ranges)
    bounds = [float(module.high) for module in ranges]
    with torch.no_grad():
        close = model(**tiny.batch(2)).logits - tiny.bert()(**tiny.batch(2)).logits
    assert bounds == [float(module.high) for module in ranges]
    assert 0 < close.abs().max() < 0.5


def test_sizes_by_hand():
    plain = tiny.bert()
    total = sum(p.numel() for p in plain.parameters())
    inside = sum(place.module.weight.numel() for place in quantizable_weights(plain))
    matrices = quantizable_weights(plain)
    assert float_size(plain).bytes == 4 * total

    model = quantize_model(tiny.bert(), lambda _: lambda w: symmetric(w, 2), activation_bits=8, symmetric=True)
    bits = inside * 2 + len(matrices) * 32 + 13 * 32 + (total - inside) * 32
    assert size_of(model, PRESETS["paper"]).bytes == -(-bits // 8)

    post = quantize_model(tiny.bert(), lambda _: lambda w: gobo(w, 3))
    parts = size_of(post, PRESETS["paper"]).parts
    kept = parts["outliers"] // 64
    assert parts["codes"] == (inside - kept) * 3
    assert parts["codebooks"] == len(matrices) * 8 * 32


def test_our_own_size_is_the_packed_one():
    student = make_student(tiny.bert(), PRESETS["paper"])
    shapes = {name: tuple(value.shape) for name, value in tiny.bert().state_dict().items()}
    assert size_of(student, PRESETS["paper"]).bytes == estimate(shapes, "2-2-8").bytes


def test_product_quantization_learns_its_centroids():
    model = quantize_model(tiny.bert(), lambda place: ProductQuantizer(place.module.weight, centroids=16))
    layer = next(module for module in model.modules() if isinstance(module, BaselineWeight))
    nearest = (layer.weight - layer.stored().w_hat).square().sum()
    freeze_codes(model)
    assert (layer.weight - layer.stored().w_hat).square().sum() <= nearest, "means are the best centroids for the codes"
    assert len(layer.stored().w_hat.view(-1, 8).unique(dim=0)) <= 16
    model.train()
    model(**tiny.batch()).logits.sum().backward()
    blocks, codes = layer.weight.grad.view(-1, 8), layer.quantize.codes.long()
    for code in codes.unique():
        same = blocks[codes == code]
        assert torch.allclose(same, same[:1].expand_as(same), atol=1e-6), "weights of a centroid move together"


def test_noise_only_while_training():
    model = quantize_model(tiny.bert(), lambda _: lambda w: symmetric(w, 8), noise=block_noise(0.5, 8, proxy=True))
    layer = next(module for module in model.modules() if isinstance(module, BaselineWeight))
    layer.train()
    drawn = (layer.w_tilde().view(-1, 8) == 0).all(1).float().mean()
    assert 0.3 < float(drawn) < 0.7
    layer.eval()
    assert torch.equal(layer.w_tilde(), layer.stored().w_hat)


def test_layers_are_dropped_at_random_and_then_for_good():
    model = layer_drop(tiny.bert(num_hidden_layers=4))
    short = shallower(tiny.bert(num_hidden_layers=4))
    batch = tiny.batch()
    with torch.no_grad():
        assert torch.allclose(model.eval()(**batch).logits, short(**batch).logits, atol=1e-6)
        model.train()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        depths = {tuple(model(**batch).logits[0].tolist()) for _ in range(40)}
    assert len(depths) > 4
    assert size_of(model, PRESETS["paper"]).bytes == float_size(short).bytes


def test_a_shallower_student_has_every_second_layer():
    model = tiny.bert(num_hidden_layers=4)
    short = shallower(model)
    assert short.config.num_hidden_layers == 2
    kept = [short.bert.encoder.layer[i].output.dense.weight for i in range(2)]
    assert torch.equal(kept[0], model.bert.encoder.layer[1].output.dense.weight)
    assert torch.equal(kept[1], model.bert.encoder.layer[3].output.dense.weight)
    assert len(model.bert.encoder.layer) == 4
    with pytest.raises(UnsupportedModelError, match=r"\b3 layers"):
        shallower(tiny.bert(num_hidden_layers=3))
