"""Windows of long texts: every token belongs to exactly one, with room around it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ternarybert.data.tagged_sentences import Sentence
from ternarybert.data.token_windows import TokenWindower, word_tokens
from tests import tiny

TOKENIZER = tiny.tokenizer().backend_tokenizer


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(5, 40))
def test_windows_cover_a_text_once(words, length):
    windower = TokenWindower(TOKENIZER, length)
    ids = windower.encode("film " * words).ids
    windows = windower.windows(ids)
    assert all(len(window.ids) <= length for window in windows)
    # A row of outputs that is the token's own position: put together, all positions in order.
    rows = [np.arange(len(window.ids)) + window.shift for window in windows]
    joined = np.concatenate([window.own_rows(each) for window, each in zip(windows, rows, strict=True)])
    assert joined.tolist() == list(range(len(ids)))
    assert [id for window in windows for id in window.own_rows(np.array(window.ids))] == ids


def test_a_token_is_read_where_it_has_neighbors():
    windower = TokenWindower(TOKENIZER, 12)
    windows = windower.windows(windower.encode("film " * 60).ids)
    for window in windows[1:-1]:
        start, end = (edge - window.shift for edge in window.owned)
        assert start > 2
        assert end < len(window.ids) - 2


def test_first_pieces():
    text = "zebra was \u0001 good"
    encoding = TokenWindower(TOKENIZER, 30).encode(text)
    assert word_tokens(encoding, [(0, 5), (6, 9), (10, 11), (12, 16)]) == [[1], [6], [], [7]]


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("ab.'-é\u0001北"), min_size=1, max_size=6), min_size=1, max_size=8))
def test_every_part_that_the_engine_tags_belongs_to_a_word(words):
    """The tokens that carry tags in training are the first pieces of what the tokenizer calls words."""
    sentence = Sentence.of_words(words)
    encoding = TokenWindower(TOKENIZER, 500).encode(sentence.text)
    ids = encoding.word_ids
    parts = [i for i, word in enumerate(ids) if word is not None and word != ids[i - 1]]
    found = word_tokens(encoding, sentence.words)
    assert [token for tokens in found for token in tokens] == parts
    for (start, end), tokens in zip(sentence.words, found, strict=True):
        assert all(start <= encoding.offsets[token][0] < end for token in tokens)
