"""Hugging Face folders: ternary checkpoints are recognized exactly, and a model in several files is read whole."""

import json
import os

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from ternarybert.errors import (
    ContainerError,
    NotPackedError,
    NotTernaryError,
    PackedConfigError,
    PackedTensorError,
    UnsafeFileError,
)
from ternarybert.packed import read, write
from ternarybert.packed.hf_folder import pack_released, pack_ternary, read_tensor, read_tensors, unpack_to_float
from ternarybert.packed.inspect import folder_shapes

from .models import TINY, random_model

POOLER = "bert.pooler.dense.weight"
FIRST, SECOND = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
INDEX = "model.safetensors.index.json"
SHAPES = {"a": (2,), "b": (3, 1)}

# --- checkpoints of the released code --------------------------------------------------------------------------


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
def test_any_ternary_matrix_is_recognized(rows, columns, row_wise, seed):
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


# --- weights in several files ----------------------------------------------------------------------------------


@pytest.fixture
def numbered(tmp_path):
    """Two files that only their numbers hold together."""
    safetensors.numpy.save_file({"a": np.zeros(2)}, tmp_path / FIRST)
    safetensors.numpy.save_file({"b": np.zeros((3, 1))}, tmp_path / SECOND)
    return tmp_path


@pytest.fixture
def indexed(numbered):
    """The same, as transformers writes it."""
    write_index(numbered, {"a": FIRST, "b": SECOND})
    return numbered


def write_index(folder, weight_map):
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 40}, "weight_map": weight_map}))


def refused(folder, error, reason):
    for action in (folder_shapes, read_tensors, lambda folder: read_tensor(folder, ("a",))):
        with pytest.raises(error, match=reason) as caught:
            action(folder)
        assert str(caught.value).startswith(f"{folder}: ")


def test_numbered_files(numbered):
    assert folder_shapes(numbered) == SHAPES
    assert {name: array.shape for name, array in read_tensors(numbered).items()} == SHAPES


def test_one_tensor_of_several_files(indexed):
    safetensors.numpy.save_file({"b": np.arange(3, dtype=np.float16).reshape(3, 1)}, indexed / SECOND)
    assert read_tensor(indexed, ("x", "b")).tolist() == [[0], [1], [2]]
    assert read_tensor(indexed, ("x", "y")) is None


def test_an_index_with_whatever_names(indexed):
    (indexed / FIRST).rename(indexed / "encoder.safetensors")
    write_index(indexed, {"a": "encoder.safetensors", "b": SECOND})
    safetensors.numpy.save_file({"c": np.zeros(1)}, indexed / "model-00001-of-00001.safetensors")  # of another time
    assert folder_shapes(indexed) == SHAPES


def test_one_file_counts_alone(indexed):
    safetensors.numpy.save_file({"c": np.zeros(1)}, indexed / "model.safetensors")
    assert folder_shapes(indexed) == {"c": (1,)}


@pytest.mark.parametrize("name", [FIRST, SECOND])
def test_a_missing_file_is_named(numbered, name):
    (numbered / name).unlink()
    refused(numbered, NotPackedError, f"{name} is missing, one of 2 files")
    write_index(numbered, {"a": FIRST, "b": SECOND})
    refused(numbered, NotPackedError, f"{name} is missing, which {INDEX} names")


def test_more_files_than_can_be_counted(numbered):
    for name in (FIRST, SECOND):
        (numbered / name).rename(numbered / name.replace("00002.", "999999999."))
    refused(numbered, NotPackedError, "model-00003-of-999999999.safetensors is missing")


def test_files_of_two_models(numbered):
    (numbered / SECOND).rename(numbered / "model-00002-of-00003.safetensors")
    refused(numbered, PackedConfigError, "do not belong to one model")


def test_a_tensor_that_is_not_where_the_index_says(indexed):
    write_index(indexed, {"a": FIRST, "b": SECOND, "c": SECOND})
    refused(indexed, PackedTensorError, f"{SECOND} lacks the tensor 'c'")
    safetensors.numpy.save_file({"a": np.zeros(2), "x": np.zeros(1)}, indexed / FIRST)
    refused(indexed, PackedTensorError, f"{FIRST} has the tensor 'x', but {INDEX} does not name it there")


def test_a_tensor_in_two_files(numbered):
    safetensors.numpy.save_file({"a": np.ones(2)}, numbered / SECOND)
    refused(numbered, PackedTensorError, f"tensor 'a' is in {SECOND} and in another file")


@pytest.mark.parametrize("weight_map", [None, {}, [], "x"])
def test_an_index_without_a_map(indexed, weight_map):
    write_index(indexed, weight_map)
    refused(indexed, PackedConfigError, f"{INDEX} has no weight_map")


@pytest.mark.parametrize("name", ["../x.safetensors", "/x.safetensors", "pytorch_model.bin", "", None, 3, ["x"]])
def test_an_index_that_leads_elsewhere(indexed, name):
    write_index(indexed, {"a": FIRST, "b": name})
    refused(indexed, UnsafeFileError, f"{INDEX} names the file")


def test_damage_names_the_file(numbered):
    (numbered / SECOND).write_bytes(b"\0" * 7)
    refused(numbered, ContainerError, f"{SECOND}: it is truncated")
    (numbered / SECOND).unlink()
    os.mkfifo(numbered / SECOND)  # opening it would wait for ever
    refused(numbered, UnsafeFileError, f"{SECOND} is not a regular file")


def test_only_pickled_weights(tmp_path):
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04")
    refused(tmp_path, NotPackedError, "pickled weights are never read")
