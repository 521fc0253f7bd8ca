import subprocess
import sys

import pytest

from ternarybert.augment import Chain, MaskedModel, load_source
from ternarybert.augment.words import find_words
from ternarybert.errors import RecipeError
from tests.augment import language


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
    with pytest.raises(RecipeError, match="nowhere to take words from"):
        load_source()
    with pytest.raises(RecipeError, match="choose one"):
        load_source(masked_model="a", embeddings="b")
    assert isinstance(load_source(masked_model=str(masked_folder)), MaskedModel)
    assert Chain([]).candidates([]) == []


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
