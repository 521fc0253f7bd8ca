"""Whatever is wrong with a folder is a named error that tells the file or tensor and the reason."""

import json
import os
import pickle
import shutil
import struct

import numpy as np
import pytest

from ternarybert.errors import (
    ContainerError,
    FormatVersionError,
    NotPackedError,
    PackedConfigError,
    PackedError,
    PackedTensorError,
    UnsafeFileError,
)
from ternarybert.packed import folder as file
from ternarybert.packed import is_packed, read, write
from tests.native.c_library import refusal

from .damage import edit_array, edit_config, edit_header, forget_digest, join, split
from .models import assert_same, random_model
from .refusals import STATUS_OF

POOLER = "bert.pooler.dense.weight"
NAN, INFINITE, NEGATIVE = (struct.pack("<f", value) for value in (float("nan"), float("inf"), -1.0))


def refused(folder, error, reason):
    with pytest.raises(error, match=reason) as caught:
        read(folder)
    assert type(caught.value) is error
    assert str(caught.value).startswith(f"{folder}: ")
    if error in STATUS_OF:  # the C library refuses it for the same reason
        assert refusal(folder)[0] == STATUS_OF[error]


# --- the folder and its files ----------------------------------------------------------------------------------


def test_what_is_no_packed_folder(tmp_path, folder):
    refused(tmp_path / "nothing", NotPackedError, "there is no such folder")
    refused(folder / "config.json", NotPackedError, "there is no such folder")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", NotPackedError, "there is no config.json")
    assert is_packed(folder)
    assert not is_packed(tmp_path / "empty")
    assert not is_packed(tmp_path / "nothing")
    (folder / "ternarybert.safetensors").unlink()
    refused(folder, NotPackedError, "there is no ternarybert.safetensors")


def test_a_broken_config_is_named_and_not_taken_for_another_folder(folder, tmp_path):
    (folder / "config.json").write_text("{")
    with pytest.raises(PackedConfigError, match=f"{folder}: config.json is not JSON"):
        is_packed(folder)
    with pytest.raises(PackedConfigError, match=f"{folder}: config.json is not JSON"):
        write(folder, random_model(), force=True)
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()
    with pytest.raises(UnsafeFileError, match=f"{folder}: config.json is not a regular file"):
        is_packed(folder)


class Bomb:
    def __reduce__(self):
        return (os.mkdir, ("exploded",))


