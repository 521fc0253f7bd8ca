"""What is written is what is read; the bytes never change; a folder is there completely or not at all."""

import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from ternarybert import storage
from ternarybert.errors import FolderExistsError, OutputError, PackedConfigError, PackedTensorError, UnsafeFileError
from ternarybert.packed import PackedTensor, is_packed, read, write
from ternarybert.packed import folder as file
from ternarybert.packed.codec import Coding, pack

from .models import BASE, TINY, assert_same, golden_model, random_model

FEW = np.zeros((11, 6), np.float32)
GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    ("bits", "options"),
    [
        ("2-2-8", {}),
        ("2-2-8", {"packing": "dense"}),
        ("3-3-8", {}),
        ("3-3-8", {"levels": "log"}),
        ("4-4-8", {"levels": "log"}),
        ("8-8-8", {}),
        ("2-8-32", {}),
    ],
)
def test_round_trip(tmp_path, bits, options):
    model = random_model(bits=bits, **options)
    write(tmp_path / "packed", model)
    assert_same(read(tmp_path / "packed"), model)


def test_dequantized_is_code_times_scale_in_float32():
    codes = np.array([[-1, 0, 1], [1, 1, -1]], np.int8)
    scale = np.array([0.1, 0.3], np.float32)
    tensor = PackedTensor.pack(codes, scale, bits=2)
    np.testing.assert_array_equal(tensor.dequantize(), codes.astype(np.float32) * scale[:, None])
    assert tensor.dequantize().dtype == np.float32
    assert (tensor.granularity, tensor.nbytes) == ("row", 2 + 8)
    assert PackedTensor.pack(codes, 0.1, bits=2).granularity == "layer"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"shape": (0, 3)}, r"\(0, 3\)"),
        ({"shape": (2, 3, 1)}, r"\(2, 3, 1\)"),
        ({"shape": (2, 5)}, r"the codes are uint8 of shape \(2, 1\); expected uint8 of \(2, 2\)"),
        ({"codes": np.zeros((2, 1), np.int8)}, "the codes are int8"),
        (
            {"scale": np.zeros(3, np.float32)},
            r"the scale is float32 of shape \(3,\); expected float32 of \(1,\) or \(2,\)",
        ),
        ({"scale": np.zeros(2)}, "the scale is float64"),
        ({"scale": np.array([1, -1], np.float32)}, "scale 1 is -1.0"),
        ({"codes": np.zeros((2, 1), np.uint8)}, "padding of row 0"),
        ({"bits": 7}, "bits is 7"),
    ],
)
def test_a_packed_tensor_that_exists_is_valid(change, reason):
    tensor = PackedTensor.pack(np.ones((2, 3), np.int8), 1, bits=2)
    with pytest.raises(PackedTensorError, match=reason):
        replace(tensor, **change)


def test_tensors_are_views_of_the_mapped_file(folder):
    for tensor in read(folder).tensors.values():
        array = tensor.codes if isinstance(tensor, PackedTensor) else tensor
        assert not array.flags.owndata
        assert not array.flags.writeable


def test_golden_folder_is_read_and_written_to_the_byte(tmp_path):
    write(tmp_path / "packed", golden_model())
    assert_same(read(GOLDEN / "version2"), golden_model())
    for path in (tmp_path / "packed").iterdir():
        assert path.read_bytes() == (GOLDEN / "version2" / path.name).read_bytes(), path.name


def test_the_golden_folder_of_format_version_1_is_still_read():
    """The two versions differ in the name of the weights file only."""
    assert_same(read(GOLDEN / "version1"), golden_model())
    first, second = GOLDEN / "version1" / "model.safetensors", GOLDEN / "version2" / "ternarybert.safetensors"
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    ("coding", "digest"),
    [
        (Coding(2), "905c0a50c5b16a91"),
        (Coding(2, packing="dense"), "04a4e79de1238dd3"),
        (Coding(3), "b0f7351b23080bc4"),
        (Coding(3, levels="log"), "b0f7351b23080bc4"),
        (Coding(4), "3f2f47ac67481106"),
        (Coding(4, levels="log"), "3f2f47ac67481106"),
        (Coding(8), "760fd7f437142c3f"),
    ],
)
def test_golden_digests_of_larger_matrices(coding, digest):
    ramp = np.arange(40 * 23).reshape(40, 23)
    codes = coding.alphabet[ramp * ramp % len(coding.alphabet)]
    assert hashlib.sha256(pack(codes, coding).tobytes()).hexdigest()[:16] == digest


def test_the_safetensors_library_writes_the_same_bytes(folder):
    arrays = safetensors.numpy.load_file(folder / "ternarybert.safetensors")
    assert safetensors.numpy.save(arrays, {"format": "pt"}) == (folder / "ternarybert.safetensors").read_bytes()


def test_order_of_tensors_and_keys_does_not_matter(tmp_path, model, folder):
    config, tensors = dict(reversed(model.config.items())), dict(reversed(model.tensors.items()))
    write(tmp_path / "turned", replace(model, config=config, tensors=tensors))
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / "turned" / path.name).read_bytes()


