"""A table can be read and scored without `datasets`."""

import sys

import numpy as np
import pytest

from ternarybert.data import align_labels, load_table
from ternarybert.data.task import PlainRows


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("text,label\n" + "".join(f"text {i},{'no' if i % 2 else 'yes'}\n" for i in range(20)))
    return path


@pytest.mark.parametrize("part", ["train", "evaluation"])
def test_the_same_rows_with_and_without(table, monkeypatch, part):
    given = {"train": (table, None), "evaluation": (None, table)}[part]
    theirs = align_labels(load_table(*given), {0: "YES", 1: "NO"})
    monkeypatch.setitem(sys.modules, "datasets", None)
    ours = align_labels(load_table(*given), {0: "YES", 1: "NO"})
    assert ours.task == theirs.task
    for mine, other in zip([ours.train, *ours.evals.values()], [theirs.train, *theirs.evals.values()], strict=True):
        if mine is not None:
            assert isinstance(mine, PlainRows)
            assert mine.column_names == other.column_names
            assert len(mine) == len(other)
            for name in mine.column_names:
                assert np.array_equal(mine[name], list(other[name]))
