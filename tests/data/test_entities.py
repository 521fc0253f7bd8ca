"""The figures of entities against those of seqeval itself."""

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from seqeval.metrics import classification_report
from seqeval.scheme import IOB2, IOBES

from ternarybert.data.entities import (
    count_entities,
    entities,
    gathered,
    in_all,
    scheme_of,
    spread,
    strict_entities,
    word_counts,
)

KINDS = ("person", "creative-work", "x")
SCHEMES = {"BIO": IOB2, "BIOES": IOBES}


def sequences(scheme: str):
    """Pairs of sentences with any tags of a scheme, in any order: most of them follow no rule."""
    tags = ["O", *(f"{prefix}-{kind}" for prefix in ("BI" if scheme == "BIO" else "BIES") for kind in KINDS)]
    words = st.lists(st.tuples(st.sampled_from(tags), st.sampled_from(tags)), min_size=1, max_size=12)
    return st.lists(words, min_size=1, max_size=5)


def reference(predicted, wanted, scheme, strict):
    options = {"mode": "strict", "scheme": SCHEMES[scheme]} if strict else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return classification_report(wanted, predicted, output_dict=True, zero_division=0, **options)


def compare(predicted, wanted, scheme, strict):
    counts = count_entities(predicted, wanted, scheme, strict=strict)
    if not counts:
        return  # seqeval has nothing to report then, and raises
    report = reference(predicted, wanted, scheme, strict)
    ours = {kind: (c.precision, c.recall, c.f1, c.wanted) for kind, c in counts.items()}
    total = in_all(counts)
    ours["micro avg"] = (total.precision, total.recall, total.f1, total.wanted)
    assert set(report) - {"macro avg", "weighted avg"} == set(ours)
    for name, values in ours.items():
        theirs = report[name]
        wanted_values = [theirs["precision"], theirs["recall"], theirs["f1-score"], theirs["support"]]
        assert list(values) == pytest.approx(wanted_values, abs=1e-12)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
def test_as_seqeval_on_made_tags(scheme, strict):
    @settings(max_examples=2500, deadline=None, database=None)
    @given(sequences(scheme))
    def check(pairs):
        predicted = [[one for one, _ in sentence] for sentence in pairs]
        wanted = [[other for _, other in sentence] for sentence in pairs]
        compare(predicted, wanted, scheme, strict)

    check()


def test_two_readings():
    tags = ["I-x", "O", "B-x", "I-x", "I-person", "B-x"]
    assert [tuple(one) for one in entities(tags)] == [("x", 0, 0), ("x", 2, 3), ("person", 4, 4), ("x", 5, 5)]
    assert [tuple(one) for one in strict_entities(tags, "BIO")] == [("x", 2, 3), ("x", 5, 5)]


@given(st.sampled_from(["O", "NOUN", "B-x", "I-x", "E-x", "S-x"]), st.integers(1, 6))
def test_parts_of_a_word_give_its_tag_again(tag, parts):
    assert gathered(spread(tag, parts)) == tag


@given(st.lists(st.tuples(st.sampled_from(["O", *(f"{p}-{k}" for p in "BIES" for k in KINDS)]), st.integers(1, 3))))
def test_entities_of_parts_cover_the_same_words(words):
    """Tags that follow BIOES, spread over the parts of words: the same entities, in parts."""
    tags = [tag for tag, _ in words]
    begins = [sum(parts for _, parts in words[:i]) for i in range(len(words) + 1)]
    if strict_entities(tags, "BIOES") != entities(tags):
        return
    inside = {i for one in entities(tags) for i in range(one.first, one.last + 1)}
    if any(tag != "O" and i not in inside for i, tag in enumerate(tags)):
        return
    spread_tags = [part for tag, parts in words for part in spread(tag, parts)]
    expected = [(one.kind, begins[one.first], begins[one.last + 1] - 1) for one in entities(tags)]
    assert [tuple(one) for one in strict_entities(spread_tags, "BIOES")] == expected


def test_an_unfinished_entity_of_bioes():
    tags = ["B-x", "I-x", "O", "S-x", "B-x", "E-x"]
    assert [tuple(one) for one in strict_entities(tags, "BIOES")] == [("x", 3, 3), ("x", 4, 5)]


@pytest.mark.parametrize(
    ("tags", "scheme"),
    [(["O", "B-x", "I-x"], "BIO"), (["O", "S-x", "I-x"], "BIOES"), (["NOUN", "-LRB-", "O"], "plain"), ([], "plain")],
)
def test_schemes(tags, scheme):
    assert scheme_of(tags) == scheme


def test_plain_tags_count_by_word():
    counts = word_counts([["A", "B", "A"]], [["A", "A", "A"]])
    assert counts["A"] == (3, 2, 2)
    assert counts["B"].f1 == 0.0
