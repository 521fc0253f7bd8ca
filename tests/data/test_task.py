import sys
from dataclasses import FrozenInstanceError

import pytest

from ternarybert.data import ClassificationTask
from ternarybert.data.task import import_datasets, make_dataset
from ternarybert.errors import MissingExtraError

PAIRS = ClassificationTask("t", ("a", "b"), "label", ("no", "yes"), ("accuracy", "f1"))


def test_a_task_says_what_a_model_needs():
    assert PAIRS.pair
    assert PAIRS.num_labels == 2
    assert ClassificationTask("t", ("a",), "y", None, ("mse",), regression=True).num_labels == 1
    assert ClassificationTask("t", ("a",), None, None, ("agreement",)).num_labels is None


def test_a_task_is_a_value():
    with pytest.raises(FrozenInstanceError):
        PAIRS.epochs = 5


def test_a_task_scores_by_its_metrics():
    assert PAIRS.score([1, 0], [1, 1]) == {"accuracy": 50.0, "f1": pytest.approx(200 / 3)}


def test_rows_have_the_canonical_columns():
    assert make_dataset([["x"]], None).column_names == ["text"]
    assert make_dataset([["x"], ["y"]], [1])[0] == {"text": "x", "text_pair": "y", "label": 1}


def test_a_missing_library_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'ternarybert\[train\]'"):
        import_datasets()


def test_without_the_library_rows_are_plain_columns(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    rows = make_dataset([["x", "y"]], None)
    assert list(rows["text"]) == ["x", "y"]
    assert len(rows) == 2
