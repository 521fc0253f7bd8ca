import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers

from ternarybert.data.squad.questions import GoldAnswer, Question
from ternarybert.data.squad.windows import FIRST_TOKEN, UNKNOWN, Windower, window_cuts
from ternarybert.errors import DataError

from .squad_made import bytelevel, made_questions, made_tokenizer, wordpiece


@pytest.fixture
def letters():
    """A tokenizer whose tokens are single letters, so that a token's number is its character's."""
    return wordpiece(["a b c d e f g h i j k l m n o p q r s t u v w x y z"], size=40)


def spaced(count):
    """A text of so many one-letter tokens; token i is character 2 i."""
    return " ".join("abcdefghijklmnopqrstuvwxyz"[i % 26] for i in range(count))


def at(first, last, count=40):
    """A question about tokens first..last of a text."""
    context = spaced(count)
    return Question("q r s", context, (GoldAnswer(context[2 * first : 2 * last + 1], 2 * first),), "x")


def test_a_window_is_what_the_tokenizer_itself_makes_of_a_pair():
    tokenizer = made_tokenizer()
    question = made_questions(1, words=(40, 40))[0]
    (window,) = Windower(tokenizer).windows([question])
    plain = Tokenizer.from_str(tokenizer.to_str())
    plain.no_padding()
    plain.no_truncation()
    pair = plain.encode(question.question, question.context)
    assert window.input_ids.tolist() == pair.ids
    assert window.token_type_ids.tolist() == pair.type_ids
    assert len(window) == len(pair.ids)
    assert window.context_at == pair.sequence_ids.index(1)
    pieces = zip(window.tokens.starts, window.tokens.ends, strict=True)
    assert [(a, b) for a, b in pieces] == [o for o, s in zip(pair.offsets, pair.sequence_ids, strict=True) if s == 1]
    assert tokenizer.truncation["max_length"] == 16  # the caller's own is left as it was


def test_an_example_for_training(letters):
    (window,) = Windower(letters).windows([at(2, 3, count=5)])
    example = {name: np.asarray(value).tolist() for name, value in window.example().items()}
    question, context = ([letters.token_to_id(x) for x in text.split()] for text in ("q r s", spaced(5)))
    cls, sep = letters.token_to_id("[CLS]"), letters.token_to_id("[SEP]")
    assert example == {
        "input_ids": [cls, *question, sep, *context, sep],
        "token_type_ids": [0] * 5 + [1] * 6,
        "attention_mask": [1] * 11,
        "start_positions": 7,
        "end_positions": 8,
    }


def test_windows_begin_every_stride_tokens(letters):
    windows = Windower(letters, max_length=16, stride=4).windows([at(0, 0)])  # 16 - 3 - 3 leave room for 10
    assert [(w.first, w.count) for w in windows] == [(4 * i, 10) for i in range(8)] + [(32, 8)]
    assert all(len(w) == len(w.input_ids) == len(w.token_type_ids) <= 16 for w in windows)
    ids = windows[0].tokens.ids
    for w in windows:
        assert (w.input_ids[w.context_at : w.context_at + w.count] == ids[w.first : w.first + w.count]).all()


def bert_windows(total, room, stride):
    """BERT's own way to say it: a loop, and a score for every token in every window."""
    spans, first = [], 0
    while first < total:
        count = min(room, total - first)
        spans.append((first, count))
        if first + count == total:
            break
        first += min(count, stride)
    nearer = [[min(t - f, f + n - 1 - t) if f <= t < f + n else -1 for t in range(total)] for f, n in spans]
    return [first for first, _ in spans], np.argmax(nearer, axis=0)


@settings(deadline=None)  # a busy machine is no error
@given(st.integers(1, 120), st.integers(1, 40), st.integers(1, 50))
def test_windows_and_owners_are_those_of_bert(total, room, stride):
    firsts, borders = window_cuts(total, room, stride)
    wanted, owner = bert_windows(total, room, stride)
    assert firsts == wanted
    assert np.repeat(np.arange(len(firsts)), np.diff(borders)).tolist() == owner.tolist()


@pytest.mark.parametrize(("last", "firsts"), [(13, [4, 8]), (14, [8]), (18, [])])
def test_answers_outside_a_window_point_at_the_first_token(letters, last, firsts):
    windows = Windower(letters, max_length=16, stride=4).windows([at(11, last)])  # each holds 10 tokens
    inside = [w for w in windows if w.first in firsts]
    shift = [w.first - w.context_at for w in inside]
    assert [(w.start + s, w.end + s) for w, s in zip(inside, shift, strict=True)] == [(11, last)] * len(firsts)
    assert {(w.start, w.end) for w in windows if w not in inside} == {(FIRST_TOKEN, FIRST_TOKEN)}