def test_pickled_files_are_never_read(folder, model, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("pytorch_model.bin", "model.pt", "weights.pkl"):
        (folder / name).write_bytes(pickle.dumps(Bomb()))
    assert_same(read(folder), model)
    (folder / "ternarybert.safetensors").unlink()
    refused(folder, UnsafeFileError, r"model\.pt is a pickled file")
    (folder / "ternarybert.safetensors").write_bytes(pickle.dumps(Bomb()))
    refused(folder, ContainerError, "truncated")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("name", ["config.json", "ternarybert.safetensors", "metrics.json", "tokenizer.json"])
def test_links_out_of_the_folder_are_refused(folder, tmp_path, name):
    outside = tmp_path / "outside"
    (folder / name).rename(outside) if (folder / name).exists() else outside.write_text("{}")
    (folder / name).symlink_to(outside)
    refused(folder, UnsafeFileError, f"{name} is a symbolic link that leads out of the folder, to {outside}")


def test_links_within_the_folder_are_followed(folder, model):
    (folder / "config.json").rename(folder / "real.json")
    (folder / "config.json").symlink_to("real.json")
    assert_same(read(folder), model)


@pytest.mark.parametrize("subfolder", ["", "ternary", "small/ternary"])
def test_links_of_the_hub_cache_are_followed(folder, model, tmp_path, subfolder):
    repository = tmp_path / "models--a--b"
    blobs, snapshot = repository / "blobs", repository / "snapshots" / "c0ffee" / subfolder
    snapshot.mkdir(parents=True)
    shutil.move(folder, blobs)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(os.path.relpath(path, snapshot))
    assert_same(read(snapshot), model)
    (repository / "blobs.json").write_text("{}")
    (snapshot / "tokenizer.json").symlink_to(repository / "blobs.json")
    refused(snapshot, UnsafeFileError, "tokenizer.json is a symbolic link that leads out of the folder")


def test_what_is_not_a_regular_file_is_refused(folder):
    for name in ("config.json", "ternarybert.safetensors", "metrics.json"):
        content = (folder / name).read_bytes()
        (folder / name).unlink()
        os.mkfifo(folder / name)  # opening it would wait for ever
        refused(folder, UnsafeFileError, f"{name} is not a regular file")
        (folder / name).unlink()
        (folder / name).symlink_to(name)
        refused(folder, UnsafeFileError, f"{name} is not a regular file")
        (folder / name).unlink()
        (folder / name).write_bytes(content)


def test_a_failing_disk_is_a_named_error(folder, monkeypatch):
    def failing(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(file, "map_container", failing)
    refused(folder, PackedError, "cannot be read: Input/output error")


# --- JSON ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe{}", "is not JSON"),
        (b"\xef\xbb\xbf{}", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": 1e999}', "'1e999' is beyond the range of a number"),
        (b'{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        (b'{"a": ' + b"[" * 500 + b"]" * 500 + b"}", "is not JSON: it is nested too deeply"),
        (b"[" * 100_000, "is not JSON: it is nested too deeply"),
        (b'{"a": ' + b"1" * 10_000 + b"}", "is not JSON"),
    ],
)
@pytest.mark.parametrize("name", ["config.json", "metrics.json"])
def test_json_that_is_none(folder, name, data, reason):
    (folder / name).write_bytes(data)
    refused(folder, PackedConfigError, reason)


def test_json_that_is_endless(folder):
    (folder / "config.json").write_bytes(b" " * ((16 << 20) + 1))
    refused(folder, PackedConfigError, "config.json is longer than 16777216 bytes")


def test_metrics_may_be_absent(folder):
    (folder / "metrics.json").unlink()
    assert read(folder).metrics == {}


CONFIG_DAMAGE = [
    (lambda c: c.pop("quantization_config"), NotPackedError, "no quantization_config with quant_method"),
    (lambda c: c.update(quantization_config=None), NotPackedError, "no quantization_config with quant_method"),
    (lambda c: c["quantization_config"].update(quant_method="bitnet"), NotPackedError, "quant_method 'ternarybert'"),
    (
        lambda c: c["quantization_config"].update(format_version=3),
        FormatVersionError,
        "format version 3 is newer",
    ),
    (
        lambda c: c["quantization_config"].update(format_version=0),
        FormatVersionError,
        "format version 0 does not exist",
    ),
    (lambda c: c["quantization_config"].update(format_version="1"), PackedConfigError, "must be an integer"),
    (lambda c: c["quantization_config"].update(format_version=True), PackedConfigError, "must be an integer"),
    (lambda c: c["quantization_config"].pop("bits"), PackedConfigError, "bits in quantization_config is None"),
    (lambda c: c["quantization_config"].update(bits="2-2"), PackedConfigError, "expected W-E-A"),
    (lambda c: c["quantization_config"].update(bits="3-3-8"), PackedConfigError, "bits is 3-3-8, but tensor"),
    (lambda c: c["quantization_config"].update(recipe="paper"), PackedConfigError, "recipe .* is 'paper'"),
    (lambda c: c["quantization_config"].update(sha256="beef"), PackedConfigError, "'beef'"),
    (lambda c: c["quantization_config"].update(sha256="0" * 64), ContainerError, "SHA-256"),
    (lambda c: c["quantization_config"].pop("tensors"), PackedConfigError, "tensors .* is None"),
    (
        lambda c: c["quantization_config"]["tensors"].pop(POOLER),
        PackedTensorError,
        f"{POOLER}.codes'",
    ),
    (
        lambda c: c["quantization_config"]["tensors"].update(x={"dtype": "float32", "shape": [1]}),
        PackedTensorError,
        "ternarybert.safetensors lacks the tensor 'x'",
    ),
    (
        lambda c: c["quantization_config"]["tensors"].update({"a\ud800": {"dtype": "float32", "shape": [1]}}),
        PackedConfigError,
        "is not a tensor name",
    ),
    (
        lambda c: c["quantization_config"]["tensors"].update({POOLER + ".codes": {"dtype": "float32", "shape": [1]}}),
        PackedTensorError,
        "two tensors would be stored as",
    ),
    (lambda c: c.update(vocab_size=12), PackedConfigError, r"word_embeddings.weight' is \(11, 6\).*\(12, 6\)"),
    (lambda c: c.update(hidden_size=12), PackedConfigError, r"is \(11, 6\).*\(11, 12\)"),
    (lambda c: c.update(num_hidden_layers=1), PackedConfigError, "1 layers"),
    (lambda c: c.pop("intermediate_size"), PackedConfigError, "intermediate_size"),
]


@pytest.mark.parametrize(("change", "error", "reason"), CONFIG_DAMAGE)
def test_configurations_that_are_wrong(folder, change, error, reason):
    edit_config(folder, change)
    refused(folder, error, reason)


@pytest.mark.parametrize(
    ("entry", "error", "reason"),
    [
        (None, PackedConfigError, "must have the keys"),
        ({}, PackedConfigError, "must have the keys"),
        ({"group": 64}, PackedConfigError, "must have the keys"),
        ({"bits": 5}, PackedConfigError, "bits is 5"),
        ({"bits": 2.0}, PackedConfigError, "bits is 2.0"),
        ({"bits": [2]}, PackedConfigError, "bits is"),
        ({"levels": "log"}, PackedConfigError, "levels is 'log'"),
        ({"levels": None}, PackedConfigError, "levels is None"),
        ({"packing": "zip"}, PackedConfigError, "packing is 'zip'"),
        ({"granularity": "group"}, PackedConfigError, "granularity layer or row"),
        ({"shape": [6]}, PackedConfigError, "must be a matrix"),
        ({"shape": [6, -6]}, PackedConfigError, "must be positive integers"),
        ({"shape": [6, 6.0]}, PackedConfigError, "must be positive integers"),
        ({"shape": [6, 10**30]}, PackedConfigError, "must be positive integers"),
        ({"shape": "66"}, PackedConfigError, "must be positive integers"),
        ({"bits": 3}, PackedTensorError, r"'.*codes' is uint8 of shape \(6, 2\); config.json has uint8 of \(6, 3\)"),
        ({"bits": 8}, PackedTensorError, r"config.json has int8 of \(6, 6\)"),
        ({"shape": [6, 9]}, PackedTensorError, r"config.json has uint8 of \(6, 3\)"),
        ({"granularity": "row"}, PackedTensorError, r"'.*scale' is float32 of shape \(1,\)"),
        ({"shape": [6, 5]}, PackedTensorError, f"tensor '{POOLER}': the padding of row [0-9] is not the code"),
        ({"shape": [6, 7]}, PackedConfigError, rf"tensor '{POOLER}' is \(6, 7\).* \(6, 6\)"),
    ],
)
def test_tensor_entries_that_are_wrong(folder, entry, error, reason):
    def change(config):
        tensors = config["quantization_config"]["tensors"]
        tensors[POOLER] = {**tensors[POOLER], **entry} if entry else entry

    edit_config(folder, change)
    refused(folder, error, reason)


def test_plain_entries_that_are_wrong(folder):
    def change(dtype):
        return lambda c: c["quantization_config"]["tensors"]["classifier.bias"].update(dtype=dtype)

    edit_config(folder, change("object"))
    refused(folder, PackedConfigError, "dtype 'object' in quantization_config")
    edit_config(folder, change("float16"))
    refused(folder, PackedTensorError, r"'classifier.bias' is float32 of shape \(3,\); config.json has float16")


# --- ternarybert.safetensors -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 100, -1])
def test_truncated_weights(folder, keep):
    data = (folder / "ternarybert.safetensors").read_bytes()
    (folder / "ternarybert.safetensors").write_bytes(data[:keep])
    refused(folder, ContainerError, "truncated")


def test_weights_with_something_after_them(folder):
    with (folder / "ternarybert.safetensors").open("ab") as weights:
        weights.write(b"\0")
    refused(folder, ContainerError, "longer than its tensors")


def test_weights_of_which_one_bit_changed(folder):
    data = bytearray((folder / "ternarybert.safetensors").read_bytes())
    data[-1] ^= 0b01
    (folder / "ternarybert.safetensors").write_bytes(data)
    refused(folder, ContainerError, "SHA-256")


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"[]", "not a JSON object"),
        (b"", "not JSON"),
        (b" {}", "not a JSON object"),
        (b'{"a": 1, "a": 1}', "occurs twice"),
        (b"[" * 50_000, "nested too deeply"),
        (b'{"__metadata__": {"a": 1}}', "__metadata__ in the header is not an object of strings"),
        (b'{"__metadata__": []}', "__metadata__ in the header is not an object of strings"),
        (b'{"a b": {}}', "'a b' is not a tensor name"),
    ],
)
def test_headers_that_are_none(folder, header, reason):
    join(folder, header, split(folder)[1])
    refused(folder, ContainerError, reason)


