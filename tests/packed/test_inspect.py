"""Statistics are those of the weights, and sizes are those of the paper."""

import json

import numpy as np
import pytest
import safetensors.numpy

from ternarybert.errors import PackedConfigError, PackedTensorError
from ternarybert.packed import PackedTensor, read, write
from ternarybert.packed.hf_folder import unpack_to_float
from ternarybert.packed.inspect import estimate, folder_shapes, inspect_model

from .models import BASE, bert_shapes, random_model

# BERT-base with a two-class head, which is what the paper's sizes mean.
BASE_SHAPES = bert_shapes(BASE, labels=2)
SIX_LAYERS = BASE | {"num_hidden_layers": 6}
SIX_SHAPES = bert_shapes(SIX_LAYERS, labels=2)


@pytest.mark.parametrize(
    ("shapes", "bits", "options", "mib"),
    [
        (BASE_SHAPES, "32-32-32", {}, 417.65),
        (BASE_SHAPES, "2-2-8", {}, 28.07),
        (BASE_SHAPES, "2-2-8", {"pooler": False}, 30.18),
        (BASE_SHAPES, "3-3-8", {}, 41.06),
        (BASE_SHAPES, "8-8-8", {}, 105.9),
        (SIX_SHAPES, "2-2-8", {}, 17.72),
    ],
)
def test_sizes_of_the_paper(shapes, bits, options, mib):
    assert estimate(shapes, bits, **options).mib == pytest.approx(
        mib, rel=0.002
    )  # 8-8: the embedding has a scale per row


def test_compression_of_bert_base():
    ternary = estimate(BASE_SHAPES, "2-2-8")
    assert ternary.ratio == pytest.approx(14.9, abs=0.05)
    assert ternary.mb == pytest.approx(ternary.mib * 1.048576)
    assert estimate(BASE_SHAPES, "2-2-8", packing="dense").mib <= 23


@pytest.mark.parametrize(
    ("bits", "options"),
    [("2-2-8", {}), ("2-2-8", {"packing": "dense"}), ("3-3-8", {}), ("4-4-8", {}), ("8-8-8", {}), ("3-2-8", {})],
)
def test_the_estimate_is_what_comes_out(tmp_path, bits, options):
    model = random_model(BASE | {"num_hidden_layers": 1, "vocab_size": 1000}, bits, **options)
    write(tmp_path / "p", model)
    measured = inspect_model(read(tmp_path / "p"))
    estimated = estimate({name: tensor.shape for name, tensor in model.tensors.items()}, bits, **options)
    assert measured.bytes == estimated.bytes
    header = (tmp_path / "p" / "ternarybert.safetensors").stat().st_size - measured.bytes
    assert 0 < header < 10_000


@pytest.mark.parametrize(
    ("config", "bits", "packing", "mib", "ratio"),
    [
        (BASE, "2-2-8", "plain", 28.07, 14.9),
        (BASE, "2-2-8", "dense", 22.93, 18.2),
        (BASE, "3-3-8", "plain", 41.06, 10.2),
        (BASE, "8-8-8", "plain", 106.0, 3.94),
        (SIX_LAYERS, "2-2-8", "plain", 17.72, 14.4),
    ],
)
def test_bert_in_a_file(tmp_path, config, bits, packing, mib, ratio):
    write(tmp_path / "p", random_model(config, bits, packing=packing))
    inspection = inspect_model(read(tmp_path / "p"))
    assert inspection.mib == pytest.approx(mib, abs=0.02)
    assert inspection.ratio == pytest.approx(ratio, abs=0.05)
    assert (tmp_path / "p" / "ternarybert.safetensors").stat().st_size / 2**20 == pytest.approx(mib, abs=0.05)


