"""Which words may be replaced, which pieces are words, and the case of replacements."""

import pytest

from ternarybert.augment.words import STOP_WORDS, find_words, match_case, read_stop_words, whole_words
from ternarybert.errors import DataError


def words(text, **settings):
    return [place.word for place in find_words(text, **settings)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The film was great, really great!", ["film", "great", "really", "great"]),
        ("", []),
        ("   \n\t", []),
        ("film", ["film"]),
        ("it is what it is, and that is not all", []),
        ("😀 great 👩‍👩‍👧 film😀", ["great", "film"]),
        ("3 films in 1990s x86 snake_case", ["films"]),
        ("they don't like Bob's dog's, you're right", ["like", "Bob", "dog", "right"]),
        ("don’t touch Bob’s", ["touch", "Bob"]),
        ("well-known 'quoted' word", ["well", "known", "quoted", "word"]),
        ("größer Ärger élan", ["größer", "Ärger", "élan"]),
        ("cafe\u0301 noir", ["noir"]),  # an accent of its own would stay behind on the replacement
        ("U.S. A b", []),
        ("दिनकर नमस्ते film", ["film"]),  # their vowel signs are no letters: what is between them is no word
        ("घर film", ["घर", "film"]),
        ("สวัสดี film", ["film"]),
        ("❤\ufe0fgreat film\ufe0f", ["great"]),
        ("THE Film NOT shown", ["Film", "shown"]),
    ],
)
def test_words_that_may_be_replaced(text, found):
    assert words(text) == found


def test_places_point_into_the_text():
    text = "😀 The film, the Film"
    assert [text[p.start : p.end] for p in find_words(text)] == ["film", "Film"]


def test_other_stop_words():
    assert words("der Film the end", stop_words={"der"}) == ["Film", "the", "end"]


def test_stop_words_are_lower_case_words_of_letters():
    assert all(word == word.lower() and word.isalpha() for word in STOP_WORDS)
    assert {"the", "not", "because", "would", "who"} <= STOP_WORDS
    assert not {"good", "bad", "film", "like", "said"} & STOP_WORDS


def test_stop_words_from_a_file(tmp_path):
    path = tmp_path / "stop.txt"
    path.write_text("\ufeffDer\n die das\n\n", encoding="utf-8")
    assert read_stop_words(path) == {"der", "die", "das"}
    with pytest.raises(DataError, match=r"missing\.txt"):
        read_stop_words(tmp_path / "missing.txt")


@pytest.mark.parametrize(
    ("word", "candidate", "written"),
    [
        ("film", "movie", "movie"),
        ("Film", "movie", "Movie"),
        ("FILM", "movie", "MOVIE"),
        ("film", "Paris", "Paris"),
        ("FILM", "Paris", "Paris"),
        ("McDonald", "burger", "Burger"),
    ],
)
def test_replacements_take_the_case_of_the_word(word, candidate, written):
    assert match_case(word, candidate) == written


def vocabulary_words(*pieces):
    return whole_words({piece: i for i, piece in enumerate(pieces)})


def test_wordpiece_drops_what_goes_on_and_what_is_no_word():
    assert vocabulary_words("[PAD]", "film", "##ing", ".", "1990", "Zürich", "a", "x1", "#") == {
        1: "film",
        5: "Zürich",
        6: "a",
    }


def test_byte_level_keeps_what_begins_a_word():
    assert vocabulary_words("<s>", "Ġfilm", "film", "Ġ", "Ġ.", "ĠdÃªja", "Ġ1") == {1: "film"}


def test_sentencepiece_keeps_what_begins_a_word():
    assert vocabulary_words("<s>", "▁film", "film", "▁", "▁größer", "▁1") == {1: "film", 4: "größer"}


def test_a_mark_that_only_occurs_is_no_mark():
    assert vocabulary_words("Ġ", *(chr(ord("a") + i) for i in range(20)))[1] == "a"
    assert whole_words({}) == {}
