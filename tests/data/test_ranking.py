"""Rankings are scored as by trec_eval and scikit-learn."""

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from ternarybert.data.ranking import average_precision, ndcg, rank_documents, recall, reciprocal_rank
from ternarybert.errors import DataError


def theirs(run, relevant, measures):
    made = pytrec_eval.RelevanceEvaluator({"q": {str(d): int(g) for d, g in relevant.items()}}, measures)
    scores = {str(doc): float(len(run) - rank) for rank, doc in enumerate(run)}
    return made.evaluate({"q": scores})["q"]


@settings(max_examples=60, deadline=None)
@given(st.permutations(range(30)), st.dictionaries(st.integers(0, 40), st.integers(1, 3), min_size=1, max_size=12))
def test_measures_equal_trec_eval(run, relevant):
    expected = theirs(run, relevant, {"ndcg_cut.10", "recall.20", "recip_rank"})
    assert ndcg(run, relevant, 10) == pytest.approx(expected["ndcg_cut_10"])
    assert recall(run, relevant, 20) == pytest.approx(expected["recall_20"])
    assert reciprocal_rank(run, relevant, 30) == pytest.approx(expected["recip_rank"])


def test_by_hand():
    assert ndcg([3, 1, 2], {1: 1.0}, 10) == pytest.approx(1 / np.log2(3))
    assert reciprocal_rank([3, 1, 2], {1: 1.0}, 1) == 0.0 and reciprocal_rank([3, 1, 2], {1: 1.0}, 2) == 0.5
    assert recall([3, 1], {1: 1.0, 7: 2.0}, 100) == 0.5
    assert ndcg([1], {}) == recall([1], {}) == reciprocal_rank([1], {}) == 0.0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 1)), min_size=1, max_size=40))
def test_average_precision_equals_scikit_learn(pairs):
    scores, labels = np.array([s for s, _ in pairs]) / 7, [label for _, label in pairs]
    if not any(labels):
        with pytest.raises(DataError, match="1"):
            average_precision(scores, labels)
        return
    assert average_precision(scores, labels) == pytest.approx(average_precision_score(labels, scores))


def test_labels_of_pairs_are_0_or_1():
    with pytest.raises(DataError, match="3"):
        average_precision([0.1, 0.2], [1, 3])
    with pytest.raises(DataError, match=r"\(2,\).*\(1,\)"):
        average_precision([0.1, 0.2], [1])


@pytest.mark.parametrize("k", [1, 5, 40, 100])
def test_the_nearest_documents_are_found(k):
    numbers = np.random.default_rng(0)
    queries, documents = numbers.integers(-3, 4, (7, 6)), numbers.integers(-3, 4, (40, 6))  # small numbers: many ties
    for query, found in zip(queries, rank_documents(queries, documents, k), strict=True):
        scores = documents @ query
        assert found == sorted(range(40), key=lambda doc: (-scores[doc], doc))[:k]
