from ternarybert.augment.words import whole_words


def words(*pieces):
    return whole_words({piece: i for i, piece in enumerate(pieces)})


def test_wordpiece_drops_what_goes_on_and_what_is_no_word():
    assert words("[PAD]", "film", "##ing", ".", "1990", "Zürich", "a", "x1", "#") == {1: "film", 5: "Zürich", 6: "a"}


def test_byte_level_keeps_what_begins_a_word():
    assert words("<s>", "Ġfilm", "film", "Ġ", "Ġ.", "ĠdÃªja", "Ġ1") == {1: "film"}


def test_sentencepiece_keeps_what_begins_a_word():
    assert words("<s>", "▁film", "film", "▁", "▁größer", "▁1") == {1: "film", 4: "größer"}


def test_a_mark_that_only_occurs_is_no_mark():
    assert words("Ġ", *(chr(ord("a") + i) for i in range(20)))[1] == "a"
    assert whole_words({}) == {}
