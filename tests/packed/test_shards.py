"""A model in several files is read whole, or what is missing is named."""

import json
import os

import numpy as np
import pytest
import safetensors.numpy

from ternarybert.errors import ContainerError, NotPackedError, PackedConfigError, PackedTensorError, UnsafeFileError
from ternarybert.packed.hf_folder import read_tensors
from ternarybert.packed.inspect import folder_shapes

FIRST, SECOND = (f"model-0000{number}-of-00002.safetensors" for number in (1, 2))
INDEX = "model.safetensors.index.json"
SHAPES = {"a": (2,), "b": (3, 1)}


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
    for read in (folder_shapes, read_tensors):
        with pytest.raises(error, match=reason) as caught:
            read(folder)
        assert str(caught.value).startswith(f"{folder}: ")


def test_numbered_files(numbered):
    assert folder_shapes(numbered) == SHAPES
    assert {name: array.shape for name, array in read_tensors(numbered).items()} == SHAPES


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
