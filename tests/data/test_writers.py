"""What is written is read again, whatever is in the fields."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ternarybert.data.readers import open_rows, read_plain_tsv, read_table
from ternarybert.data.writers import (
    ParquetAnswerWriter,
    TableFormat,
    answer_writer,
    format_by_suffix,
    matching_format,
    write_table,
)
from ternarybert.errors import DataError, OptionError
from ternarybert.storage import ResumableFile

ODD = ["plain", 'a "quoted" word', "comma, semicolon; tab\t", "two\nlines", "a lone \r return", "\r\n", " é ", '"', "0"]


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".json"])
def test_a_table_is_read_again(tmp_path, suffix):
    path, columns = tmp_path / f"t{suffix}", {"text": ODD, "label": [str(i) for i in range(len(ODD))]}
    write_table(path, columns)
    assert read_table(path).columns == columns
    assert path.read_bytes().endswith(b"\n")


FIELD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
@given(st.lists(st.tuples(FIELD.filter(bool), FIELD), min_size=1, max_size=6))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_text_is_read_again(tmp_path, suffix, rows):
    first, second = (list(column) for column in zip(*rows, strict=True))
    write_table(tmp_path / f"t{suffix}", {"a": [f"x{text}" for text in first], "b": second})
    table = read_table(tmp_path / f"t{suffix}")
    assert table.columns == {"a": [f"x{text}" for text in first], "b": second}


def test_values_that_are_not_texts(tmp_path):
    row = {"none": None, "number": 0.5, "list": ["a", {"b": 1}], "truth": False}
    write_table(tmp_path / "t.csv", {name: [value] for name, value in row.items()})
    assert (tmp_path / "t.csv").read_text() == 'none,number,list,truth\n,0.5,"[""a"", {""b"": 1}]",False\n'
    write_table(tmp_path / "t.jsonl", {name: [value] for name, value in row.items()})
    assert json.loads((tmp_path / "t.jsonl").read_text()) == row


def test_what_a_format_cannot_hold_is_refused(tmp_path):
    with pytest.raises(DataError, match="label"):
        write_table(tmp_path / "t.txt", {"text": ["a"], "label": ["1"]})
    for break_ in ("\n", "\r"):
        with pytest.raises(DataError, match="row 2 of 'text'"):
            write_table(tmp_path / "t.txt", {"text": ["a", f"b{break_}c"]})
    with pytest.raises(DataError, match="row 1 of 'text'"):
        TableFormat("plain", "\t").check({"text": ["a\tb"]}, tmp_path / "t.tsv")
    with pytest.raises(DataError, match=r"'\.xls'"):
        format_by_suffix(tmp_path / "t.xls")
    assert list(tmp_path.iterdir()) == []


def test_a_format_like_the_inputs(tmp_path):
    form = TableFormat("csv", ";")
    assert matching_format(tmp_path / "o.csv", tmp_path / "i.CSV", form) == form
    assert matching_format(tmp_path / "o.tsv", tmp_path / "i.csv", form) == TableFormat("csv", "\t")
    with pytest.raises(DataError, match="parquet"):
        matching_format(tmp_path / "o.parquet", tmp_path / "i.parquet", TableFormat("jsonl"))


def test_tabs_without_quotes(tmp_path):
    form = TableFormat("plain", "\t")
    (tmp_path / "t.tsv").write_text(form.first_line(["a", "b"]) + form.line({"a": '"x', "b": 'y"'}))
    assert read_plain_tsv(tmp_path / "t.tsv").columns == {"a": ['"x'], "b": ['y"']}


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_rows_with_answers(tmp_path, suffix):
    write_table(tmp_path / "i.jsonl", {"text": ODD, "n": list(range(len(ODD)))})
    rows, path = open_rows(tmp_path / "i.jsonl"), tmp_path / f"o{suffix}"
    writer = answer_writer(path, rows, ["text", "n"], {"prediction": "string", "score": "double"})
    answered = [(row, {"prediction": f"p{number}", "score": 0.5}) for number, row in rows]
    with ResumableFile(path, "job") as file:
        writer.append(file, answered[:2])
        writer.append(file, [])
        writer.append(file, answered[2:])
        writer.finish(file)
    columns = read_table(path).columns
    assert list(columns) == ["text", "n", "prediction", "score"]
    assert columns["text"] == ODD
    assert columns["prediction"] == [f"p{number}" for number in range(1, len(ODD) + 1)]
    kind = str if suffix in (".csv", ".tsv") else int
    assert columns["n"] == [kind(i) for i in range(len(ODD))]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["i.jsonl", path.name])


def test_a_column_that_comes_late(tmp_path):
    write_table(tmp_path / "i.jsonl", {"text": ["a"]})
    writer = answer_writer(tmp_path / "o.csv", open_rows(tmp_path / "i.jsonl"), ["text"], {"prediction": "string"})
    with ResumableFile(tmp_path / "o.csv", "job") as file, pytest.raises(DataError, match="'more'"):
        writer.append(file, [({"text": "a", "more": 1}, {"prediction": "b"})])


def test_writers_by_suffix(tmp_path):
    write_table(tmp_path / "i.jsonl", {"text": ["a"]})
    rows = open_rows(tmp_path / "i.jsonl")
    assert isinstance(answer_writer(tmp_path / "o.PARQUET", rows, ["text"], {}), ParquetAnswerWriter)
    with pytest.raises(OptionError, match=r"'\.txt'"):
        answer_writer(tmp_path / "o.txt", rows, ["text"], {})