def test_headers_that_claim_too_much(folder):
    data = (folder / "ternarybert.safetensors").read_bytes()
    for length in (len(data), 1 << 40, (1 << 64) - 1):
        (folder / "ternarybert.safetensors").write_bytes(struct.pack("<Q", length) + data[8:])
        refused(folder, ContainerError, f"its header alone claims {length}")
    with (folder / "ternarybert.safetensors").open("wb") as weights:
        weights.write(struct.pack("<Q", 17 << 20))
        weights.truncate(18 << 20)
    refused(folder, ContainerError, "the header claims 17825792 bytes; the limit is 16777216")


CODES, BIAS = POOLER + ".codes", "classifier.bias"


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        (lambda h: h.update({CODES: 5}), ContainerError, f"'{CODES}': the header must give dtype"),
        (lambda h: h[CODES].update(more=1), ContainerError, f"'{CODES}': the header must give dtype"),
        (lambda h: h[CODES].update(dtype="F4"), ContainerError, "unknown dtype 'F4'"),
        (lambda h: h[CODES].update(dtype=["U8"]), ContainerError, "unknown dtype"),
        (lambda h: h[CODES].update(dtype="BOOL"), ContainerError, f"'{CODES}' is BOOL; allowed"),
        (lambda h: h[CODES].update(dtype="I8"), PackedTensorError, f"'{CODES}' is int8 .* config.json has uint8"),
        (lambda h: h[CODES].update(dtype="F32"), ContainerError, f"'{CODES}': 12 bytes are given, but F32"),
        (lambda h: h[CODES].update(shape=[2, 6]), PackedTensorError, f"'{CODES}' is uint8 of shape"),
        (lambda h: h[CODES].update(shape=[6, 3]), ContainerError, "12 bytes are given, but U8 of shape"),
        (lambda h: h[CODES].update(shape=[-6, -2]), ContainerError, "malformed"),
        (lambda h: h[CODES].update(shape=[6.0, 2]), ContainerError, "malformed"),
        (lambda h: h[CODES].update(shape=[True, 12]), ContainerError, "malformed"),
        (lambda h: h[CODES].update(shape=[1 << 60, 16]), ContainerError, "malformed"),
        (lambda h: h[CODES].update(shape="62"), ContainerError, "malformed"),
        (lambda h: h[CODES].update(shape=[0, 1 << 47, 1 << 47]), ContainerError, "malformed"),  # NumPy makes none
        (lambda h: h[CODES].update(data_offsets=[0, 12]), ContainerError, "overlaps the tensor before it"),
        (lambda h: h[CODES].update(data_offsets=[12, 0]), ContainerError, "-12 bytes are given"),
        (lambda h: h[CODES].update(data_offsets=[10**9, 10**9 + 12]), ContainerError, "a gap before it"),
        (lambda h: h[CODES].update(data_offsets=[0, 12, 12]), ContainerError, "malformed"),
        (lambda h: h.pop(CODES), ContainerError, "a gap before it|longer than its tensors"),
        (lambda h: h.update({"x" + CODES: h.pop(CODES)}), PackedTensorError, f"lacks the tensor '{CODES}'"),
    ],
)
def test_headers_that_do_not_fit(folder, change, error, reason):
    edit_header(folder, change)
    refused(folder, error, reason)


