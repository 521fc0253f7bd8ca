"""A reader written from docs/reference/format.md alone: json, struct and NumPy, and nothing of ours."""

import json
import struct

import numpy as np
import pytest

from ternarybert.packed import write
from ternarybert.packed.hf_folder import unpack_to_float

from .models import random_model

DTYPES = {"U8": "<u1", "I8": "<i1", "F32": "<f4", "F16": "<f2"}


def read_container(path):
    data = path.read_bytes()
    (n,) = struct.unpack_from("<Q", data)
    arrays = {}
    for name, entry in json.loads(data[8 : 8 + n]).items():
        if name != "__metadata__":
            begin, end = (8 + n + offset for offset in entry["data_offsets"])
            arrays[name] = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return arrays


def levels_of(bits, levels):
    k = 2 ** (bits - 1) - 1
    positive = [2**i for i in range(k)] if levels == "log" else list(range(1, k + 1))
    return [-level for level in reversed(positive)] + [0] + positive


def codes_of_row(row, entry):
    bits, columns = entry["bits"], entry["shape"][1]
    if bits == 8:
        return [int(code) for code in row]
    if entry["packing"] == "dense":
        indices = [int(byte) // 3**place % 3 for byte in row for place in range(5)]
    else:
        stream = int.from_bytes(bytes(row), "little")  # bit 0 of the first byte is the lowest
        indices = [stream >> (bits * j) & (2**bits - 1) for j in range(columns)]
    levels = levels_of(bits, entry["levels"])
    return [levels[index] for index in indices[:columns]]


def read_folder(folder):
    config = json.loads((folder / "config.json").read_bytes())["quantization_config"]
    assert config["quant_method"] == "ternarybert"
    name = {1: "model.safetensors", 2: "ternarybert.safetensors"}[config["format_version"]]
    arrays, weights = read_container(folder / name), {}
    for name, entry in config["tensors"].items():
        if "dtype" in entry:
            weights[name] = arrays[name].astype(np.float32)
        else:
            codes = [codes_of_row(row, entry) for row in arrays[name + ".codes"]]
            weights[name] = np.array(codes, np.float32) * arrays[name + ".scale"][:, None]
    return weights


@pytest.mark.parametrize(
    ("bits", "options"),
    [
        ("2-2-8", {}),
        ("2-2-8", {"packing": "dense"}),
        ("3-3-8", {}),
        ("3-3-8", {"levels": "log"}),
        ("4-4-8", {}),
        ("4-4-8", {"levels": "log"}),
        ("8-8-8", {}),
        ("2-8-8", {}),
    ],
)
@pytest.mark.parametrize("half", [False, True])
def test_it_reads_what_we_write(tmp_path, bits, options, half):
    model = random_model(bits=bits, **options)
    write(tmp_path / "p", model, half=half)
    expected, found = unpack_to_float(model), read_folder(tmp_path / "p")
    assert found.keys() == expected.keys()
    for name, weights in expected.items():
        rounded = half and isinstance(model.tensors[name], np.ndarray)  # packed tensors are exact all the same
        np.testing.assert_array_equal(found[name], weights.astype(np.float16) if rounded else weights, err_msg=name)
