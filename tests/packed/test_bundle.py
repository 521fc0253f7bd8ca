"""One file holds the folder's files unchanged, and whatever is wrong with it is a named error."""

import pytest
from typer.testing import CliRunner

from ternarybert.cli import make_app
from ternarybert.errors import (
    ContainerError,
    FolderExistsError,
    FormatVersionError,
    NotPackedError,
    UnsupportedModelError,
)
from ternarybert.packed.bundle import read_bundle, write_bundle
from tests.embedders import PROMPTS, add_modules, packed_embedder
from tests.runtime.folders import save_student


def test_the_files_of_the_folder(folder, tmp_path):
    (folder / "tokenizer.json").write_text("{}")
    (folder / "vocab.txt").write_text("a")
    (folder / "README.md").write_text("not needed")
    size = write_bundle(folder, tmp_path / "m.tbert")
    assert size == (tmp_path / "m.tbert").stat().st_size
    found = read_bundle(tmp_path / "m.tbert")
    assert set(found) == {"config.json", "tokenizer.json", *(path.name for path in folder.glob("*.safetensors"))}
    assert found == {name: (folder / name).read_bytes() for name in found}
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".part"] == []


def test_a_file_is_replaced_only_by_force(folder, tmp_path):
    target = tmp_path / "m.tbert"
    target.write_text("mine")
    with pytest.raises(FolderExistsError, match=r"m\.tbert"):
        write_bundle(folder, target)
    assert target.read_text() == "mine"
    write_bundle(folder, target, force=True)
    assert read_bundle(target)


def test_only_packed_folders_are_bundled(tmp_path):
    with pytest.raises(NotPackedError):
        write_bundle(tmp_path / "nothing", tmp_path / "m.tbert")


def test_bundles_that_are_damaged(folder, tmp_path):
    target = tmp_path / "m.tbert"
    write_bundle(folder, target)
    data = target.read_bytes()
    for damaged, error in (
        (data[:-1], ContainerError),
        (data + b"\0", ContainerError),
        (data[:100], ContainerError),
        (data[:20], ContainerError),
        (data[:60] + bytes([data[60] ^ 4]) + data[61:], ContainerError),
        (b"", NotPackedError),
        (b"PK" + data, NotPackedError),
        (data[:7] + b"\2" + data[8:], FormatVersionError),
    ):
        target.write_bytes(damaged)
        with pytest.raises(error, match=r"m\.tbert"):
            read_bundle(target)


def bundle(folder, path):
    result = CliRunner().invoke(make_app(["pack", "bundle"]), ["bundle", str(folder), str(path)])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_command(folder, tmp_path):
    found = bundle(folder, tmp_path / "m.tbert")
    assert f"{(tmp_path / 'm.tbert').stat().st_size:,} bytes" in found
    assert "note" not in found


@pytest.mark.parametrize(
    ("modules", "message"),
    [
        ({"dense": 8}, "Dense"),
        ({"pooling": "max"}, "max"),
        ({"settings": {"prompts": PROMPTS, "default_prompt_name": "query"}}, "prompt 'query'"),
    ],
)
def test_embedders_of_which_only_python_computes_the_vectors(tmp_path, modules, message):
    packed_embedder(tmp_path / "embedder", **modules)
    with pytest.raises(UnsupportedModelError, match=f"{message}.*C and JavaScript"):
        write_bundle(tmp_path / "embedder", tmp_path / "m.tbert")
    assert not (tmp_path / "m.tbert").exists()


@pytest.mark.parametrize(
    ("modules", "settings"),
    [
        ({"max_length": 512}, []),  # more than the model reads
        ({"max_length": None, "settings": {"prompts": PROMPTS, "default_prompt_name": "document"}}, []),  # it is empty
        ({}, ["maxLength: 16"]),
        ({"pooling": "cls"}, ['pooling: "first"', "TB_OUTPUT_FIRST", "maxLength: 16"]),
        ({"normalize": False, "max_length": 64}, ["normalize: false"]),
    ],
)
def test_what_to_pass_for_the_vectors_of_an_embedder(tmp_path, modules, settings):
    packed_embedder(tmp_path / "embedder", **modules)
    found = bundle(tmp_path / "embedder", tmp_path / "m.tbert")
    assert [text for text in ("pooling", "normalize", "maxLength") if text in found] == [
        text for text in ("pooling", "normalize", "maxLength") if any(text in one for one in settings)
    ]
    assert all(one in found for one in settings)


def test_modules_behind_a_head_are_not_used(tmp_path):
    folder = save_student(tmp_path / "classifier", "ForSequenceClassification")
    add_modules(folder, dense=8)
    assert "note" not in bundle(folder, tmp_path / "m.tbert")
