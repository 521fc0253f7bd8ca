"""Our EM and F1 against cases worked out by hand, and against a second implementation that shares no idea with ours:
it walks over characters where ours has an expression, and strikes words off a list where ours counts them."""

import random
from functools import cache
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.text import SQuAD

from ternarybert.data.squad.metric import normalize, score_squad, score_squad_v2
from ternarybert.data.squad.questions import GoldAnswer, Question
from ternarybert.errors import DataError

from .squad_made import dev_questions

CLOSE = 1e-9


def asked(*golds, number=0):
    context = " ".join(golds) or "nothing"
    return Question("Q?", context, tuple(GoldAnswer(gold, context.index(gold)) for gold in golds), str(number))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("The  Denver Broncos!", "denver broncos"),
        ("a an the", ""),
        ("theatre another area", "theatre another area"),
        ("U.S.A.'s", "usas"),
        ("A–Z of an é", "–z of é"),
        ("the\tend\n", "end"),
        ("5,000 %", "5000"),
        ("well-known", "wellknown"),
        ("THE—THE", "—"),
        ("東京", "東京"),
    ],
)
def test_what_counts_of_a_text(text, wanted):
    assert normalize(text) == wanted == plain(text)


@pytest.mark.parametrize(
    ("text", "golds", "exact", "f1"),
    [
        ("the Broncos", ["Broncos"], 100, 100),
        ("Denver Broncos", ["Broncos", "Denver"], 0, 100 * 2 / 3),
        ("Denver Broncos", ["Carolina", "the Denver Broncos team"], 0, 80),
        ("Broncos Broncos", ["Broncos"], 0, 100 * 2 / 3),  # a word counts as often as it is there
        ("Broncos Denver", ["Denver Broncos"], 0, 100),
        ("", ["Broncos"], 0, 0),
        ("Panthers", ["Broncos"], 0, 0),
        ("the!", ["The"], 100, 0),  # v1.1: equal, but without a word in common
    ],
)
def test_version_1(text, golds, exact, f1):
    assert score_squad([asked(*golds)], [text]) == pytest.approx({"exact": exact, "f1": f1, "total": 1})


@pytest.mark.parametrize(
    ("text", "golds", "exact", "f1"),
    [
        ("", [], 100, 100),
        ("the", [], 100, 100),  # nothing is left of it
        ("Broncos", [], 0, 0),
        ("", ["Broncos"], 0, 0),
        ("", ["The"], 100, 100),  # v2.0: a gold answer of which nothing is left is none
        ("", ["The", "Broncos"], 0, 0),
        ("Denver Broncos", ["Broncos"], 0, 100 * 2 / 3),
    ],
)
def test_version_2(text, golds, exact, f1):
    scores = score_squad_v2([asked(*golds)], [text])
    prefix = "HasAns" if golds else "NoAns"
    wanted = {"exact": exact, "f1": f1, "total": 1}
    assert scores == pytest.approx(wanted | {f"{prefix}_{name}": value for name, value in wanted.items()})


def test_a_threshold_empties_answers_and_the_best_one_is_found():
    questions = [asked("a b c", number=0), asked(number=1), asked("d", number=2), asked(number=3)]
    scores = score_squad_v2(questions, ["b", "x", "d", "y"], [-3.0, -1.0, 1.0, 2.0], threshold=0.0)
    # Answered are the first two: one word of two (F1 2/3) and one that should have been left alone.
    wanted = {"exact": 25.0, "f1": 100 * (2 / 3 + 1) / 4, "total": 4}
    wanted |= {"HasAns_exact": 0.0, "HasAns_f1": 100 / 3, "HasAns_total": 2}
    wanted |= {"NoAns_exact": 50.0, "NoAns_f1": 50.0, "NoAns_total": 2}
    wanted |= {"best_exact": 50.0, "best_exact_thresh": -4.0}  # nothing beats silence
    wanted |= {"best_f1": 100 * (2 / 3 + 2) / 4, "best_f1_thresh": -2.0}
    assert scores == pytest.approx(wanted)


