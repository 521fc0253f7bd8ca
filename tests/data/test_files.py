import csv
import json
import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ternarybert.data.readers import read_plain_tsv, read_table
from ternarybert.errors import DataError


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_csv_of_a_spreadsheet(tmp_path):
    text = '\ufefftext,label\r\n"two\r\nlines, one ""quoted""",a\r\nNone,b\r\n"",c\r\n,\r\n'
    table = read_table(write(tmp_path, "t.csv", text))
    assert table.columns == {"text": ['two\r\nlines, one "quoted"', "None", ""], "label": ["a", "b", "c"]}
    assert table.place(1) == f"{tmp_path / 't.csv'}, line 4"


def test_semicolons_and_unnamed_index_columns(tmp_path):
    table = read_table(write(tmp_path, "t.csv", ";text;label\n0;a, b;1\n1;c;0\n"))
    assert table.columns == {"text": ["a, b", "c"], "label": ["1", "0"]}


def test_a_very_long_text(tmp_path):
    text = "word " * 100_000
    assert read_table(write(tmp_path, "t.csv", f'text\n"{text}"\n')).columns["text"] == [text]


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ('text\tlabel\n"a\tb"\t1\n', ["a\tb"]),  # quoted, because of the tab
        ('text\tlabel\n"a\nb"\t1\n', ["a\nb"]),  # quoted, because of the line break
        ('text\tlabel\n"he said ""no"""\t1\n', ['he said "no"']),  # quoted, because of the quotes
        ('text\tlabel\n"open\t1\nshut"\t0\n', ['"open', 'shut"']),  # stray quotes that look like a long text
        ('text\tlabel\n"The" end\t1\nb\t0\n', ['"The" end', "b"]),  # a quote that cannot be one of CSV
    ],
)
def test_tsv_with_and_without_quoting(tmp_path, content, texts):
    assert read_table(write(tmp_path, "t.tsv", content)).columns["text"] == texts


def test_json_lines_keep_types_and_allow_missing_fields(tmp_path):
    table = read_table(write(tmp_path, "t.jsonl", '{"text": "a\u2028b", "y": 1}\n\n{"text": "c", "z": true}\n'))
    assert table.columns == {"text": ["a\u2028b", "c"], "y": [1, None], "z": [None, True]}
    assert table.place(1).endswith("t.jsonl, line 3")


def test_a_json_list(tmp_path):
    table = read_table(write(tmp_path, "t.json", json.dumps([{"text": "a"}, {"text": "b"}], indent=2)))
    assert table.columns == {"text": ["a", "b"]}
    assert table.place(1).endswith("object 2")


def test_plain_text_is_one_text_a_line(tmp_path):
    table = read_table(write(tmp_path, "t.txt", "\ufeffone, two\r\n\r\n  three \n"))
    assert table.columns == {"text": ["one, two", "three"]}
    assert table.place(1).endswith("t.txt, line 3")


