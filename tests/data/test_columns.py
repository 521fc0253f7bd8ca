from pathlib import Path

import pytest

from ternarybert.data.readers import Table
from ternarybert.data.table import Columns, choose_columns
from ternarybert.errors import DataError


def table(name="train.csv", named=True, **columns):
    rows = len(next(iter(columns.values())))
    return Table(Path(name), columns, range(1, rows + 1), named=named)


def choose(*tables, text=None, text_pair=None, label=None):
    return choose_columns(tables, text, text_pair, label)


@pytest.mark.parametrize(
    ("columns", "texts", "label"),
    [
        ({"id": ["x1", "x2"], "Text": ["a", "b"], "Label": ["0", "1"]}, ("Text",), "Label"),
        ({"headline": ["a", "b"], "words": ["12", "3"], "class": ["x", "y"]}, ("headline",), "class"),
        ({"headline": ["a", None], "n": [1, 2]}, ("headline",), None),
        ({"premise": ["a"], "hypothesis": ["b"], "label": ["0"]}, ("premise", "hypothesis"), "label"),
        ({"review": ["a"], "other": ["b"], "score": ["0.5"], "label": ["1"]}, ("review",), "label"),
    ],
)
def test_obvious_columns_are_found(columns, texts, label):
    assert choose(table(**columns)) == Columns(texts, label)


def test_named_columns_win():
    columns = {"text": ["a"], "title": ["b"], "label": ["0"], "mood": ["x"]}
    assert choose(table(**columns), text="title", label="mood") == Columns(("title",), "mood")
    assert choose(table(**columns), text_pair="title") == Columns(("text", "title"), "label")
    assert choose(table(**columns), text="label") == Columns(("label",), None)


def test_an_unclear_text_column_is_asked_for():
    with pytest.raises(DataError, match=r"which column of train\.csv is the text\? .*columns: title, abstract, year"):
        choose(table(title=["a"], abstract=["b"], year=["1999"]))
    with pytest.raises(DataError, match="which column"):
        choose(table(a=["1", ""], b=["2", "3"]))


@pytest.mark.parametrize("role", ["text", "text_pair", "label"])
def test_a_misspelled_column_gets_a_suggestion(role):
    with pytest.raises(DataError, match=r"train\.csv has no column 'sentnce'; did you mean 'sentence'"):
        choose(table(sentence=["a"], kind=["x"]), **{role: "sentnce"})


def test_a_column_has_one_role():
    with pytest.raises(DataError, match="named twice"):
        choose(table(a=["x"], b=["y"]), text="a", text_pair="a")
    with pytest.raises(DataError, match="named twice"):
        choose(table(a=["x"], b=["y"]), text="a", label="a")


def test_both_tables_need_the_texts():
    with pytest.raises(DataError, match=r"dev\.csv has no column 'text', train\.csv has; did you mean 'texts'"):
        choose(table(text=["a"]), table("dev.csv", texts=["a"]))


def test_labels_in_training_are_needed_in_evaluation():
    with pytest.raises(DataError, match=r"dev\.csv has no column 'label', train\.csv has"):
        choose(table(text=["a"], label=["0"]), table("dev.csv", text=["a"]))


@pytest.mark.parametrize("label", [None, "label"])
def test_unlabeled_training_beside_labeled_evaluation(label):
    dev = table("dev.csv", text=["a"], label=["0"])
    assert choose(table(text=["a"]), dev, label=label) == Columns(("text",), "label")


def test_a_text_file_takes_the_names_of_the_table_beside_it():
    lines = table("train.txt", named=False, text=["a"])
    assert choose(lines) == Columns(("text",), None)
    assert choose(lines, table("dev.csv", review=["a"], label=["0"])) == Columns(("review",), "label")
    with pytest.raises(DataError, match=r"train\.txt holds one text a line; pairs need"):
        choose(lines, table("dev.csv", premise=["a"], hypothesis=["b"]))
    with pytest.raises(DataError, match="holds one text a line"):
        choose(lines, text_pair="b")
    with pytest.raises(DataError, match=r"train\.txt holds one text a line and has no column 'review'"):
        choose(lines, text="review")  # all rows would be without a text
