"""One file holds the folder's files unchanged, and whatever is wrong with it is a named error."""

import pytest
from typer.testing import CliRunner

from ternarybert.cli import make_app
from ternarybert.errors import ContainerError, FolderExistsError, FormatVersionError, NotPackedError
from ternarybert.packed.bundle import read_bundle, write_bundle


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


def test_the_command(folder, tmp_path):
    result = CliRunner().invoke(make_app(["pack", "bundle"]), ["bundle", str(folder), str(tmp_path / "m.tbert")])
    assert result.exit_code == 0, result.output
    assert f"{(tmp_path / 'm.tbert').stat().st_size:,} bytes" in result.output
