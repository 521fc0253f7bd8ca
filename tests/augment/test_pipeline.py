import random
from collections import Counter

import pytest

from ternarybert.augment import MaskedModel, Settings, augment_rows
from ternarybert.augment import variants as pipeline
from ternarybert.augment.variants import uniform
from ternarybert.augment.words import find_words
from ternarybert.errors import RecipeError
from tests.augment import language

MADE = Settings(variants=30, seed=3, stop_words=language.STOP_WORDS)


def made_rows(count=25, seed=1):
    generator = random.Random(seed)
    return [(language.sentence(generator), language.sentence(generator)) for _ in range(count)]


def augment(rows, source, settings, **more):
    return [row for stretch in augment_rows(rows, source, settings, **more) for row in stretch]


def by_hand(rows, settings):
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
    assert made == by_hand(rows, MADE)
    assert [variants[0] for variants in made] == rows
    assert max(len(variants) for variants in made) == 31
    assert min(len(variants) for variants in made) < 31  # few words, so some variants came out equal


@pytest.mark.parametrize("batch", [1, 64])
def test_batches_and_stretches_do_not_matter(monkeypatch, model, tokenizer, batch):
    rows = made_rows()
    source = MaskedModel(model, tokenizer, batch_size=batch)
    expected = by_hand(rows, MADE)
    for words in (1, 17, 10**6):
        monkeypatch.setattr(pipeline, "_STRETCH_WORDS", words)
        assert augment(rows, source, MADE) == expected


def test_another_seed_gives_other_variants_and_fewer_are_the_first_of_more(neighbours):
    rows = [(" ".join(neighbours.words),)]
    (many,) = augment(rows, neighbours, Settings(variants=30))
    assert augment(rows, neighbours, Settings(variants=7)) == [many[:8]]
    assert augment(rows, neighbours, Settings(variants=0)) == [many[:1]]
    (other,) = augment(rows, neighbours, Settings(variants=30, seed=43))
    assert set(many) & set(other) == {rows[0]}


def test_equal_rows_have_variants_of_their_own(neighbours):
    first, second = augment([(" ".join(neighbours.words),)] * 2, neighbours, Settings())
    assert first[0] == second[0]
    assert not set(first[1:]) & set(second[1:])


def test_the_texts_of_a_pair_change_independently(neighbours):
    text = " ".join(neighbours.words)
    (variants,) = augment([(text, text)], neighbours, Settings())
    assert all(a != b for a, b in variants[1:])
    (alone,) = augment([(text,)], neighbours, Settings())
    assert [a for a, _ in variants] == [a for (a,) in alone]


def test_words_are_replaced_with_the_probability(neighbours):
    rows = [(" ".join(neighbours.words),)] * 50
    for probability in (0.0, 0.1, 0.4, 1.0):
        changed = total = 0
        for variants in augment(rows, neighbours, Settings(variants=20, probability=probability)):
            for (text,) in variants[1:]:
                pairs = list(zip(text.split(), variants[0][0].split(), strict=True))
                changed += sum(a != b for a, b in pairs)
                total += len(pairs)
        deviation = (probability * (1 - probability) / max(1, total)) ** 0.5
        assert abs(changed - probability * total) <= 4 * deviation * total


def test_from_any_row_on(monkeypatch, neighbours):
    monkeypatch.setattr(pipeline, "_STRETCH_WORDS", 50)
    rows = [(" ".join(neighbours.words[i : i + 7]),) for i in range(30)]
    whole = augment(rows, neighbours, Settings())
    for start in (0, 1, 13, 29, 30):
        assert augment(rows, neighbours, Settings(), start=start) == whole[start:]


def test_a_text_is_looked_up_once_and_forgotten_after_its_last_row(monkeypatch, neighbours):
    monkeypatch.setattr(pipeline, "_STRETCH_WORDS", 1)
    asked = Counter()
    inner = neighbours.candidates

    def candidates(places, done):
        asked.update({place.text for place in places})
        return inner(places, done)

    monkeypatch.setattr(neighbours, "candidates", candidates)
    texts = neighbours.words[:6]
    list(augment_rows([(text,) for text in texts * 4], neighbours, Settings()))
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
def test_strange_texts(neighbours, masked, text):
    for source in (neighbours, masked):
        (variants,) = augment([(text, "")], source, Settings(variants=50))
        assert variants[0] == (text, "")
        known = "wordab" in text and source is neighbours
        assert len(variants) == (5 if known else 1)
        if known:
            frame = text.replace("wordab", "{}")
            expected = ["wordab", *neighbours.candidates(find_words("wordab"))[0]]
            assert {new for new, _ in variants} == {frame.format(word) for word in expected}


def test_five_thousand_words(neighbours, masked):
    generator = random.Random(0)
    text = " ".join(generator.choices(neighbours.words, k=5000))
    (variants,) = augment([(text,)], neighbours, Settings(variants=3))
    changed = [sum(a != b for a, b in zip(v.split(), text.split(), strict=True)) for (v,) in variants[1:]]
    assert all(1800 < count < 2200 for count in changed)
    text = " ".join(["mi", *generator.choices(language.ALL_WORDS, k=5000)])
    (variants,) = augment([(text,)], masked, Settings(variants=2, stop_words=language.STOP_WORDS))
    assert [len(v.split()) for (v,) in variants] == [5001] * 3


def test_progress_goes_from_the_first_row_to_the_last(monkeypatch, masked):
    monkeypatch.setattr(pipeline, "_STRETCH_WORDS", 40)
    seen = []
    augment(made_rows(), masked, MADE, start=3, progress=lambda done, total: seen.append((done, total)))
    assert seen[0] == (3, 25)
    assert seen[-1] == (25, 25)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert len(seen) > 5


def test_settings_are_checked():
    for wrong in ({"variants": -1}, {"probability": 1.5}, {"probability": float("nan")}, {"seed": -1}, {"seed": 2**64}):
        with pytest.raises(RecipeError):
            Settings(**wrong)


def test_settings_have_a_fingerprint_of_their_own():
    different = [{}, {"variants": 3}, {"probability": 0.3}, {"seed": 1}, {"stop_words": frozenset({"x"})}]
    assert len({Settings(**settings).fingerprint for settings in different}) == 5
    assert Settings().fingerprint == Settings(stop_words=frozenset(sorted(pipeline.STOP_WORDS))).fingerprint