def test_half_stores_plain_tensors_in_float16(tmp_path, model, folder):
    write(tmp_path / "half", model, half=True)
    half = read(tmp_path / "half")
    name = "classifier.weight"
    np.testing.assert_array_equal(half.tensors[name], model.tensors[name].astype(np.float16))
    packed = "bert.pooler.dense.weight"
    assert half.tensors[packed].scale.tobytes() == model.tensors[packed].scale.tobytes()
    assert (tmp_path / "half" / "ternarybert.safetensors").stat().st_size < (
        folder / "ternarybert.safetensors"
    ).stat().st_size
    write(tmp_path / "again", half)
    assert_same(read(tmp_path / "again"), half)


def test_half_refuses_what_float16_cannot_hold(tmp_path, model):
    model.tensors["classifier.weight"][0, 0] = 1e6
    with pytest.raises(PackedTensorError, match=r"'classifier.weight' has values above 65504"):
        write(tmp_path / "half", model, half=True)


def test_additional_files_are_copied(tmp_path, model):
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    write(tmp_path / "p", model, extra_files={"vocab.txt": tmp_path / "vocab.txt", "README.md": b"# Card\n"})
    assert (tmp_path / "p" / "vocab.txt").read_text() == "[PAD]\n"
    assert (tmp_path / "p" / "README.md").read_bytes() == b"# Card\n"
    assert is_packed(tmp_path / "p")


def test_additional_files_must_exist(tmp_path, model):
    with pytest.raises(UnsafeFileError, match=r"vocab.txt is not a regular file"):
        write(tmp_path / "p", model, extra_files={"vocab.txt": tmp_path / "vocab.txt"})


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "a/../b",
        "a/b/c",
        "/x",
        "",
        ".git",
        "config.json",
        "model.safetensors",
        "ternarybert.safetensors",
        "model.bin",
        "a.PKL",
    ],
)
def test_additional_files_with_bad_names_are_refused(tmp_path, model, name):
    with pytest.raises(UnsafeFileError):
        write(tmp_path / "p", model, extra_files={name: b"x"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        (
            {"bits": "2-3-8"},
            PackedConfigError,
            "bits is 2-3-8, but tensor 'bert.embeddings.word_embeddings.weight' has 2",
        ),
        ({"bits": "2-32-8"}, PackedConfigError, "has 2"),
        ({"bits": "5-5-8"}, PackedConfigError, "expected W-E-A"),
        ({"drop": "bert.embeddings.word_embeddings.weight", "add": {"x": FEW}}, PackedConfigError, "w_e"),
        ({"add": {"bert.embeddings.word_embeddings.weight": FEW}}, PackedConfigError, "no word embedding is packed"),
        ({"config": {**TINY, "x": "y" * (16 << 20)}}, PackedConfigError, "config.json would be .* bytes"),
        ({"config": {**TINY, "hidden_size": 8}}, PackedConfigError, r"\(11, 8\)"),
        ({"config": {**TINY, "x": float("nan")}}, PackedConfigError, "config.json .* JSON"),
        ({"config": {**TINY, "x": object()}}, PackedConfigError, "not JSON serializable"),
        ({"config": {**TINY, "quantization_config": {}}}, PackedConfigError, "already has a quantization_config"),
        ({"metrics": {"loss": float("inf")}}, PackedConfigError, "metrics.json .* JSON"),
        ({"metrics": []}, PackedConfigError, "metrics is a list"),
        ({"recipe": "paper"}, PackedConfigError, "recipe is a str"),
        ({"add": {"x y": np.zeros(2, np.float32)}}, PackedTensorError, "'x y' is not a tensor name"),
        ({"add": {"x": np.zeros(2)}}, PackedTensorError, "'x' is float64"),
        ({"add": {"x": np.zeros((2, 0), np.float32)}}, PackedTensorError, "'x' is empty"),
        ({"add": {"x": np.array([1, np.nan], np.float32)}}, PackedTensorError, "'x': element 1 is nan"),
        ({"add": {"bert.pooler.dense.weight.scale": np.zeros(1, np.float32)}}, PackedTensorError, "two tensors"),
        (
            {"drop": "bert.encoder.layer.1.intermediate.dense.weight"},
            PackedConfigError,
            "w_1 of layer 1",
        ),
    ],
)
def test_models_that_could_not_be_used_are_not_written(tmp_path, model, change, error, reason):
    tensors = {name: tensor for name, tensor in model.tensors.items() if name != change.get("drop")}
    fields = {name: value for name, value in change.items() if name not in ("drop", "add")}
    with pytest.raises(error, match=reason):
        write(tmp_path / "p", replace(model, tensors=tensors | change.get("add", {}), **fields))
    assert list(tmp_path.iterdir()) == []


