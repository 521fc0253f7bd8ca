"""Thousands of damaged folders: each is refused by name, or gives a model in which everything checkable is as it was.

What can be checked depends on the damage. With its SHA-256 the file of weights is all or nothing. Without it a changed
scale or bias may go unnoticed, but never a name, shape, type or code that the format does not have. And whatever we
accept, the safetensors library accepts too.
"""

import json
import random
import struct

import numpy as np
import pytest
import safetensors.numpy

from ternarybert.errors import TernaryBertError
from ternarybert.packed import PackedTensor, read, write

from .models import TINY, assert_same, random_model

ODD_VALUES = [
    None,
    True,
    False,
    0,
    1,
    2,
    3,
    4,
    8,
    -1,
    0.5,
    1e308,
    1 << 31,
    1 << 63,
    10**40,
    "",
    "2",
    "row",
    "log",
    "dense",
]
ODD_VALUES += [
    "plain",
    "linear",
    "layer",
    "float16",
    "F32",
    "U8",
    "I8",
    "\ud800",
    "../x",
    [],
    {},
    [[]],
    [6, 6],
    [0, 12],
]
ODD_BYTES = [b"", b"\0", b"\xff", b"{", b"}", b'"', b"[" * 3000, b"NaN", b"\xed\xa0\x80", b",", b"-", b"9" * 5000]
KINDS = [("2-2-8", {}), ("2-2-8", {"packing": "dense"}), ("3-3-8", {"levels": "log"}), ("4-3-8", {}), ("8-8-8", {})]


# --- ways to damage a file -------------------------------------------------------------------------------------


def flip(rng, data):
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def cut(rng, data):
    return data[: rng.randrange(len(data))]


def splice(rng, data):
    """Delete, insert or overwrite somewhere."""
    at, gone = rng.randrange(len(data) + 1), rng.choice([0, 0, 1, 4, 50])
    return data[:at] + rng.choice(ODD_BYTES) + data[at + gone :]


def edit_json(rng, data):
    """Walk to a random place in a JSON document, then replace, delete or add something."""
    root = json.loads(data)
    node = root
    while True:
        keys = list(node) if isinstance(node, dict) else list(range(len(node)))
        key = rng.choice(keys)
        if not isinstance(node[key], (dict, list)) or not node[key] or rng.random() < 0.1:
            break
        node = node[key]
    action = rng.randrange(4)
    if action == 0:
        del node[key]
    elif action == 1 and isinstance(node, dict):
        node[rng.choice(["x", "dtype", "bits", *keys])] = node.pop(key)
    elif action == 2 and type(node[key]) is int:
        node[key] += rng.choice([-64, -4, -1, 1, 2, 4, 64])
    else:
        node[key] = rng.choice(ODD_VALUES)
    return json.dumps(root).encode()


def edit_header(rng, data):
    (length,) = struct.unpack("<Q", data[:8])
    header = edit_json(rng, data[8 : 8 + length])
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def edit_length(rng, data):
    return struct.pack("<Q", rng.choice([0, 1, len(data), len(data) - 8, 1 << 40, rng.randrange(1 << 64)])) + data[8:]


DAMAGE = {
    "ternarybert.safetensors": [flip, flip, flip, cut, splice, edit_header, edit_header, edit_length],
    "config.json": [flip, cut, splice, edit_json, edit_json, edit_json],
    "metrics.json": [flip, cut, splice, edit_json],
}
WEIGHTS_MORE_OFTEN = ["ternarybert.safetensors"] * 5 + ["config.json"] * 4 + ["metrics.json"]


# --- what must hold afterwards ---------------------------------------------------------------------------------


def assert_still_a_model(found, original):
    """Names, shapes, types and the range of every value; for packed tensors also that the codes are codes."""
    found.check()
    for name, tensor in found.tensors.items():
        if isinstance(tensor, PackedTensor):
            codes = tensor.unpack()
            assert codes.shape == tensor.shape == original.tensors[name].shape
            assert np.isin(codes, tensor.coding.alphabet).all()
            assert np.isfinite(tensor.scale).all()
            assert tensor.scale.min() >= 0
        else:
            assert np.isfinite(tensor).all()


def assert_expected(found, original, damaged, digest):
    if damaged == "ternarybert.safetensors" and digest:
        assert_same(found, original)
        return
    assert_still_a_model(found, original)
    if damaged == "ternarybert.safetensors":
        assert (found.config, found.bits, found.recipe) == (original.config, original.bits, original.recipe)
        assert found.tensors.keys() == original.tensors.keys()
    else:
        for name, tensor in found.tensors.items():
            ours, theirs = (t.codes if isinstance(t, PackedTensor) else t for t in (tensor, original.tensors[name]))
            assert ours.tobytes() == theirs.tobytes()


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Folders of every kind as (model, files, with digest), in memory."""
    found = []
    for bits, options in KINDS:
        model = random_model(TINY | {"num_hidden_layers": 1}, bits, **options)
        place = tmp_path_factory.mktemp("original") / "p"
        write(place, model)
        files = {path.name: path.read_bytes() for path in place.iterdir()}
        config = json.loads(files["config.json"])
        del config["quantization_config"]["sha256"]
        found.append((model, files, True))
        found.append((model, files | {"config.json": json.dumps(config, indent=1).encode()}, False))
    return found


def outcome(folder, originals, seed):
    """Damage one folder and read it: True if it was read, False if it was refused. Anything else fails the test."""
    rng = random.Random(seed)
    model, files, digest = rng.choice(originals)
    damaged = rng.choice(WEIGHTS_MORE_OFTEN)
    for name, data in files.items():
        path = folder / name
        path.unlink(missing_ok=True)  # a new file: the one before may still be mapped
        path.write_bytes(rng.choice(DAMAGE[name])(rng, data) if name == damaged else data)
    try:
        found = read(folder)
    except TernaryBertError as error:
        str(error).encode()  # can be shown
        return False
    assert_expected(found, model, damaged, digest)
    assert safetensors.numpy.load_file(folder / "ternarybert.safetensors")
    return True


def fuzz(folder, originals, seeds):
    read_anyway = 0
    for seed in seeds:
        try:
            read_anyway += outcome(folder, originals, seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    assert 0.02 < read_anyway / len(seeds) < 0.5  # the damage is neither harmless nor always obvious


def test_a_thousand_damaged_folders(tmp_path, originals):
    fuzz(tmp_path, originals, range(1000))


@pytest.mark.slow
def test_twenty_thousand_damaged_folders(tmp_path, originals):
    fuzz(tmp_path, originals, range(1000, 21_000))
