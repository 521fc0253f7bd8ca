import numpy as np
import pytest

from ternarybert.augment.variants import distinct, make_variants, uniform
from ternarybert.augment.words import find_words

TEXT = "A dull film, and a  DULL plot 😀."
CANDIDATES = [("dry", "slow"), ("movie", "picture", "Matrix"), ("dry", "slow"), ()]


def by_hand(text, candidates, variants, probability, seed, row, column):
    """The algorithm once more, a number at a time, with no array in sight."""
    places = find_words(text)
    bits = np.random.Philox(key=seed, counter=[0, 0, column, row])
    made = []
    for _ in range(variants):
        out, end = "", 0
        for place, words in zip(places, candidates, strict=True):
            replace = int(bits.random_raw()) / 2**64 < probability
            which = int(bits.random_raw()) * len(words) // 2**64
            word = place.word
            if replace and words:
                new = words[which]
                word = new if new != new.lower() else new.upper() if word.isupper() else new
            out += text[end : place.start] + word
            end = place.end
        made.append(out + text[end:])
    return made


@pytest.mark.parametrize("probability", [0.0, 0.4, 1.0])
def test_variants_are_those_of_the_algorithm_done_by_hand(probability):
    places = find_words(TEXT)
    for row in range(50):
        chance = uniform(7, row, 1, (20, len(places), 2))
        made = make_variants(TEXT, places, CANDIDATES, chance, probability)
        assert made == by_hand(TEXT, CANDIDATES, 20, probability, 7, row, 1)


def test_each_word_is_replaced_with_the_probability_and_by_each_candidate_equally_often():
    words = tuple("bcdefghijklmnop")
    text = "xx"
    chance = uniform(0, 3, 0, (30_000, 1, 2))
    made = make_variants(text, find_words(text), [words], chance, 0.4)
    replaced = [variant for variant in made if variant != text]
    assert abs(len(replaced) / 30_000 - 0.4) < 4 * (0.4 * 0.6 / 30_000) ** 0.5
    counts = np.array([replaced.count(word) for word in words])
    expected = len(replaced) / 15
    assert ((counts - expected) ** 2 / expected).sum() < 36.1  # chi-square with 14 degrees of freedom at 0.1 %


def test_random_numbers_are_a_function_of_seed_row_and_column():
    base = uniform(1, 2, 0, (5, 3, 2))
    assert (uniform(1, 2, 0, (5, 3, 2)) == base).all()
    assert (uniform(1, 2, 0, (2, 3, 2)) == base[:2]).all()  # fewer variants are the first of more
    for other in ((2, 2, 0), (1, 3, 0), (1, 2, 1)):
        assert not np.isin(uniform(*other, (5, 3, 2)), base).any()
    assert (base >= 0).all()
    assert (base < 1).all()


def test_random_numbers_stay_the_same_in_every_release():
    assert uniform(42, 7, 1, (3,)).tolist() == [0.431174202061539, 0.9671925211899315, 0.41103458497585743]


def test_no_words_and_no_variants():
    assert make_variants("!!", [], [], uniform(0, 0, 0, (3, 0, 2)), 0.4) == ["!!"] * 3
    assert make_variants("film", find_words("film"), [("a",)], uniform(0, 0, 0, (0, 1, 2)), 0.4) == []


def test_the_original_comes_first_and_nothing_comes_twice():
    assert distinct(("a",), [("b",), ("a",), ("c",), ("b",)]) == [("a",), ("b",), ("c",)]
