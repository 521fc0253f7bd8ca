"""Which source covers which word."""

import subprocess
import sys

import numpy as np
import pytest

from ternarybert.augment import MaskedModel, Neighbors, SourceChain, load_source
from ternarybert.augment.words import WordPosition, find_words
from ternarybert.errors import RecipeError
from tests.augment import language
from tests.augment.circle import circle
from tests.augment.test_neighbors import candidates_of


@pytest.fixture
def glove(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("".join(f"{word} {i} 1\n" for i, word in enumerate(["animala", "animalx", "animaly", "animalz"])))
    return path


def test_words_of_one_piece_from_the_model_and_the_others_from_glove(masked_folder, glove):
    source = load_source(masked_model=str(masked_folder), glove=glove)
    found = source.candidates(find_words("mi animala animalx nobody", language.STOP_WORDS))
    assert found == [tuple(language.WORDS["mi"]), ("animala", "animaly", "animalz"), None]


def test_embeddings_in_the_place_of_the_model(masked_folder, glove):
    source = load_source(embeddings=masked_folder, glove=glove, count=2)
    one, several = source.candidates(find_words("animala animalx"))
    assert len(one) == 2
    assert several == ("animaly", "animalz")


def test_glove_alone_answers_for_every_word(glove):
    source = load_source(glove=glove)
    assert source.candidates(find_words("animala")) == [("animalx", "animaly", "animalz")]


def test_settings_reach_the_model(masked_folder):
    source = load_source(masked_model=str(masked_folder), count=3, batch_size=2, max_length=20)
    assert isinstance(source, MaskedModel)
    assert (source.count, source.batch_size, source._encode.window) == (3, 2, 8)


def test_what_makes_no_sense(masked_folder):
    with pytest.raises(RecipeError, match="no source"):
        load_source()
    with pytest.raises(RecipeError, match=r"this-model.*that-model"):
        load_source(masked_model="this-model", embeddings="that-model")
    assert isinstance(load_source(masked_model=str(masked_folder)), MaskedModel)
    assert SourceChain([]).candidates([]) == []


def test_without_a_masked_language_model_torch_is_not_imported(masked_folder, glove, tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nanimala animalx,1\n")
    script = f"""
import sys
from ternarybert.augment import augment_table, load_source, open_file
source = load_source(embeddings={str(masked_folder)!r}, glove={str(glove)!r})
augment_table(open_file({str(tmp_path / "a.csv")!r}), {str(tmp_path / "b.csv")!r}, source)
assert not {{"torch", "transformers"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert len((tmp_path / "b.csv").read_text().splitlines()) > 5


def test_a_chain_asks_each_source_about_what_the_others_passed_on():
    first, second = circle(words=10), Neighbors(["wordaa", "other", "more"], np.ones((3, 2), dtype=np.float32), "b")
    chain = SourceChain([first, second])
    done = []
    places = [WordPosition(word, 0, len(word)) for word in ("wordaa", "other", "nobody")]
    answers = chain.candidates(places, done.append)
    assert answers == [candidates_of(first, "wordaa")[0], ("wordaa", "more"), None]
    assert done == [3, 3]
    assert chain.description == f"{first.description}; for the other words, {second.description}"
    assert (
        len({chain.fingerprint, SourceChain([second, first]).fingerprint, first.fingerprint, second.fingerprint}) == 4
    )
