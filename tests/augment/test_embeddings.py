import json

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_halves

from ternarybert.augment import load_embeddings
from ternarybert.augment import neighbours as embeddings
from ternarybert.errors import HubError, UnsupportedModelError
from tests.augment.test_neighbours import ask


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
            i, ["animal", "colour", "tool"].index(piece[:-1]) if piece[:-1] in ("animal", "colour", "tool") else 3
        ] += 1
    save_file({name: vectors, "other.weight": vectors[:2]}, folder / file)


def test_neighbours_are_whole_words_of_the_vocabulary(folder):
    source = load_embeddings(folder)
    assert source.description == f"the 15 nearest words of the word embeddings of {folder.name}"
    assert not any("#" in word or "[" in word for word in source.words)
    (found,) = ask(source, "animalc")
    assert set(found) > {f"animal{x}" for x in "abdefghijklmno"}
    assert ask(source, "animals", "Animalc") == [None, found]  # of several pieces; in another case


@pytest.mark.parametrize("name", ["embeddings.word_embeddings.weight", "model.embeddings.tok_embeddings.weight"])
def test_other_families(folder, tokenizer, name):
    expected = ask(load_embeddings(folder), "toola")
    save(folder, tokenizer, name)
    assert ask(load_embeddings(folder), "toola") == expected


def test_halves_of_either_kind(folder):
    table = load_file(folder / "model.safetensors")
    name = "bert.embeddings.word_embeddings.weight"
    for kind in (torch.float16, torch.bfloat16):
        half = torch.from_numpy(table[name]).to(kind)
        save_halves(
            {"first": torch.ones(3, dtype=kind), name: half, "last": half[:2].clone()}, folder / "model.safetensors"
        )
        assert np.array_equal(embeddings._table(folder), half.float().numpy())


def test_shards(folder, tokenizer):
    expected = ask(load_embeddings(folder), "toola")
    (folder / "model.safetensors").unlink()
    save_file({"x": np.ones(3, dtype=np.float32)}, folder / "model-00001-of-00002.safetensors")
    save(folder, tokenizer, file="model-00002-of-00002.safetensors")
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    shards = {"x": first, "bert.embeddings.word_embeddings.weight": second, "other.weight": second}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    assert ask(load_embeddings(folder), "toola") == expected


def test_a_table_longer_than_the_vocabulary_and_a_vocabulary_longer_than_the_table(folder, tokenizer):
    for rows in (len(tokenizer) + 8, 20):
        vectors = np.random.default_rng(0).normal(size=(rows, 8)).astype(np.float32)
        save_file({"word_embeddings.weight": vectors}, folder / "model.safetensors")
        assert len(ask(load_embeddings(folder, count=3), "animala")[0]) == 3


def test_what_is_no_such_model(folder, tmp_path):
    with pytest.raises(UnsupportedModelError, match="is not a folder"):
        load_embeddings(tmp_path / "missing")
    save_file({"x": np.ones((3, 3), dtype=np.float32)}, folder / "model.safetensors")
    with pytest.raises(UnsupportedModelError, match=r"no tensor word_embeddings.weight"):
        load_embeddings(folder)
    (folder / "model.safetensors").write_bytes(b"not tensors")
    with pytest.raises(UnsupportedModelError, match="cannot be read"):
        load_embeddings(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(UnsupportedModelError, match="cannot be read"):
        load_embeddings(folder)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(UnsupportedModelError, match=r"tokenizer.json cannot be read"):
        load_embeddings(folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedModelError, match=r"no tokenizer.json"):
        load_embeddings(folder)


def test_the_hub_cannot_be_reached(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="cannot get no-such/model from the hub"):
        load_embeddings("no-such/model")
