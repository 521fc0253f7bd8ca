"""Logits to text: against a brute force over all spans, and, with logits of a model that knows everything, back to the
gold answers of SQuAD 1.1 dev."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternarybert.data.squad.metric import normalize, score_squad
from ternarybert.data.squad.questions import GoldAnswer, Question
from ternarybert.data.squad.spans import answer_questions
from ternarybert.data.squad.windows import Windower
from ternarybert.errors import DataError

from .squad_made import bytelevel, dev_questions, made_questions, made_tokenizer, perfect_logits, wordpiece

EXOTIC = {
    "chinese": ("首都是哪里?", "中国的首都是北京,人口两千多万。", "北京"),
    "arabic": ("ما هي العاصمة؟", "عاصمة مصر هي القاهرة وهي مدينة كبيرة.", "القاهرة"),
    "emoji": ("Which fruit?", "👩‍👩‍👧 likes 🍎🍏 and tea 🫖.", "🍎🍏 and"),
    "accents": ("Où?", "Le café Zoë est à Besançon, près d'ici.", "café Zoë"),
    "german": ("Wo?", "Die Straße heißt Königsallee.", "Königsallee"),
    "hindi": ("कहाँ?", "दिल्ली भारत की राजधानी है।", "भारत की"),
    "combining": ("?", "Cafe\u0301 no\u0308el is he\u0301re", "no\u0308el"),
    # Marks at the end, which a tokenizer that strips accents drops.
    "mark at the end": ("?", "Le cafe\u0301 est bon", "cafe\u0301"),
    "thai": ("อะไร", "หนัง ดี มาก", "ดี"),
    "arabic vowels": ("كيف؟", "الفيلم جَيّدٌ جدا", "جَيّدٌ"),
}


def perfect(questions, tokenizer, peak=10.0, noise=0.0, threshold=None, **sizes):
    windows = Windower(tokenizer, **sizes).windows(questions)
    return answer_questions(windows, *perfect_logits(windows, peak, noise), null_threshold=threshold)


def brute_force(windows, starts, ends, n_best, max_answer):
    """All valid spans of one question, best first, and the score of there being no answer."""
    found = []
    for window, start, end in zip(windows, starts, ends, strict=True):
        for first in range(*window.owned):
            for last in range(first, min(first + max_answer, window.first + window.count)):
                at = window.context_at - window.first
                text = window.question.context[window.tokens.starts[first] : window.tokens.ends[last]]
                found.append((-(start[at + first] + end[at + last]), first, last, text))
    null = min(start[0] + end[0] for start, end in zip(starts, ends, strict=True))
    return sorted(found)[:n_best], null


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 10_000), st.integers(12, 40), st.integers(1, 12), st.integers(1, 8), st.integers(1, 6), st.booleans()
)
def test_the_best_spans_are_those_of_a_brute_force(seed, max_length, stride, n_best, max_answer, ties):
    questions = made_questions(4, seed, words=(1, 25))
    windows = Windower(made_tokenizer(), max_length=max_length, stride=stride, max_question=4).windows(questions)
    rng = np.random.default_rng(seed)
    starts, ends = (
        [(rng.integers(0, 3, len(w)) if ties else rng.normal(size=len(w))).astype(float) for w in windows]
        for _ in range(2)
    )
    predictions = answer_questions(windows, starts, ends, n_best=n_best, max_answer=max_answer, null_threshold=0.0)
    assert [p.id for p in predictions] == [q.id for q in questions]
    for row, prediction in enumerate(predictions):
        of = [i for i, window in enumerate(windows) if window.row == row]
        spans, null = brute_force(*([side[i] for i in of] for side in (windows, starts, ends)), n_best, max_answer)
        assert [span.text for span in prediction.spans] == list(dict.fromkeys(text for *_, text in spans))
        assert prediction.spans[0].logit == -spans[0][0]
        assert prediction.null_difference == pytest.approx(null + spans[0][0])
        assert (prediction.answer is None) == (prediction.null_difference > 0)
        for span in prediction.spans:
            assert questions[row].context[span.start : span.end] == span.text


def test_all_questions_are_recovered_from_perfect_logits():
    questions = dev_questions()
    tokenizer = wordpiece([text for q in questions for text in (q.context, q.question)])
    windows = Windower(tokenizer).windows(questions)
    assert len(windows) > len(questions)
    predictions = answer_questions(windows, *perfect_logits(windows))
    assert score_squad(questions, [prediction.text for prediction in predictions])["exact"] >= 99.5
    missed = {}
    for window in windows:
        if normalize(predictions[window.row].text) != normalize(window.question.answers[0].text):
            missed.setdefault(window.row, reason(window, predictions[window.row]))
    assert set(missed.values()) <= {"longer than 30 tokens", "begins or ends inside a token"}
    assert len(missed) <= 0.005 * len(questions), missed


def reason(window, prediction):
    """Why an answer cannot be recovered, told from the tokens alone."""
    gold, tokens = window.question.answers[0], window.tokens
    stop = gold.start + len(gold.text)
    touched = np.flatnonzero((tokens.ends > gold.start) & (tokens.starts < stop))
    if len(touched) > 30:
        return "longer than 30 tokens"
    if tokens.starts[touched[0]] < gold.start or tokens.ends[touched[-1]] > stop:
        return "begins or ends inside a token"
    return f"not explained: '{gold.text}', got '{prediction.text}'"


@pytest.mark.parametrize("name", EXOTIC)
@pytest.mark.parametrize("make", [wordpiece, bytelevel])
def test_any_script(name, make):
    asked, context, text = EXOTIC[name]
    question = Question(asked, context, (GoldAnswer(text, context.index(text)),))
    (prediction,) = perfect([question], make([asked, context]))
    assert prediction.text == text
    assert prediction.answer.start == context.index(text)


def test_an_answer_anywhere_in_a_text_of_ten_thousand_words():
    (long,) = made_questions(1, words=(10_000, 10_000))
    places = [0, len(long.context) - len(long.context.split()[-1])]  # the very first word and the very last
    places += [long.context.index(" ", i) + 1 for i in range(500, len(long.context) - 500, 3001)]
    golds = [GoldAnswer(long.context[i:].split()[0], i) for i in places]
    questions = [Question("Where?", long.context, (gold,), str(i)) for i, gold in enumerate(golds)]
    windows = Windower(made_tokenizer()).windows(questions[:1])
    assert len(windows) > 50
    predictions = perfect(questions, made_tokenizer())
    assert [(p.text, p.answer.start) for p in predictions] == [(gold.text, gold.start) for gold in golds]


def test_the_whole_context_and_an_empty_question():
    for context in ("word", "(a) b.", "  two words "):
        text = context.strip()
        (prediction,) = perfect([Question("", context, (GoldAnswer(text, context.index(text)),))], made_tokenizer())
        assert (prediction.text, prediction.answer.start) == (text, context.index(text))


def test_padding_batch_and_order_change_nothing():
    questions = made_questions(30)
    windows = Windower(made_tokenizer()).windows(questions)
    starts, ends = perfect_logits(windows, noise=5.0)
    padded = answer_questions(windows, starts, ends)
    ragged = answer_questions(
        windows, *([row[: len(w)] for row, w in zip(side, windows, strict=True)] for side in (starts, ends))
    )
    assert padded == ragged
    for question, prediction in zip(questions, padded, strict=True):
        of = [i for i, window in enumerate(windows) if window.question is question]
        assert answer_questions([windows[i] for i in of], starts[of], ends[of]) == [prediction]
    back = answer_questions(windows[::-1], starts[::-1], ends[::-1])
    assert back == padded


def test_scores_are_shares():
    questions = made_questions(5, words=(20, 20))
    windows = Windower(made_tokenizer()).windows(questions)
    logits = perfect_logits(windows, peak=2.0, noise=1.0)
    for always, maybe in zip(
        answer_questions(windows, *logits), answer_questions(windows, *logits, null_threshold=-99.0), strict=True
    ):
        assert 1 < len(always.spans) <= 20
        assert sum(span.score for span in always.spans) == pytest.approx(1.0)
        assert [s.logit for s in always.spans] == sorted((s.logit for s in always.spans), reverse=True)
        assert (always.answer, always.score) == (always.spans[0], always.spans[0].score)
        # With a threshold, "no answer" has its share; here it is also what is said.
        assert (maybe.answer, maybe.text, maybe.best_text) == (None, "", always.text)
        assert sum(span.score for span in maybe.spans) + maybe.score == pytest.approx(1.0)
        ratio = np.log(maybe.score / maybe.spans[0].score)
        assert ratio == pytest.approx(maybe.null_difference)


def test_a_broken_model_that_says_the_same_everywhere():
    windows = Windower(made_tokenizer()).windows(made_questions(70))
    flat = np.zeros((len(windows), 384))
    for prediction in answer_questions(windows, flat, flat):
        assert prediction.spans[0].start == 0
        assert len(prediction.spans) <= 20


def test_logits_that_mean_nothing_are_refused():
    windows = Windower(made_tokenizer()).windows(made_questions(2, words=(10, 10)))
    good = np.zeros((2, 384))
    bad = good.copy()
    bad[1, 5] = np.nan
    with pytest.raises(DataError, match="the start logits of question '1' are not finite"):
        answer_questions(windows, bad, good)
    with pytest.raises(DataError, match="the end logits of question '1' are not finite"):
        answer_questions(windows, good, bad)
    with pytest.raises(DataError, match="1 rows of start logits for 2 windows"):
        answer_questions(windows, good[:1], good)
    with pytest.raises(DataError, match=r"end logits of shape \(5,\) for a window of \d+ tokens"):
        answer_questions(windows, good, good[:, :5])
    with pytest.raises(DataError, match="start logits of shape"):
        answer_questions(windows, good[:, :, None], good)
    with pytest.raises(DataError, match="both must be at least 1"):
        answer_questions(windows, good, good, n_best=0)
    assert answer_questions([], [], []) == []