@cache
def plain(text):
    """Normalize by walking: runs of letters and digits that are an article go, then ASCII punctuation has gone."""
    marks = {chr(code) for code in (*range(33, 48), *range(58, 65), *range(91, 97), *range(123, 127))}
    kept = [character for character in text.lower() if character not in marks]
    runs = ["".join(run) for _, run in groupby(kept, key=lambda character: character.isalnum() or character == "_")]
    return " ".join("".join(" " if run in ("a", "an", "the") else run for run in runs).split())


def plain_scores(text, golds, version):
    """EM and F1 of one question, the slow way."""
    if version == 2:
        golds = [gold for gold in golds if plain(gold)] or [""]
    return max(plain(text) == plain(gold) for gold in golds), max(plain_f1(text, gold, version) for gold in golds)


def plain_f1(text, gold, version):
    said, wanted = plain(text).split(), plain(gold).split()
    if version == 2 and not (said and wanted):
        return said == wanted
    left, hits = list(wanted), 0
    for word in said:
        if word in left:
            left.remove(word)
            hits += 1
    return 2 * hits / (len(said) + len(wanted)) if hits else 0


def noisy_texts(questions, seed=0):
    """Answers right, nearly right and wrong in many ways."""
    rng = random.Random(seed)

    def spoil(question):
        answer = rng.choice(question.answers).text
        words, at = answer.split(), rng.randrange(len(question.context))
        ways = (
            answer,
            answer.swapcase(),
            f"The {answer}!",
            f"“{answer}” an",
            " ".join(words[:-1]),
            " ".join([*words, "of", "a", words[0]]),
            " ".join(rng.sample(words, len(words))),
            rng.choice(rng.choice(questions).answers).text,
            question.context[at : at + 40],
            "",
        )
        return rng.choice(ways)

    return [spoil(question) for question in questions]


def test_all_questions_with_noisy_answers_version_1():
    questions = dev_questions()
    texts = noisy_texts(questions)
    pairs = [plain_scores(text, [a.text for a in q.answers], 1) for q, text in zip(questions, texts, strict=True)]
    exact, f1 = 100 * np.mean(pairs, axis=0)
    assert 20 < exact < f1 < 80  # noise of all kinds is in it
    assert score_squad(questions, texts) == pytest.approx({"exact": exact, "f1": f1, "total": len(questions)})


def test_all_questions_with_noisy_answers_as_torchmetrics_scores_them():
    """It takes an answer of which nothing is left after normalizing for equal to such a gold one, as in v2.0."""
    said = [(q, text) for q, text in zip(dev_questions(), noisy_texts(dev_questions()), strict=True)]
    said = [(q, text) for q, text in said if all(normalize(a.text) for a in q.answers)]
    metric = SQuAD()
    metric.update(
        [{"prediction_text": text, "id": str(i)} for i, (_, text) in enumerate(said)],
        [
            {"id": str(i), "answers": {"text": [a.text for a in q.answers], "answer_start": [0 for _ in q.answers]}}
            for i, (q, _) in enumerate(said)
        ],
    )
    theirs = {name: float(value) for name, value in metric.compute().items()}
    ours = score_squad([q for q, _ in said], [text for _, text in said])
    assert len(said) >= len(dev_questions()) - 3
    assert ours["exact"] == pytest.approx(theirs["exact_match"], rel=1e-6)  # theirs is in float32
    assert ours["f1"] == pytest.approx(theirs["f1"], rel=1e-5)


