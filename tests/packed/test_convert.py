"""Checkpoints of the released code are recognised exactly, and nothing is rounded into shape."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternarybert.errors import NotTernaryError, PackedConfigError, PackedTensorError
from ternarybert.packed import read, write
from ternarybert.packed.hf_folder import pack_released, pack_ternary, unpack_to_float

from .models import TINY, random_model

POOLER = "bert.pooler.dense.weight"


def released(seed=0):
    """A state dict as the released code saves it: float32 tensors that hold ternary values, and clipping bounds."""
    state = unpack_to_float(random_model(seed=seed))
    for name in ("bert.pooler.dense.weight_clip_val", "bert.encoder.layer.0.attention.self.clip_query"):
        state[name] = np.array([-2.5, 2.5], np.float32)
    state["bert.embeddings.position_ids"] = np.arange(4)
    return state


def test_a_released_checkpoint_survives_bit_for_bit(tmp_path):
    state = released()
    write(tmp_path / "p", pack_released(state, TINY, recipe={"name": "reference"}))
    back = unpack_to_float(read(tmp_path / "p"))
    assert back.keys() == state.keys() - {name for name in state if "clip" in name or "position_ids" in name}
    for name, tensor in back.items():
        assert tensor.dtype == np.float32
        np.testing.assert_array_equal(tensor, state[name], err_msg=name)


def test_granularity_is_found():
    model = pack_released(released(), TINY)
    assert model.tensors["bert.embeddings.word_embeddings.weight"].granularity == "row"
    assert model.tensors[POOLER].granularity == "layer"


def test_a_configuration_of_that_time_is_bert():
    config = {name: value for name, value in TINY.items() if name != "model_type"}
    assert pack_released(released(), config).config["model_type"] == "bert"


def test_the_pooler_may_stay_float(tmp_path):
    state = released()
    state[POOLER] = np.random.default_rng(0).standard_normal((6, 6), dtype=np.float32)
    with pytest.raises(NotTernaryError, match=rf"'{POOLER}' should be ternary, but row 0 holds 6 distinct magnitudes"):
        pack_released(state, TINY)
    model = pack_released(state, TINY, pooler=False, packing="dense")
    np.testing.assert_array_equal(model.tensors[POOLER], state[POOLER])
    assert model.tensors["bert.embeddings.word_embeddings.weight"].packing == "dense"
    write(tmp_path / "p", model)


@settings(deadline=None)
@given(rows=st.integers(1, 8), columns=st.integers(1, 12), row_wise=st.booleans(), seed=st.integers(0, 999))
def test_any_ternary_matrix_is_recognised(rows, columns, row_wise, seed):
    rng = np.random.default_rng(seed)
    scale = rng.random((rows if row_wise else 1, 1), dtype=np.float32)
    w = rng.integers(-1, 2, (rows, columns)).astype(np.float32) * scale
    np.testing.assert_array_equal(pack_ternary("w", w).dequantize(), w)


def test_the_last_bit_may_differ():
    a = np.float32(0.1)
    w = np.array([[a, -np.nextafter(a, np.float32(1)), 0]], np.float32)
    np.testing.assert_array_max_ulp(pack_ternary("w", w).dequantize(), w, maxulp=1)


def test_zero_rows_and_zero_tensors():
    w = np.array([[0, 0], [0.5, -0.5], [0.25, 0]], np.float32)
    tensor = pack_ternary("w", w)
    np.testing.assert_array_equal(tensor.scale, [0, 0.5, 0.25])
    np.testing.assert_array_equal(pack_ternary("w", np.zeros((3, 2), np.float32)).scale, [0])


@pytest.mark.parametrize(
    ("w", "reason"),
    [
        ([[0, 1, 1], [1, 2, 3]], "row 1 holds 3 distinct magnitudes and the whole tensor 3"),
        ([[np.nan, 1, 1]], "not a matrix of finite numbers"),
        ([1, 1, -1], "not a matrix"),
    ],
)
def test_what_is_not_ternary_is_named(w, reason):
    with pytest.raises(NotTernaryError, match=f"tensor 'encoder.w' .*{reason}"):
        pack_ternary("encoder.w", np.array(w, np.float32))


@pytest.mark.parametrize("name", ["classifier.bias", POOLER])
def test_double_precision_is_packed_if_nothing_is_lost(name):
    state = released()
    state[name] = state[name].astype(np.float64)
    np.testing.assert_array_equal(unpack_to_float(pack_released(state, TINY))[name], state[name])
    for factor in (1 / 3, 1e300):
        with pytest.raises(PackedTensorError, match=rf"'{name}' is float64"):
            pack_released(state | {name: state[name] * factor}, TINY)


@pytest.mark.parametrize("shape", [(), (0,), (0, 6), (1 << 40, 0)])
def test_a_head_without_rows_is_named(shape):
    model = pack_released(released() | {"classifier.weight": np.zeros(shape, np.float32)}, TINY)
    with pytest.raises((PackedTensorError, PackedConfigError), match=r"'classifier.weight' is"):
        model.check()


def test_a_head_for_tokens_has_no_pooler():
    config = {name: value for name, value in TINY.items() if name != "architectures"}
    state = {name: array for name, array in released().items() if "pooler" not in name}
    model = pack_released(state, config)
    model.check()
    assert model.config["architectures"] == ["BertForTokenClassification"]


def test_integers_are_not_taken_for_weights(tmp_path):
    model = pack_released(released() | {"bert.counter": np.arange(3)}, TINY)
    with pytest.raises(PackedTensorError, match=r"'bert.counter' is int64"):
        write(tmp_path / "p", model)
