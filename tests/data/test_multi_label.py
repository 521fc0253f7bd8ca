"""Several labels per text: reading, thresholds, scores against scikit-learn."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from ternarybert.data import MultiLabelTask, load_multi_label
from ternarybert.data.multi_label import (
    LabelChoices,
    best_threshold,
    calibration_error,
    holds_label_lists,
    macro_f1,
    mean_average_precision,
    micro_f1,
    model_thresholds,
    probability,
)
from ternarybert.errors import DataError, LabelError

ROWS = [
    {"text": "a film", "labels": ["long", "fun"]},
    {"text": "a plot", "labels": []},
    {"text": "it", "labels": ["dull"]},
]


def write(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def test_lists(tmp_path):
    path = write(tmp_path / "a.jsonl", ROWS)
    assert holds_label_lists(path)
    data = load_multi_label(path, path)
    assert data.task.labels == ("dull", "fun", "long")
    assert data.train["label"][:] == [[0, 1, 1], [0, 0, 0], [1, 0, 0]]


def test_a_column_per_label(tmp_path):
    (tmp_path / "a.csv").write_text("review,fun,long\nfine film,1,0\nno fun,0,1\n", encoding="utf-8")
    for label in ("fun,long", None):
        data = load_multi_label(tmp_path / "a.csv", tmp_path / "a.csv", label=label)
        assert (data.task.text_columns, data.task.labels) == (("review",), ("fun", "long"))
        assert data.train["label"][:] == [[1, 0], [0, 1]]


def test_texts_without_labels(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    data = load_multi_label(tmp_path / "a.txt", labels=["x", "y"])
    assert data.task.labels == ("x", "y")
    assert not data.task.has_references(data.train)


MISTAKES = [
    ({"text": "b", "labels": "['fun']"}, "line 4: 'labels' is the string .* write a list"),
    ({"text": "b", "labels": None}, "line 4: 'labels' is None, not a list"),
    ({"text": "b", "labels": [3]}, "line 4: 3 in 'labels' is not the name of a label"),
    ({"text": "b", "labels": ["fun", "fun"]}, "line 4: 'labels' has a label twice"),
]


@pytest.mark.parametrize(("row", "message"), MISTAKES)
def test_mistakes(tmp_path, row, message):
    with pytest.raises(LabelError, match=message):
        load_multi_label(write(tmp_path / "a.jsonl", [*ROWS, row]))


def test_an_unknown_label(tmp_path):
    train, dev = write(tmp_path / "a.jsonl", ROWS), write(tmp_path / "b.jsonl", [{"text": "c", "labels": ["odd"]}])
    with pytest.raises(LabelError, match=r"b\.jsonl, line 1: unknown label 'odd'"):
        load_multi_label(train, dev)


def test_a_bad_mark(tmp_path):
    (tmp_path / "a.csv").write_text("review,fun,long\nfine film,1,0\nno fun,yes,1\n", encoding="utf-8")
    with pytest.raises(LabelError, match="line 3: 'fun' is 'yes'"):
        load_multi_label(tmp_path / "a.csv", label="fun,long")


def test_a_label_that_never_occurs(tmp_path, caplog):
    path = write(tmp_path / "a.jsonl", ROWS)
    load_multi_label(path, path, labels=["dull", "fun", "long", "odd"])
    assert "1 labels never occur in the first file: 'odd'" in caplog.text


def test_the_model_decides_the_order(tmp_path):
    path = write(tmp_path / "a.jsonl", ROWS)
    data = load_multi_label(path, path)
    thresholds = {"long": 0.1, "fun": 0.2, "dull": 0.3}
    names = {"0": "long", "1": "dull", "2": "fun"}
    fitted = data.task.fit(data, {"id2label": names, "multi_label": {"thresholds": thresholds}})
    assert fitted.task.thresholds == (0.1, 0.3, 0.2)
    assert fitted.train["label"][:] == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]


tables = st.integers(1, 30).flatmap(
    lambda n: st.tuples(
        st.lists(st.lists(st.sampled_from([0.1, 0.2, 0.35, 0.5, 0.8]), min_size=3, max_size=3), min_size=n, max_size=n),
        st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=n, max_size=n),
    )
)


@settings(deadline=None, max_examples=200)
@given(tables)
def test_scores_as_of_scikit_learn(table):
    probabilities, wanted = (np.array(each) for each in table)
    chosen = probabilities >= 0.5
    options = {"zero_division": 0}
    assert micro_f1(chosen, wanted) == pytest.approx(reference.f1_score(wanted, chosen, average="micro", **options))
    assert macro_f1(chosen, wanted) == pytest.approx(reference.f1_score(wanted, chosen, average="macro", **options))
    present = wanted.any(0)
    if present.any():
        expected = reference.average_precision_score(wanted[:, present], probabilities[:, present])
        assert mean_average_precision(probabilities, wanted) == pytest.approx(expected)


@settings(deadline=None, max_examples=200)
@given(tables)
def test_no_threshold_is_better(table):
    probabilities, wanted = np.array(table[0])[:, 0], np.array(table[1])[:, 0]
    found = best_threshold(probabilities, wanted)
    best = micro_f1(probabilities >= found, wanted)
    others = [micro_f1(probabilities >= other, wanted) for other in (*probabilities, 0.0, 0.5)]
    assert best >= max(others) or not wanted.any()


def test_calibration():
    right = np.array([[True], [False], [True], [True]])
    assert calibration_error(np.array([[0.75]] * 4), right) == pytest.approx(0)
    assert calibration_error(np.array([[1.0]] * 4), right) == pytest.approx(0.25)


def test_probabilities_do_not_overflow():
    assert probability(np.array([-1e4, 0.0, 1e4], np.float32)).tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize("value", [[], {"thresholds": {"a": 0.5}}, {"thresholds": {"a": 0.5, "b": 2}}])
def test_bad_thresholds(value):
    with pytest.raises(DataError, match=r"config\.json"):
        model_thresholds({"multi_label": value}, ["a", "b"])


def test_agreement(tmp_path):
    path = write(tmp_path / "a.jsonl", ROWS)
    task, rows = MultiLabelTask("made", ("text",), ("dull", "fun", "long")), load_multi_label(path, path).train
    choices = task.choices(np.array(rows["label"][:]) * 8.0 - 4.0)
    scores = task.scores(rows, choices, choices)
    assert (scores["micro_f1"], scores["agreement"], task.main_metric(scores)) == (100.0, 100.0, "micro_f1")


def test_a_bad_cell_does_not_cost_a_column(tmp_path):
    rows = ["fine film,1,0", "no fun,0,1", "odd,0,x", "long,0,1"]
    (tmp_path / "a.csv").write_text("\n".join(["review,fun,long", *rows]), encoding="utf-8")
    with pytest.raises(LabelError, match="line 4: 'long' is 'x'; a column per label has 0 or 1"):
        load_multi_label(tmp_path / "a.csv")


def test_calibration_by_tenths(tmp_path):
    task = MultiLabelTask("made", ("text",), ("dull", "fun", "long"))
    path = write(tmp_path / "a.jsonl", ROWS)
    rows = load_multi_label(path, path).train
    probabilities = np.array([[0.0, 0.95, 0.92], [0.01, 0.02, 0.6], [1.0, 0.0, 0.0]])
    table = task.calibration(rows, LabelChoices(probabilities, probabilities > 0.5))
    assert [row[0] for row in table] == [5, 1, 3]
    assert [row[2] for row in table] == [0, 0, 1]
    gap = sum(count * abs(mean - share) for count, mean, share in table) / 9
    assert gap == pytest.approx(calibration_error(probabilities, np.array(rows["label"][:], bool)))
    assert task.calibration(rows.remove_columns("label"), LabelChoices(probabilities, probabilities > 0.5)) is None