@pytest.mark.parametrize(
    ("name", "at", "data", "reason"),
    [
        (CODES, 3, b"\xc0", f"tensor '{POOLER}': index 3 at row 1, in the padding, is above 2"),
        (CODES, 2, b"\x0c", f"tensor '{POOLER}': index 3 at row 1, column 1, is above 2"),
        (CODES, 3, b"\x00", f"tensor '{POOLER}': the padding of row 1 is not the code of zero"),
        (POOLER + ".scale", 0, NAN, f"tensor '{POOLER}': scale 0 is nan"),
        (POOLER + ".scale", 0, INFINITE, f"tensor '{POOLER}': scale 0 is inf"),
        (POOLER + ".scale", 0, NEGATIVE, f"tensor '{POOLER}': scale 0 is -1.0"),
        ("bert.embeddings.word_embeddings.weight.scale", 8, NAN, "scale 2 is nan"),
        (BIAS, 4, NAN, f"tensor '{BIAS}': element 1 is nan"),
        (BIAS, 8, INFINITE, f"tensor '{BIAS}': element 2 is inf"),
    ],
)
def test_values_that_cannot_be(folder, name, at, data, reason):
    edit_array(folder, name, at, data)
    refused(folder, PackedTensorError, reason)


def test_dense_bytes_above_242(tmp_path):
    write(tmp_path / "p", random_model(packing="dense"))
    edit_array(tmp_path / "p", CODES, 2, b"\xf3")
    refused(tmp_path / "p", PackedTensorError, f"tensor '{POOLER}': byte 243 at row 1, byte 0 is above 242")


def test_weights_without_a_digest_are_read(folder, model):
    forget_digest(folder)
    assert_same(read(folder), model)


def test_tensors_in_another_order_are_read(folder, model):
    header, payload = split(folder)
    names = sorted(name for name in header if name != "__metadata__")
    position, shuffled, parts = 0, {}, []
    for name in reversed(names):
        begin, end = header[name]["data_offsets"]
        parts.append(payload[begin:end])
        shuffled[name] = header[name] | {"data_offsets": [position, position + end - begin]}
        position += end - begin
    join(folder, json.dumps(shuffled).encode(), b"".join(parts))
    forget_digest(folder)
    assert_same(read(folder), model)
    np.testing.assert_array_equal(read(folder).tensors[BIAS] + 0, model.tensors[BIAS])  # whatever the alignment