def test_labels_where_there_is_no_answer_and_where_nobody_knows(letters):
    text = spaced(40)
    silent, unknown = Question("q", text, ()), Question("q", text, None)
    unseen = Question("q", "a \u200b b", (GoldAnswer("\u200b", 2),))  # BERT's tokenizer drops the character
    windows = Windower(letters, max_length=16, stride=4).windows([silent, unknown, unseen])
    labels = [{(w.start, w.end) for w in windows if w.row == row} for row in range(3)]
    assert labels == [{(FIRST_TOKEN, FIRST_TOKEN)}, {(UNKNOWN, UNKNOWN)}, {(UNKNOWN, UNKNOWN)}]


def test_every_token_that_an_answer_touches_is_in_its_label():
    tokenizer = wordpiece(["golden gate 1990s"], size=60)
    context = "A golden gate in the 1990s."
    for text in ("old", "n ga", "199", "A", "1990s."):
        question = Question("?", context, (GoldAnswer(text, context.index(text)),))
        (window,) = Windower(tokenizer).windows([question])
        start, end = (label - window.context_at for label in (window.start, window.end))
        covered = context[window.tokens.starts[start] : window.tokens.ends[end]]
        assert text in covered
        assert start == 0 or window.tokens.ends[start - 1] <= context.index(text)
        assert end + 1 == window.count or window.tokens.starts[end + 1] >= context.index(text) + len(text)


def test_long_and_empty_questions(letters):
    long, empty = Question(spaced(100), "a b", ()), Question("", "a b", ())
    one, two = Windower(letters).windows([long, empty])
    assert len(one) == 64 + 3 + 2
    assert one.question_ids.tolist() == [letters.token_to_id(x) for x in spaced(64).split()]
    assert two.input_ids.tolist() == [letters.token_to_id(x) for x in ["[CLS]", "[SEP]", "a", "b", "[SEP]"]]
    assert two.context_at == 2


def test_a_question_leaves_half_of_a_short_window_to_the_context(letters):
    windows = Windower(letters, max_length=16, stride=4).windows([Question(spaced(100), spaced(40), ())])
    assert {len(w.question_ids) for w in windows} == {6}  # of the 13 that the three special tokens leave
    assert {w.count for w in windows[:-1]} == {7}


def test_one_text_is_tokenized_once_however_often_it_is_asked_about(letters):
    text = spaced(5000)
    windows = Windower(letters).windows([Question(f"{i}", text, (), str(i)) for i in range(20)])
    assert len({id(window.tokens) for window in windows}) == 1
    assert [w.row for w in windows] == sorted(w.row for w in windows)


def test_two_separators_and_no_token_types():
    tokenizer = bytelevel(["a small text of words"])
    (window,) = Windower(tokenizer).windows([Question("words of", "a small text", ())])
    assert window.input_ids.tolist() == tokenizer.encode("words of", "a small text").ids
    assert tokenizer.encode("words of", "a small text").tokens.count("</s>") == 3
    assert set(window.token_type_ids) == {0}


def test_a_tokenizer_from_a_file(tmp_path, letters):
    letters.save(str(tmp_path / "tokenizer.json"))
    question = at(1, 2)
    (one,), (two,) = (Windower(t).windows([question]) for t in (letters, tmp_path / "tokenizer.json"))
    assert one.input_ids.tolist() == two.input_ids.tolist()


def test_what_cannot_be_cut(tmp_path, letters):
    with pytest.raises(DataError, match=r"cannot read the tokenizer .*; give a tokenizer\.json"):
        Windower(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(DataError, match="cannot read the tokenizer"):
        Windower(str(tmp_path / "bad.json"))
    bare = Tokenizer(models.WordLevel({"a": 0}, unk_token="a"))
    bare.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(DataError, match=r"no special token before a pair of texts, such as \[CLS\]"):
        Windower(bare)
    with pytest.raises(DataError, match="0 apart"):
        Windower(letters, stride=0)
    with pytest.raises(DataError, match="leave no room for a context"):
        Windower(letters, max_length=3).windows([at(0, 0)])
    with pytest.raises(DataError, match="question 'x': the tokenizer finds nothing in its context"):
        Windower(letters).windows([Question("q", "\u200b", (), "x")])
    assert Windower(letters).windows([]) == []