def test_all_questions_with_noisy_answers_version_2():
    rng = np.random.default_rng(0)
    questions = [
        Question(q.question, q.context, q.answers if answerable else (), q.id)
        for q, answerable in zip(dev_questions(), rng.random(len(dev_questions())) < 0.6, strict=True)
    ]
    texts = noisy_texts(dev_questions())
    answerable = np.array([bool(q.answers) for q in questions])
    differences = rng.normal(np.where(answerable, -1.0, 1.0), 2.0)
    pairs = [plain_scores(text, [a.text for a in q.answers], 2) for q, text in zip(questions, texts, strict=True)]
    spoken, silent = 100 * np.array(pairs, float), 100.0 * ~answerable[:, None]  # (questions, 2), (questions, 1)
    said = np.where(differences[:, None] > 0.5, silent, spoken)
    wanted = {}
    for prefix, part in (("", answerable | True), ("HasAns_", answerable), ("NoAns_", ~answerable)):
        exact, f1 = said[part].mean(axis=0)
        wanted |= {f"{prefix}exact": exact, f"{prefix}f1": f1, f"{prefix}total": part.sum()}
    # Every threshold there is, one by one. Here the official script takes any text for a wrong answer, even "the".
    spoken[~answerable & (np.array(texts) != "")] = 0
    scores = score_squad_v2(questions, texts, differences, threshold=0.5)
    for column, name in enumerate(("exact", "f1")):

        def mean(threshold, column=column):
            return np.where(differences > threshold, silent[:, 0], spoken[:, column]).mean()

        wanted[f"best_{name}"] = max(mean(threshold) for threshold in differences)
        assert mean(scores.pop(f"best_{name}_thresh")) == pytest.approx(wanted[f"best_{name}"], abs=CLOSE)
    assert scores == pytest.approx(wanted, abs=CLOSE)


CASES = st.lists(
    st.tuples(st.sampled_from(["b", "b c", "x", ""]), st.booleans(), st.sampled_from([-1.0, 0.0, 0.5, 2.0])),
    min_size=1,
    max_size=12,
)


@settings(deadline=None)  # a busy machine is no error
@given(CASES)
def test_the_best_threshold_keeps_its_promise(cases):
    questions = [asked(*(["b"] if answerable else []), number=i) for i, (_, answerable, _) in enumerate(cases)]
    texts, differences = [text for text, *_ in cases], [difference for *_, difference in cases]
    scores = score_squad_v2(questions, texts, differences)
    for name in ("exact", "f1"):
        again = score_squad_v2(questions, texts, differences, threshold=scores[f"best_{name}_thresh"])
        assert again[name] == pytest.approx(scores[f"best_{name}"])
        for threshold in (-2.0, *differences):
            other = score_squad_v2(questions, texts, differences, threshold=threshold)
            assert other[name] <= scores[f"best_{name}"] + CLOSE


def test_the_best_threshold_lies_between_two_differences():
    """An engine whose last digits differ must not tip a question over."""
    questions = [asked("b"), asked(number=1), asked("b", number=2)]
    scores = score_squad_v2(questions, ["b", "x", "x"], [-1.0, 3.0, 4.0])
    assert scores["best_f1_thresh"] == 1.0
    for differences, wanted in (
        ([-1.0, np.inf, np.inf], 0.0),
        ([-np.inf, 3.0, 4.0], 2.0),
        ([-np.inf] + 2 * [np.inf], 0.0),
    ):
        assert score_squad_v2(questions, ["b", "x", "x"], differences)["best_f1_thresh"] == wanted
    near = np.nextafter(1.0, 2.0)
    assert score_squad_v2(questions, ["b", "x", "x"], [1.0, near, near])["best_f1_thresh"] == 1.0


def test_what_cannot_be_scored():
    question = asked("b")
    with pytest.raises(DataError, match="2 predictions for 1 questions"):
        score_squad([question], ["b", "c"])
    with pytest.raises(DataError, match="0 predictions for 0 questions"):
        score_squad_v2([], [])
    with pytest.raises(DataError, match=r"question '0' has no answer; that is SQuAD 2\.0"):
        score_squad([asked()], ["b"])
    with pytest.raises(DataError, match="question 'x' is not labeled"):
        score_squad_v2([Question("Q?", "c", None, "x")], ["b"])
    with pytest.raises(DataError, match=r"null differences of shape \(2,\) for 1 questions"):
        score_squad_v2([question], ["b"], [0.0, 1.0])
    with pytest.raises(DataError, match="null difference of question '0' is not a number"):
        score_squad_v2([question], ["b"], [float("nan")])
