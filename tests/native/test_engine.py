"""The native engine against NumPy: equal to the last bit (but for tanh, which is the C library's)."""

import numpy as np
import pytest

from tests.native.engine import EngineError, engine, kernels
from tests.native.forward import Forward, random_model

KERNELS = kernels()
ULPS_OF_TANH = 3e-7
HEADLESS = {"dense_rows": 0}  # a head that reads tokens

CASES = {
    "ternary": {},
    "row scales": {"row_scales": True},
    "dense packing": {"dense_packing": True},
    "3 bits": {"bits": 3, "word_bits": 3},
    "3 bits log": {"bits": 3, "log": True},
    "4 bits": {"bits": 4, "word_bits": 4},
    "4 bits log": {"bits": 4, "log": True, "word_bits": 8},
    "8 bits": {"bits": 8, "word_bits": 8},
    "float weights": {"bits": 32, "word_bits": 32},
    "float activations": {"activation_bits": 32},
    "4-bit activations": {"activation_bits": 4},
    "symmetric": {"symmetric": 1},
    "symmetric, clipped": {"symmetric": 1, "clip": 1.5},
    "min-max, clipped": {"clip": 1.25},
    "ranges per sequence": {"range": 1},
    "ranges per sequence, symmetric": {"range": 1, "symmetric": 1, "clip": 2.5},
    "relu": {"function": "relu"},
    "gelu_tanh": {"function": "gelu_tanh"},
    "no types": {"types": 0},
    "roberta positions": {"first_position": 2, "types": 1},
    "no bias": {"bias": False},
    "plain pooler": {"dense_quantized": 0, "dense_bits": 32, "dense_function": "relu"},
    "float pooler, quantized input": {"dense_bits": 32, "dense_function": "identity"},
    "odd sizes": {"hidden": 78, "heads": 3, "intermediate": 101, "dense_rows": 35},
    "narrow": {"hidden": 6, "heads": 2, "intermediate": 5, "head_rows": 1},
    "several tiles": {"hidden": 192, "heads": 3, "intermediate": 640, "positions": 90, "layer_count": 1},
}


def sequences(model, lengths, seed=1):
    rng = np.random.default_rng(seed)
    ids = [rng.integers(0, len(model["word"]["codes"]), n) for n in lengths]
    types = [rng.integers(0, max(model["types"], 1), n) for n in lengths]
    return ids, types


def assert_equal(found, expected, output, model):
    if output in ("dense", "logits") and model["dense"] and model["dense_function"] == "tanh":
        np.testing.assert_allclose(found, expected, rtol=0, atol=ULPS_OF_TANH * 40)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", CASES)
def test_equal_to_numpy(case, kernel):
    model = random_model(seed=len(case), **CASES[case])
    ids, types = sequences(model, (1, 17, 2, 38, 7))
    forward = Forward(model)
    with engine(model, kernel) as native:
        outputs = ["hidden", "first", "mean", "dense", "logits"]
        for output in outputs:
            expected = np.concatenate([forward.run(i, output, t) for i, t in zip(ids, types, strict=True)])
            assert_equal(native.run(ids, output, types), expected, output, model)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("activation_bits", [8, 32])
def test_no_bias_keeps_negative_zeros(activation_bits, kernel):
    model = random_model(bias=False, dense_function="identity", activation_bits=activation_bits)
    model["dense"]["codes"][:] = 0
    model["dense"]["scale"][:] = -1  # times a sum of +0
    ids, _ = sequences(model, (3, 9))
    expected = np.concatenate([Forward(model).run(i, "dense") for i in ids])
    assert np.signbit(expected).all()
    with engine(model, kernel) as native:
        np.testing.assert_array_equal(native.run(ids, "dense").view(np.int32), expected.view(np.int32))


@pytest.mark.parametrize("kernel", KERNELS)
def test_token_logits(kernel):
    model = random_model(**HEADLESS)
    ids, _ = sequences(model, (3, 9))
    expected = np.concatenate([Forward(model).run(i, "token_logits") for i in ids])
    with engine(model, kernel) as native:
        np.testing.assert_array_equal(native.run(ids, "token_logits"), expected)
        first = np.concatenate([Forward(model).run(i, "logits") for i in ids])
        np.testing.assert_array_equal(native.run(ids, "logits"), first)


@pytest.mark.parametrize("range_", (0, 1))
@pytest.mark.parametrize("threads", (1, 2, 3))
def test_neither_batch_nor_threads_matter(threads, range_):
    model = random_model(range=range_, hidden=72, heads=6, positions=130)
    ids, types = sequences(model, (1, 130, 5, 5, 64, 2, 31, 100, *[3] * 40))
    with engine(model) as alone, engine(model, threads=threads) as native:
        for output in ("hidden", "logits", "mean"):
            single = [alone.run([i], output, [t]) for i, t in zip(ids, types, strict=True)]
            np.testing.assert_array_equal(native.run(ids, output, types), np.concatenate(single))
            turned = native.run(ids[::-1], output, types[::-1])
            np.testing.assert_array_equal(turned, np.concatenate(single[::-1]))


def test_kernels_agree_on_a_larger_model():
    model = random_model(hidden=256, heads=4, intermediate=1024, positions=200, layer_count=3)
    ids, _ = sequences(model, (200, 6, 65))
    results = []
    for kernel in KERNELS:
        with engine(model, kernel) as native:
            results.append(native.run(ids, "hidden"))
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_named_errors():
    model = random_model()
    with engine(model) as native:
        for ids, message in (
            ([np.array([50])], "id 50, the vocabulary has 50"),
            ([np.array([-1])], "id -1"),
            ([np.array([], int)], "sequence 0 has 0 tokens"),
            ([np.zeros(41, int)], "41 tokens, the model takes at most 40"),
        ):
            with pytest.raises(EngineError, match=message):
                native.run(ids)
        with pytest.raises(EngineError, match="type 2, the model has 2"):
            native.run([np.zeros(1, int)], types=[np.array([2])])
    with pytest.raises(EngineError, match="no kernel abacus"), engine(model, "abacus"):
        pass
    model["layers"][1]["up"]["scale"] = np.array([np.inf], np.float32)
    with pytest.raises(EngineError, match="layer 1: up has a number that is not finite"), engine(model):
        pass


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("changes, layer, weight", [
    ({}, 0, "up"),
    ({}, -1, "down"),  # nothing is quantized after it
    ({"activation_bits": 32}, 0, "up"),  # nothing is quantized at all
])  # fmt: skip
@pytest.mark.parametrize("output", ["hidden", "first", "mean", "token_logits"])
def test_activations_that_overflow_are_an_error(changes, layer, weight, output, threads):
    model = random_model(**HEADLESS, **changes)
    model["layers"][layer][weight]["scale"] = np.array([3e38], np.float32)
    with engine(model, threads=threads) as native, pytest.raises(EngineError, match="infinite or NaN"):
        native.run([np.arange(9), np.arange(5)], output)


def test_heads_that_overflow_are_an_error():
    model = random_model(dense_function="identity")
    model["dense"]["scale"] = np.array([3e38], np.float32)
    with engine(model) as native, pytest.raises(EngineError, match="infinite or NaN"):
        native.run([np.arange(9)])
