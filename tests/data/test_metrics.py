"""Our formulas against scikit-learn and scipy, which share no code with them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as oracle

from ternarybert.data import metrics
from ternarybert.errors import DataError

# The first call into scikit-learn or scipy imports much, which says nothing about our speed.
without_deadline = settings(deadline=None)
CLOSE = 1e-9  # both sides compute in double; only the order of additions differs


def pairs_of(values):
    return st.lists(st.tuples(values, values), min_size=1, max_size=60).map(lambda rows: np.array(rows).T)


CLASSES = pairs_of(st.integers(0, 4))
# Few distinct values, so that ties and constant columns are common; far apart, so that no rounding decides a rank.
NUMBERS = pairs_of(st.integers(-20, 20).map(lambda i: i / 4))


@without_deadline
@given(CLASSES)
def test_class_scores_equal_scikit_learn(rows):
    predictions, references = rows
    assert metrics.accuracy(predictions, references) == pytest.approx(oracle.accuracy_score(references, predictions))
    expected = oracle.f1_score(references, predictions, average="macro", zero_division=0.0)
    assert metrics.macro_f1(predictions, references) == pytest.approx(expected, abs=CLOSE)
    counts = oracle.confusion_matrix(references, predictions, labels=range(5))
    assert (metrics.confusion_matrix(predictions, references, 5) == counts).all()


@without_deadline
@given(CLASSES)
def test_matthews_equals_scikit_learn(rows):
    predictions, references = rows
    if len(np.union1d(predictions, references)) == 1:  # scikit-learn warns here
        assert metrics.matthews(predictions, references) == 0.0
    else:
        expected = oracle.matthews_corrcoef(references, predictions)
        assert metrics.matthews(predictions, references) == pytest.approx(expected, abs=CLOSE)


@without_deadline
@given(pairs_of(st.integers(0, 1)), st.integers(0, 1))
def test_binary_f1_equals_scikit_learn(rows, positive):
    predictions, references = rows
    expected = oracle.f1_score(references, predictions, pos_label=positive, zero_division=0.0)
    assert metrics.f1(predictions, references, positive) == pytest.approx(expected, abs=CLOSE)


@without_deadline
@given(NUMBERS)
def test_correlations_equal_scipy(rows):
    x, y = rows
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert metrics.pearson(x, y) == metrics.spearman(x, y) == 0.0
    else:
        assert metrics.pearson(x, y) == pytest.approx(stats.pearsonr(x, y)[0], abs=CLOSE)
        assert metrics.spearman(x, y) == pytest.approx(stats.spearmanr(x, y)[0], abs=CLOSE)
    assert metrics.mse(x, y) == pytest.approx(oracle.mean_squared_error(y, x), abs=CLOSE)


@without_deadline
@given(st.floats(-1e300, 1e300), st.integers(2, 30))
def test_a_constant_prediction_has_no_correlation(value, n):
    # The mean of equal numbers is often not that number: rounding must not turn into a score.
    assert metrics.pearson([value] * n, np.arange(n)) == 0.0


@pytest.mark.parametrize("scale", [1e-200, 1e-3, 1.0, 1e200])
def test_pearson_does_not_depend_on_the_unit(scale):
    x = np.array([1.0, 2.0, 4.0, 7.0])
    assert metrics.pearson(scale * x, x) == pytest.approx(1.0)
    assert metrics.pearson(-scale * x, x) == pytest.approx(-1.0)


def test_scores_are_percent_in_the_order_asked_but_for_the_error():
    scores = metrics.score(("mse", "accuracy", "f1"), [1, 0, 1, 1], [1, 1, 1, 0])
    assert list(scores) == ["mse", "accuracy", "f1"]
    assert scores == {"mse": 0.5, "accuracy": 50.0, "f1": pytest.approx(200 / 3)}


def test_f1_is_about_the_positive_class():
    assert metrics.score(["f1"], [0, 0, 1], [0, 1, 1], positive=0) == {"f1": pytest.approx(200 / 3)}
    assert metrics.f1([0, 0], [0, 0]) == 0.0


def test_agreement_is_the_share_of_equal_answers():
    assert metrics.score(["agreement"], [2, 1, 0, 0], [2, 1, 1, 0]) == {"agreement": 75.0}


def test_an_unknown_metric_is_refused_with_a_suggestion():
    with pytest.raises(DataError, match="unknown metric 'acuracy'; did you mean 'accuracy'"):
        metrics.score(["acuracy"], [1], [1])


@pytest.mark.parametrize(
    ("predictions", "references", "message"),
    [([1, 2], [1], r"shape \(2,\) cannot be scored against \(1,\)"), ([], [], "nothing to score")],
)
def test_what_cannot_be_scored_is_refused(predictions, references, message):
    with pytest.raises(DataError, match=message):
        metrics.accuracy(predictions, references)


def test_a_confusion_matrix_has_a_row_per_reference():
    assert metrics.confusion_matrix([1, 1, 0], [0, 1, 0], 3).tolist() == [[1, 1, 0], [0, 1, 0], [0, 0, 0]]
    with pytest.raises(DataError, match=r"outside 0\.\.1"):
        metrics.confusion_matrix([2], [0], 2)


def test_predictions_come_from_logits():
    assert metrics.predict_from_logits([[0.1, 2.0, -1.0], [3.0, 0.0, 0.0]], regression=False).tolist() == [1, 0]
    assert metrics.predict_from_logits([[0.5], [-1.5]], regression=True).tolist() == [0.5, -1.5]


@pytest.mark.parametrize(
    ("logits", "regression", "message"),
    [
        ([[0.0, 1.0]], True, r"shape \(1, 2\); expected \(examples, 1\)"),
        ([0.0, 1.0], False, r"expected \(examples, classes\)"),
        ([[0.0, 1.0], [np.nan, 0.0]], False, "logits of example 1 are not finite"),
    ],
)
def test_logits_that_mean_nothing_are_refused(logits, regression, message):
    with pytest.raises(DataError, match=message):
        metrics.predict_from_logits(logits, regression)