def test_parquet(tmp_path):
    from datasets import ClassLabel, Dataset

    rows = Dataset.from_dict({"text": ["a", None, "c"], "n": [1, 2, 3], "label": [1, 0, -1]})
    rows = rows.cast_column("label", ClassLabel(names=["no", "yes"]))
    rows.to_parquet(str(tmp_path / "t.parquet"))
    table = read_table(tmp_path / "t.parquet")
    assert table.columns == {"text": ["a", None, "c"], "n": [1, 2, 3], "label": ["yes", "no", None]}
    assert table.place(0).endswith("t.parquet, row 1")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "", "t.csv is empty"),
        ("t.tsv", "\n\n", "t.tsv is empty"),
        ("t.csv", "text,label\n", "holds no rows"),
        ("t.txt", "\n \n", "holds no rows"),
        ("t.jsonl", "", "holds no rows"),
        ("t.csv", "text,label,text\na,b,c\n", "names the column 'text' twice"),
        ("t.csv", "text,label\na,1\nb, c,0\n", "line 3: 3 fields where the header has 2"),
        ("t.tsv", "text\tlabel\na\n", "line 2: 1 fields where the header has 2"),
        ("t.tsv", 'text\tlabel\n"a" b\t1\nc\n', "line 3: 1 fields where the header has 2"),  # not the quotes
        ("t.csv", 'text,label\n"a" b,1\n', "line 2: .*stray quote"),
        ("t.csv", 'text,label\n"a,1\nb,2\n', "line 3: unexpected end of data"),
        ("t.csv", "text\nna\xefve".encode("latin-1"), "not UTF-8 text"),
        ("t.csv", "text,label\na,1\n".encode("utf-16"), "not UTF-8 text"),
        ("t.jsonl", '{"text": "a"}\n{"text": \n', "line 2: not JSON"),
        ("t.jsonl", '{"text": "a"}\n["b"]\n', "line 2: not an object"),
        ("t.json", '[{"text": "a"},\n 3', "line 2: not JSON"),
        ("t.json", '[{"text": "a"}, 3]', "object 2: not an object"),
        ("t.parquet", "text", "not a readable parquet file"),
        ("t.xlsx", "PK", r"unknown kind of file '.xlsx'; .*\.csv"),
        ("t", "text", "unknown kind of file ''"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_fault(tmp_path, name, content, message):
    with pytest.raises(DataError, match=message) as caught:
        read_table(write(tmp_path, name, content))
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_and_folders(tmp_path):
    with pytest.raises(DataError, match=r"no\.csv does not exist"):
        read_table(tmp_path / "no.csv")
    with pytest.raises(DataError, match="is a folder"):
        read_table(tmp_path)


def test_a_file_the_system_will_not_read(tmp_path, monkeypatch):
    def refuse(*_args, **_options):
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path, "t.csv", "text\na\n")
    monkeypatch.setattr(type(path), "open", refuse)
    with pytest.raises(DataError, match=r"cannot read .*t\.csv: Permission denied"):
        read_table(path)


def test_a_missing_column_names_the_nearest(tmp_path):
    table = read_table(write(tmp_path, "t.csv", "review,stars\na,1\n"))
    with pytest.raises(DataError, match=r"no column 'reviews'; did you mean 'review'\? Allowed: review, stars"):
        table.column("reviews")


def test_plain_tsv_keeps_quotes_and_carriage_returns(tmp_path):
    path = write(tmp_path, "t.tsv", '\ufeffa\tb\r\n"x\ty\rz\r\n')
    assert read_plain_tsv(path).columns == {"a": ['"x'], "b": ["y\rz"]}
    assert read_plain_tsv(path, header=("c", "d")).columns["c"] == ["a", '"x']


def test_known_damage_is_left_out_with_a_warning(tmp_path, caplog):
    path = write(tmp_path, "t.tsv", "a\tb\n" + "x\ty\n" * 98 + "torn\n" + "x\ty\n")
    with caplog.at_level(logging.WARNING):
        assert len(read_plain_tsv(path, broken_share=0.01)) == 99
    assert "left out 1 broken lines, the first is line 100" in caplog.text
    with pytest.raises(DataError, match="line 100: 1 fields"):
        read_plain_tsv(path, broken_share=0.001)


@given(st.lists(st.tuples(st.text(), st.text()), min_size=1, max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_json_text_survives(tmp_path, rows):
    lines = [json.dumps({"text": a, "label": b}, ensure_ascii=False) for a, b in rows]
    table = read_table(write(tmp_path, "t.jsonl", "\n".join(lines)))
    assert list(zip(table.columns["text"], table.columns["label"], strict=True)) == rows


# csv itself cannot carry NUL before Python 3.11, and a row of nothing but blanks is a blank row.
FIELD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@given(st.lists(st.tuples(FIELD.filter(bool), FIELD), min_size=1, max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_any_csv_text_survives(tmp_path, rows):
    with (tmp_path / "t.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    table = read_table(tmp_path / "t.csv")
    assert list(zip(table.columns["text"], table.columns["label"], strict=True)) == rows
