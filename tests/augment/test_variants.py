"""Variants of texts and rows: their words, their number, their random numbers."""

import random
from collections import Counter

import numpy as np
import pytest

from ternarybert.augment import MaskedModel, VariantOptions, augment_rows
from ternarybert.augment import variants as variants_module
from ternarybert.augment.variants import distinct, make_variants, uniform
from ternarybert.augment.words import STOP_WORDS, find_words
from ternarybert.errors import RecipeError
from tests.augment import language

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


MADE = VariantOptions(variants=30, seed=3, stop_words=language.STOP_WORDS)


def made_rows(count=25, seed=1):
    generator = random.Random(seed)
    return [(language.sentence(generator), language.sentence(generator)) for _ in range(count)]


def augment(rows, source, settings, **more):
    return [row for stretch in augment_rows(rows, source, settings, **more) for row in stretch]


def expected_rows(rows, settings):
    """What the made language says the variants are, without asking any model."""
    out = []
    for index, row in enumerate(rows):
        columns = []
        for column, text in enumerate(row):
            words = language.WORDS[language.marker_of(text)]
            tokens = text.split()
            places = [i for i, word in enumerate(tokens) if word not in language.STOP_WORDS]
            chance = uniform(settings.seed, index, column, (settings.variants, len(places), 2))
            texts = []
            for variant in chance:
                new = list(tokens)
                for i, (first, second) in zip(places, variant, strict=True):
                    new[i] = words[int(second * len(words))] if first < settings.probability else new[i]
                texts.append(" ".join(new))
            columns.append(texts)
        seen = [row]
        for variant in zip(*columns, strict=True):
            if variant not in seen:
                seen.append(variant)
        out.append(seen)
    return out


def test_variants_counts_and_seeds_are_exact(masked):
    rows = made_rows()
    made = augment(rows, masked, MADE)
    assert made == expected_rows(rows, MADE)
    assert [variants[0] for variants in made] == rows
    assert max(len(variants) for variants in made) == 31
    assert min(len(variants) for variants in made) < 31  # few words, so some variants came out equal


@pytest.mark.parametrize("batch", [1, 64])
def test_batches_and_stretches_do_not_matter(monkeypatch, model, tokenizer, batch):
    rows = made_rows()
    source = MaskedModel(model, tokenizer, batch_size=batch)
    expected = expected_rows(rows, MADE)
    for words in (1, 17, 10**6):
        monkeypatch.setattr(variants_module, "_CHUNK_WORDS", words)
        assert augment(rows, source, MADE) == expected


def test_another_seed_gives_other_variants_and_fewer_are_the_first_of_more(neighbors):
    rows = [(" ".join(neighbors.words),)]
    (many,) = augment(rows, neighbors, VariantOptions(variants=30))
    assert augment(rows, neighbors, VariantOptions(variants=7)) == [many[:8]]
    assert augment(rows, neighbors, VariantOptions(variants=0)) == [many[:1]]
    (other,) = augment(rows, neighbors, VariantOptions(variants=30, seed=43))
    assert set(many) & set(other) == {rows[0]}


def test_equal_rows_have_variants_of_their_own(neighbors):
    first, second = augment([(" ".join(neighbors.words),)] * 2, neighbors, VariantOptions())
    assert first[0] == second[0]
    assert not set(first[1:]) & set(second[1:])


def test_the_texts_of_a_pair_change_independently(neighbors):
    text = " ".join(neighbors.words)
    (variants,) = augment([(text, text)], neighbors, VariantOptions())
    assert all(a != b for a, b in variants[1:])
    (alone,) = augment([(text,)], neighbors, VariantOptions())
    assert [a for a, _ in variants] == [a for (a,) in alone]


