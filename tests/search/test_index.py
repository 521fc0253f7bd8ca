"""Passages are found by their vectors; the index follows the files and survives damage."""

import os

import numpy as np
import pytest

from ternarybert.errors import DataError, UnsupportedModelError
from ternarybert.packed.embedder_modules import unit_length
from ternarybert.runtime import installed, load
from ternarybert.search import VectorIndex, search
from ternarybert.search.index import INDEX_FILE, quantize_rows
from tests.cli.shell import command
from tests.embedders import packed_embedder
from tests.runtime.folders import save_student

NOTES = {
    "films.md": "# Films\n\nthe film was good and the acting great\n\nthe plot was dull and very awful\n",
    "fun.txt": "we liked it and it was fun\n",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return packed_embedder(tmp_path_factory.mktemp("search") / "model", max_length=48)


@pytest.fixture
def notes(tmp_path):
    for name, text in NOTES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def embedded(index, model):
    """How many passages an update embeds."""
    return index.update(model)


def test_results_are_those_of_all_cosines(folder, notes):
    results = search(notes, "was the film good", model=folder, top=9)
    assert {(each.path.name, each.line) for each in results} == {("films.md", 1), ("films.md", 5), ("fun.txt", 1)}
    with load(folder) as model:
        query, vectors = model.encode("was the film good"), model.encode([each.text for each in results])
    np.testing.assert_allclose([each.score for each in results], vectors @ query, atol=0.01)
    assert [each.score for each in results] == sorted((each.score for each in results), reverse=True)
    assert search(notes, "was the film good", model=folder, top=1) == results[:1]


def test_the_index_follows_the_files(folder, notes):
    with load(folder) as model:
        assert embedded(VectorIndex(notes), model) == 3 and (notes / INDEX_FILE).is_file()
        written = (notes / INDEX_FILE).stat().st_mtime_ns
        assert embedded(VectorIndex(notes), model) == 0 and (notes / INDEX_FILE).stat().st_mtime_ns == written
        os.utime(notes / "fun.txt", ns=(1, 1))  # another time, the same text
        assert embedded(VectorIndex(notes), model) == 0
        (notes / "fun.txt").write_text("we hated it and it was dull\n")
        (notes / "new").mkdir()
        (notes / "new" / "more.txt").write_text("a very good plot, we liked it\n")
        index = VectorIndex(notes)
        assert embedded(index, model) == 2 and index.passages == 4
        (notes / "films.md").unlink()
        index = VectorIndex(notes)
        assert embedded(index, model) == 0 and index.passages == 2
        fresh = VectorIndex(notes)
        (notes / INDEX_FILE).unlink()
        embedded(fresh, model)
        for question in ("was it fun", "plot"):
            assert index.search(model, question) == fresh.search(model, question)


def test_another_model_makes_another_index(folder, notes, tmp_path_factory):
    search(notes, "fun", model=folder)
    other = packed_embedder(tmp_path_factory.mktemp("other") / "model", pooling="cls", max_length=48)
    with load(other) as model:
        index = VectorIndex(notes)
        assert embedded(index, model) == 3 and "another model" in index.messages[0]


@pytest.mark.parametrize("damage", [b"", b"no archive", "half"])
def test_a_damaged_index_is_made_anew(folder, notes, damage):
    expected = search(notes, "fun", model=folder)
    path = notes / INDEX_FILE
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2] if damage == "half" else damage)
    with load(folder) as model:
        index = VectorIndex(notes)
        assert embedded(index, model) == 3 and "damaged" in index.messages[0]
        assert index.search(model, "fun") == expected


def test_where_no_index_can_be_kept(folder, notes):
    (notes / INDEX_FILE).mkdir()  # nothing can take its place
    with load(folder) as model:
        index = VectorIndex(notes)
        assert embedded(index, model) == 3 and str(notes / INDEX_FILE) in index.messages[0]
        assert len(index.search(model, "fun")) == 3
    assert sorted(path.name for path in notes.iterdir()) == sorted([*NOTES, INDEX_FILE])


def test_another_run_is_writing_the_index(folder, notes, busy):
    """The search is answered; whoever came first keeps the index."""
    busy(notes / INDEX_FILE)
    with load(folder) as model:
        index = VectorIndex(notes)
        assert embedded(index, model) == 3 and "another run" in index.messages[0]
        assert len(index.search(model, "fun")) == 3
    assert not (notes / INDEX_FILE).exists()


def test_codes_are_near_their_vectors():
    vectors = unit_length(np.random.default_rng(0).normal(size=(50, 384)).astype(np.float32))
    codes, scales = quantize_rows(np.concatenate([vectors, np.zeros((1, 384), np.float32)]))
    assert codes.dtype == np.int8 and np.abs(codes).max() == 127
    restored = codes[:50] * scales[:50, None]
    assert ((restored * vectors).sum(1) / np.linalg.norm(restored, axis=1)).min() > 0.9999
    assert not codes[50].any() and np.isfinite(scales).all()


def test_a_table_is_searched_by_its_column(folder, tmp_path):
    (tmp_path / "mails.csv").write_text("id,body\n1,the film was good\n2,very dull acting\n")
    [best, other] = search(tmp_path / "mails.csv", "the film was good", model=folder, column="body")
    assert (best.line, best.text, other.line) == (2, "the film was good", 3) and best.score > 0.99
    assert (tmp_path / ".ternarybert-index-mails.csv").is_file()


def test_nothing_to_search_in(folder, tmp_path):
    assert search(tmp_path, "fun", model=folder) == []
    (tmp_path / "image.png").write_bytes(b"\0\1\2")
    assert search(tmp_path, "fun", model=folder) == []
    with pytest.raises(DataError, match="nothing-here"):
        search(tmp_path / "nothing-here", "fun", model=folder)


def test_other_models_are_refused(notes, tmp_path_factory):
    plain = save_student(tmp_path_factory.mktemp("plain") / "model", "Model")
    with pytest.raises(UnsupportedModelError, match=r"modules\.json"):
        search(notes, "fun", model=plain)


def test_the_command(folder, notes, monkeypatch):
    (notes / "image.png").write_bytes(b"\0\1\2")
    code, out, err = command("search", notes, "was it fun", "--model", folder, "-k", 2)
    assert code == 0 and out.count(f"{notes}") == 2 and ":1" in out
    assert "3 new passages of 3 in 3 files" in err and "image.png" in err
    code, out, err = command("search", notes, "was it fun", "--model", folder, "--json")
    assert code == 0 and out.count('"score"') == 3 and "new passages" not in err
    code, _, err = command("search", "only words", "--model", folder)
    assert code == 2 and "only words" in err
    monkeypatch.chdir(notes)
    monkeypatch.setattr(installed, "entry_points", lambda group: [])  # the development environment has a model
    code, _, err = command("search", notes, "was it fun")
    assert code == 2 and "ternarybert-minilm" in err


def test_the_command_without_files(folder, tmp_path):
    code, out, err = command("search", tmp_path, "was it fun", "--model", folder)
    assert code == 0 and out == "" and "0 files" in err
