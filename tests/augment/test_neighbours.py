import numpy as np
import pytest

from ternarybert.augment import Chain, Neighbours, neighbours
from ternarybert.augment.words import Place
from ternarybert.errors import DataError
from tests.augment.circle import circle


def ask(source, *words):
    return source.candidates([Place(word, 0, len(word)) for word in words])


def names(count, letters="abcdefghijklmnopqrstuvwxyz"):
    return [a + b + c for a in letters for b in letters for c in letters][:count]


def test_the_nearest_by_cosine_without_the_word_itself():
    source = circle(words=10, count=4)
    words = source.words
    assert ask(source, words[5]) == [(words[3], words[4], words[6], words[7])]
    assert ask(source, words[0]) == [(words[1], words[2], words[8], words[9])]
    assert ask(source, "unknown", words[5].upper()) == [None, (words[3], words[4], words[6], words[7])]


def test_as_brute_force_in_double_precision():
    rng = np.random.default_rng(0)
    words, vectors = names(3000), rng.normal(size=(3000, 50)).astype(np.float32)
    source = Neighbours(words, vectors, "noise")
    unit = vectors.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    scores = unit @ unit.T
    np.fill_diagonal(scores, -2)
    asked = rng.permutation(3000)[:200]
    for i, found in zip(asked, ask(source, *(words[i] for i in asked)), strict=True):
        assert set(found) == {words[j] for j in np.argsort(-scores[i])[:15]}


@pytest.mark.parametrize("block", [1, 1000, 10**9])
def test_blocks_and_company_do_not_matter(monkeypatch, block):
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(400, 8)).astype(np.float32)
    vectors[200:] = vectors[:200] + rng.normal(size=(200, 8)).astype(np.float32) * 1e-7  # near ties everywhere
    words = names(400)
    alone = [ask(Neighbours(words, vectors, "v"), word)[0] for word in words[:30]]
    monkeypatch.setattr(neighbours, "_BLOCK_SCORES", block)
    assert ask(Neighbours(words, vectors, "v"), *words[:30]) == alone


def test_equal_vectors_the_first_in_the_table_win():
    vectors = np.ones((40, 3), dtype=np.float32)
    source = Neighbours(names(40), vectors, "ones")
    assert ask(source, names(40)[20]) == [tuple(names(15))]


def test_only_words_with_a_direction_are_known():
    words = ["good", ",", "1990s", "zero", "good", "fine", "nan", "well"]
    vectors = np.array([[1, 0], [1, 0], [1, 0], [0, 0], [0, 1], [1, 1], [np.nan, 1], [2, 1]], dtype=np.float32)
    source = Neighbours(words, vectors, "few")
    assert source.words == ["good", "fine", "well"]
    assert ask(source, "good", "zero", ",") == [("fine", "well"), None, None]
    with pytest.raises(DataError, match="holds 1 words with a vector"):
        Neighbours(words[:2], vectors[:2], "few")


def test_other_cases_of_the_word_are_no_replacement():
    words = ["film", "Film", "FILM", "movie"]
    source = Neighbours(words, np.eye(4, dtype=np.float32) + 1, "cased")
    assert ask(source, "film", "Film", "FiLM") == [("movie",)] * 3
    assert ask(Neighbours(words[:2], np.ones((2, 2), dtype=np.float32), "cased"), "film") == [()]


def test_a_word_is_computed_once(monkeypatch):
    source = circle()
    asked = []
    nearest = Neighbours._nearest
    monkeypatch.setattr(Neighbours, "_nearest", lambda self, indices: asked.extend(indices) or nearest(self, indices))
    first = ask(source, *source.words[:5], *source.words[:5])
    assert ask(source, *source.words[:5]) == first[:5] == first[5:]
    assert asked == [0, 1, 2, 3, 4]


def test_a_chain_asks_each_source_about_what_the_others_passed_on():
    first, second = circle(words=10), Neighbours(["wordaa", "other", "more"], np.ones((3, 2), dtype=np.float32), "b")
    chain = Chain([first, second])
    done = []
    places = [Place(word, 0, len(word)) for word in ("wordaa", "other", "nobody")]
    answers = chain.candidates(places, done.append)
    assert answers == [ask(first, "wordaa")[0], ("wordaa", "more"), None]
    assert done == [3, 3]
    assert chain.description == f"{first.description}; for the other words, {second.description}"
    assert len({chain.fingerprint, Chain([second, first]).fingerprint, first.fingerprint, second.fingerprint}) == 4


def test_the_fingerprint_is_of_the_content():
    assert circle().fingerprint == circle().fingerprint
    assert len({circle().fingerprint, circle(count=5).fingerprint, circle(words=39).fingerprint}) == 3