def test_words_are_replaced_with_the_probability(neighbors):
    rows = [(" ".join(neighbors.words),)] * 50
    for probability in (0.0, 0.1, 0.4, 1.0):
        changed = total = 0
        for variants in augment(rows, neighbors, VariantOptions(variants=20, probability=probability)):
            for (text,) in variants[1:]:
                pairs = list(zip(text.split(), variants[0][0].split(), strict=True))
                changed += sum(a != b for a, b in pairs)
                total += len(pairs)
        deviation = (probability * (1 - probability) / max(1, total)) ** 0.5
        assert abs(changed - probability * total) <= 4 * deviation * total


def test_from_any_row_on(monkeypatch, neighbors):
    monkeypatch.setattr(variants_module, "_CHUNK_WORDS", 50)
    rows = [(" ".join(neighbors.words[i : i + 7]),) for i in range(30)]
    whole = augment(rows, neighbors, VariantOptions())
    for start in (0, 1, 13, 29, 30):
        assert augment(rows, neighbors, VariantOptions(), start=start) == whole[start:]


def test_a_text_is_looked_up_once_and_forgotten_after_its_last_row(monkeypatch, neighbors):
    monkeypatch.setattr(variants_module, "_CHUNK_WORDS", 1)
    asked = Counter()
    inner = neighbors.candidates

    def candidates(places, done):
        asked.update({place.text for place in places})
        return inner(places, done)

    monkeypatch.setattr(neighbors, "candidates", candidates)
    texts = neighbors.words[:6]
    list(augment_rows([(text,) for text in texts * 4], neighbors, VariantOptions()))
    assert asked == Counter(texts)


STRANGE = {
    "empty": "",
    "blank": " \t\n ",
    "one word": "wordab",
    "an unknown word": "nobody",
    "only stop words": "and it is not what it was",
    "emoji": "😀👩‍👩‍👧 🏳️‍🌈",
    "emoji around a word": "😀wordab👍🏽!!",
    "control characters": "\x00 wordab \x07\u200b",
    "one endless word": "x" * 100_000,
    "right to left": "שלום wordab عالم",
}


@pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE)
def test_strange_texts(neighbors, masked, text):
    for source in (neighbors, masked):
        (variants,) = augment([(text, "")], source, VariantOptions(variants=50))
        assert variants[0] == (text, "")
        known = "wordab" in text and source is neighbors
        assert len(variants) == (5 if known else 1)
        if known:
            frame = text.replace("wordab", "{}")
            expected = ["wordab", *neighbors.candidates(find_words("wordab"))[0]]
            assert {new for new, _ in variants} == {frame.format(word) for word in expected}


def test_five_thousand_words(neighbors, masked):
    generator = random.Random(0)
    text = " ".join(generator.choices(neighbors.words, k=5000))
    (variants,) = augment([(text,)], neighbors, VariantOptions(variants=3))
    changed = [sum(a != b for a, b in zip(v.split(), text.split(), strict=True)) for (v,) in variants[1:]]
    assert all(1800 < count < 2200 for count in changed)
    text = " ".join(["mi", *generator.choices(language.ALL_WORDS, k=5000)])
    (variants,) = augment([(text,)], masked, VariantOptions(variants=2, stop_words=language.STOP_WORDS))
    assert [len(v.split()) for (v,) in variants] == [5001] * 3


def test_progress_goes_from_the_first_row_to_the_last(monkeypatch, masked):
    monkeypatch.setattr(variants_module, "_CHUNK_WORDS", 40)
    seen = []
    augment(made_rows(), masked, MADE, start=3, progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (3, 25)
    assert seen[-1] == (25, 25)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) > 5


def test_settings_are_checked():
    for wrong in ({"variants": -1}, {"probability": 1.5}, {"probability": float("nan")}, {"seed": -1}, {"seed": 2**64}):
        with pytest.raises(RecipeError):
            VariantOptions(**wrong)


def test_settings_have_a_fingerprint_of_their_own():
    different = [{}, {"variants": 3}, {"probability": 0.3}, {"seed": 1}, {"stop_words": frozenset({"x"})}]
    assert len({VariantOptions(**settings).fingerprint for settings in different}) == 5
    assert VariantOptions().fingerprint == VariantOptions(stop_words=frozenset(sorted(STOP_WORDS))).fingerprint