def test_statistics_of_a_tensor():
    model = random_model()
    codes = np.array([[1, 0, 0, -1, 0, 0]] * 6, np.int8)
    scale = np.arange(1, 7, dtype=np.float32)
    name = "bert.pooler.dense.weight"
    model.tensors[name] = PackedTensor.pack(codes, scale, bits=2)
    stats = {tensor.name: tensor for tensor in inspect_model(model).tensors}
    pooler = stats[name]
    assert (pooler.shape, pooler.bits, pooler.granularity, pooler.bytes) == ((6, 6), 2, "row", 6 * 2 + 6 * 4)
    assert (pooler.zeros, pooler.scale_min, pooler.scale_max) == (pytest.approx(4 / 6), 1, 6)
    assert pooler.relative_error is None
    bias = stats["classifier.bias"]
    assert (bias.bits, bias.bytes, bias.granularity, bias.zeros) == (32, 12, None, None)


def test_errors_against_the_weights_it_came_from():
    model = random_model()
    reference = unpack_to_float(model)
    name = "bert.pooler.dense.weight"
    exact = {tensor.name: tensor for tensor in inspect_model(model, reference).tensors}
    assert exact[name].relative_error == 0
    assert exact[name].cosine == pytest.approx(1)
    assert exact["classifier.weight"].relative_error == 0
    reference[name] = 2 * reference[name]
    doubled = {tensor.name: tensor for tensor in inspect_model(model, reference).tensors}
    assert doubled[name].relative_error == pytest.approx(0.5)
    assert doubled[name].cosine == pytest.approx(1)


def test_undefined_errors_are_none_and_json_holds_everything():
    model = random_model()
    reference = {"classifier.bias": np.zeros(3, np.float32)}
    inspection = inspect_model(model, reference)
    bias = next(tensor for tensor in inspection.tensors if tensor.name == "classifier.bias")
    assert (bias.relative_error, bias.cosine) == (None, None)
    again = json.loads(json.dumps(inspection.as_dict(), allow_nan=False))
    assert again["bytes"] == inspection.bytes
    assert len(again["tensors"]) == len(model.tensors)


def test_a_wrong_reference_is_refused():
    with pytest.raises(PackedTensorError, match="reference"):
        inspect_model(random_model(), {"x": np.zeros(3)})
    with pytest.raises(PackedTensorError, match=r"'classifier.bias' is \(3,\), but \(4,\) in the reference"):
        inspect_model(random_model(), {"classifier.bias": np.zeros(4)})


@pytest.mark.parametrize("values", [[0, np.inf, 0], [np.nan, 0, 0], [0, 0, 1e200]])
def test_a_reference_without_a_norm_is_refused(values):
    with pytest.raises(PackedTensorError, match=r"'classifier.bias' .* NaN"):
        inspect_model(random_model(), {"classifier.bias": np.array(values)})


def test_weights_so_small_that_their_squares_vanish():
    model = random_model()
    model.tensors["classifier.bias"] = np.full(3, 1e-40, np.float32)
    stats = {t.name: t for t in inspect_model(model, {"classifier.bias": np.full(3, 1e-130)}).tensors}
    assert stats["classifier.bias"].cosine == pytest.approx(1)


def test_shapes_of_a_plain_folder(tmp_path):
    floats = unpack_to_float(random_model())
    safetensors.numpy.save_file(floats, tmp_path / "model.safetensors")
    shapes = folder_shapes(tmp_path)
    assert shapes == {name: tensor.shape for name, tensor in floats.items()}
    assert estimate(shapes).ratio > 1


def test_estimates_that_make_no_sense():
    with pytest.raises(PackedTensorError, match="bert, roberta"):
        estimate({"transformer.h.0.attn.weight": (8, 8)})
    with pytest.raises(PackedConfigError, match="expected W-E-A"):
        estimate(BASE_SHAPES, "2-8")


@pytest.mark.parametrize("shape", [(), (6,), (0, 6), (6, 0), (6, 6, 1)])
def test_what_cannot_be_packed_has_no_estimate(shape):
    name = "bert.pooler.dense.weight"
    with pytest.raises(PackedTensorError, match=f"'{name}' is "):
        estimate(BASE_SHAPES | {name: shape})
