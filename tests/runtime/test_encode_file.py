"""Vectors of whole files: complete, in order, in every precision."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from ternarybert.errors import DataError, OptionError
from ternarybert.runtime import encode_file as module
from ternarybert.runtime import load
from ternarybert.runtime.encode_file import encode_file
from tests.cli.shell import command
from tests.embedders import packed_embedder
from tests.training.conftest import rows

TEXTS = rows(30)["text"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return packed_embedder(tmp_path_factory.mktemp("encode") / "model", max_length=48)


@pytest.fixture
def table(tmp_path):
    (tmp_path / "texts.csv").write_text("id,body\n" + "".join(f"{i},{text}\n" for i, text in enumerate(TEXTS)))
    return tmp_path / "texts.csv"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 7)


@pytest.mark.parametrize("precision", ["float32", "int8", "ubinary"])
def test_every_precision_in_both_formats(folder, table, tmp_path, precision):
    with load(folder) as model:
        plain = encode_file(model, table, tmp_path / "out.npy", text="body", precision=precision)
        encode_file(model, table, tmp_path / "out.parquet", text="body", precision=precision)
        ranges = None if plain.ranges is None else np.load(plain.ranges)
        expected = model.encode(TEXTS, precision=precision, ranges=ranges)
    assert (plain.ranges is None) == (precision != "int8") and plain.texts == 30
    vectors = np.load(tmp_path / "out.npy")
    np.testing.assert_array_equal(vectors, expected)
    made = pq.read_table(tmp_path / "out.parquet")
    assert made.column_names == ["id", "body", "vector"] and made["body"].to_pylist() == TEXTS
    np.testing.assert_array_equal(np.array(made["vector"].to_pylist()), expected)


def test_the_command(folder, table, tmp_path):
    out = tmp_path / "vectors.npy"
    code, _, err = command("encode", table, "--text", "body", "-o", out, "--model", folder, "--truncate-dim", 8)
    assert code == 0 and "30 vectors of 8 float32" in err and np.load(out).shape == (30, 8)
    code, _, err = command("encode", table, "--text", "body", "-o", out, "--model", folder)
    assert code == 2 and "vectors.npy" in err
    code, printed, _ = command("encode", table, "--text", "body", "-o", out, "--model", folder, "--force", "--json")
    assert code == 0 and '"width": 32' in printed


def test_what_is_refused(folder, table, tmp_path):
    with load(folder) as model:
        with pytest.raises(OptionError, match=r"out\.txt"):
            encode_file(model, table, tmp_path / "out.txt")
        (tmp_path / "empty.txt").touch()
        with pytest.raises(DataError, match=r"empty\.txt"):
            encode_file(model, tmp_path / "empty.txt", tmp_path / "out.npy")
        (tmp_path / "lists.jsonl").write_text('{"text": "fun"}\n{"text": [3]}\n')
        with pytest.raises(DataError, match=r"line 2.*\[3\]"):
            encode_file(model, tmp_path / "lists.jsonl", tmp_path / "out.npy", text="text")
        (tmp_path / "vector.jsonl").write_text('{"text": "fun", "vector": 3}\n')
        with pytest.raises(DataError, match="'vector'"):
            encode_file(model, tmp_path / "vector.jsonl", tmp_path / "out.parquet", text="text")
    assert not [path for path in tmp_path.iterdir() if "out." in path.name]


def test_a_missing_folder_is_made_as_by_every_command(folder, table, tmp_path):
    with load(folder) as model:
        encode_file(model, table, tmp_path / "new" / "out.npy", text="body")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out.npy"]


def test_what_is_a_text_is_the_rule_of_predict(folder, tmp_path):
    """0 and false are texts; rows without one keep their place and are counted."""
    values = ["0", "0.0", "false", "null", '""', '"  "', '"fun"']
    (tmp_path / "in.jsonl").write_text("".join(f'{{"text": {value}}}\n' for value in values))
    with load(folder) as model:
        result = encode_file(model, tmp_path / "in.jsonl", tmp_path / "out.npy")
        expected = model.encode(["0", "0.0", "False", "", "", "  ", "fun"])
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), expected)
    assert (result.texts, result.empty) == (7, 3)
