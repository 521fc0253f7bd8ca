"""Files of other programs: every dtype, and only what is wanted. Our own are in test_folder.py and test_damage.py."""

import re
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

from ternarybert.errors import ContainerError
from ternarybert.packed.weights_file import map_any, read_shapes

from .models import random_model

DTYPES = ["?", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_of_numpy(tmp_path, dtype):
    array = np.arange(6).astype(dtype).reshape(2, 3)
    safetensors.numpy.save_file({"a": array, "empty": array[:0]}, tmp_path / "x.safetensors")
    mapped = map_any(tmp_path / "x.safetensors")
    assert mapped["a"].dtype == array.dtype
    np.testing.assert_array_equal(mapped["a"], array)
    assert mapped["empty"].shape == (0, 3)
    assert read_shapes(tmp_path / "x.safetensors") == {"a": (2, 3), "empty": (0, 3)}


def test_bfloat16_is_widened(tmp_path):
    tensor = torch.tensor([1.0, -3.140625, float("inf")], dtype=torch.bfloat16)
    safetensors.torch.save_file({"a": tensor}, tmp_path / "x.safetensors")
    np.testing.assert_array_equal(map_any(tmp_path / "x.safetensors")["a"], tensor.float().numpy())


def test_one_tensor_alone(tmp_path):
    safetensors.numpy.save_file({"a": np.ones(2), "b": np.zeros(3)}, tmp_path / "x.safetensors")
    assert list(map_any(tmp_path / "x.safetensors", "b")) == ["b"]


def test_float8_is_refused_by_name(tmp_path):
    safetensors.torch.save_file({"a": torch.ones(2).to(torch.float8_e4m3fn)}, tmp_path / "x.safetensors")
    with pytest.raises(ContainerError, match=r"x\.safetensors: tensor 'a'.*F8"):
        map_any(tmp_path / "x.safetensors")


@pytest.mark.linux_only("mapped files are read from /proc")
def test_a_model_in_memory_lets_go_of_its_file(folder, model):
    from ternarybert.packed import read

    def is_mapped():
        return re.search(re.escape(str(folder)), Path("/proc/self/maps").read_text()) is not None

    mapped = read(folder)
    assert is_mapped()
    copied = mapped.in_memory()
    del mapped
    assert not is_mapped()
    for name, tensor in random_model().tensors.items():
        arrays = [(t.codes, t.scale) if hasattr(t, "codes") else (t,) for t in (tensor, copied.tensors[name])]
        for ours, theirs in zip(*arrays, strict=True):
            np.testing.assert_array_equal(ours, theirs)