def test_the_working_directory_can_be_written_to(tmp_path, model, monkeypatch):
    (tmp_path / "p").mkdir()
    monkeypatch.chdir(tmp_path / "p")
    write(".", model)
    assert_same(read(tmp_path / "p"), model)
    assert list(tmp_path.iterdir()) == [tmp_path / "p"]


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_that_appears_meanwhile_is_not_lost(tmp_path, model, monkeypatch, force):
    place, original = tmp_path / "p", file.write_container

    def slowly(*args):
        place.mkdir()
        (place / "thesis.txt").write_text("precious")
        return original(*args)

    monkeypatch.setattr(file, "write_container", slowly)
    with pytest.raises(FolderExistsError):
        write(place, model, force=force)
    assert (place / "thesis.txt").read_text() == "precious"
    assert list(tmp_path.iterdir()) == [place]


def test_an_existing_folder_is_replaced_only_with_force(folder):
    other = random_model(seed=1)
    with pytest.raises(FolderExistsError, match=r"exists; .*--force"):
        write(folder, other)
    write(folder, other, force=True)
    assert_same(read(folder), other)
    assert list(folder.parent.iterdir()) == [folder]


def test_a_folder_can_be_rewritten_from_its_own_mapped_tensors(folder, model):
    write(folder, read(folder), force=True)
    assert_same(read(folder), model)


def test_an_empty_folder_is_as_good_as_none(tmp_path, model):
    (tmp_path / "p").mkdir()
    write(tmp_path / "p", model)
    assert_same(read(tmp_path / "p"), model)


def test_force_replaces_nothing_but_packed_folders(tmp_path, model, folder):
    plain, single, link, clone = (tmp_path / name for name in ("plain", "single", "link", "clone"))
    plain.mkdir()
    (plain / "config.json").write_text('{"model_type": "bert"}')
    single.write_text("a file")
    link.symlink_to(folder)
    shutil.copytree(folder, clone)
    (clone / ".git").mkdir()
    for place, reason in ((plain, "exists"), (single, "not a folder"), (link, "not a folder"), (clone, "'.git'")):
        with pytest.raises(FolderExistsError, match=reason):
            write(place, model, force=True)
    assert (plain / "config.json").exists()
    assert single.read_text() == "a file"


@pytest.mark.parametrize("existing", [False, True])
def test_a_failure_on_the_way_leaves_everything_as_it_was(tmp_path, model, monkeypatch, existing):
    place = tmp_path / "p"
    if existing:
        write(place, model)

    def disk_full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(file, "_config_bytes", disk_full)
    with pytest.raises(OutputError, match="No space left on device"):
        write(place, random_model(seed=1), force=True)
    assert list(tmp_path.iterdir()) == ([place] if existing else [])
    if existing:
        assert_same(read(place), model)


def test_a_failing_swap_puts_the_old_folder_back(folder, model, monkeypatch):
    rename = Path.rename

    def refuse_new(self, target):
        if self.name.endswith(".new"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(storage, "_exchange", lambda *_: False)  # where the system cannot do it in one step
    monkeypatch.setattr(Path, "rename", refuse_new)
    with pytest.raises(OutputError, match="Input/output error"):
        write(folder, random_model(seed=1), force=True)
    assert_same(read(folder), model)
    assert list(folder.parent.iterdir()) == [folder]


@pytest.mark.parametrize("can_exchange", [pytest.param(True, marks=pytest.mark.linux_only("renameat2")), False])
def test_at_every_moment_of_a_swap_a_complete_folder_exists(folder, monkeypatch, can_exchange):
    moments = []
    if not can_exchange:
        monkeypatch.setattr(storage, "_exchange", lambda *_: False)

    def watch(owner, name):
        original = getattr(owner, name)

        def watched(*args, **kwargs):
            result = original(*args, **kwargs)
            moments.append([read(path).recipe for path in folder.parent.iterdir() if is_packed(path)])
            return result

        monkeypatch.setattr(owner, name, watched)

    watch(storage, "_exchange")
    watch(Path, "rename")
    watch(Path, "replace")
    watch(shutil, "rmtree")
    write(folder, random_model(seed=1), force=True)
    assert [len(found) for found in moments] == ([2, 1] if can_exchange else [2, 2, 2, 1])


def test_packed_does_not_import_torch():
    code = (
        "import sys, ternarybert.packed, ternarybert.packed.inspect, ternarybert.packed.hf_folder\n"
        "print([m for m in ('torch', 'transformers', 'scipy', 'pandas') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.linux_only("the memory of the process is read from /proc")
def test_reading_bert_base_takes_little_memory(tmp_path):
    write(tmp_path / "base", random_model(BASE))
    code = (
        "import sys, ternarybert.packed\n"
        "peak = lambda: int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0]) * 1024\n"
        "before = peak(); model = ternarybert.packed.read(sys.argv[1]); print(peak() - before)"
    )
    args = [sys.executable, "-c", code, str(tmp_path / "base")]
    grown = int(subprocess.run(args, capture_output=True, text=True, check=True).stdout)
    assert grown <= 1.5 * (tmp_path / "base" / "ternarybert.safetensors").stat().st_size


def test_config_json_is_a_hugging_face_configuration(folder, model):
    config = json.loads((folder / "config.json").read_text())
    section = config.pop("quantization_config")
    assert config == model.config
    assert {key: section[key] for key in ("quant_method", "format_version", "bits")} == {
        "quant_method": "ternarybert",
        "format_version": 2,
        "bits": "2-2-8",
    }
