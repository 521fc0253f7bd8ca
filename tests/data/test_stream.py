"""Rows one by one, and the tables that they make, for every kind of file."""

import json
import sys

import pyarrow
import pytest
from datasets import ClassLabel, Dataset, Features, Value
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from ternarybert.data.readers import open_rows, read_table, sample
from ternarybert.errors import DataError, MissingExtraError


def texts(*rows):
    """Rows of a text and a label, each with its line."""
    return [(line, {"text": text, "label": label}) for line, text, label in rows]


FILES = {
    "plain.csv": ("text,label\nhello,1\nyou,2\n", texts((2, "hello", "1"), (3, "you", "2"))),
    "quoted.csv": (
        'text,label\n"hello, you",1\n"two\nlines",2\n\n"say ""hi""",3\n',
        texts((2, "hello, you", "1"), (4, "two\nlines", "2"), (6, 'say "hi"', "3")),
    ),
    "semicolons.csv": ("text;label\na,b;1\nc;2\n", texts((2, "a,b", "1"), (3, "c", "2"))),
    "header.csv": ('"a (b; c; d)",n\nx,1\n', [(2, {"a (b; c; d)": "x", "n": "1"})]),
    "long.csv": ('\n"two\nlines, of; a; header";n\nx;1\n', [(4, {"two\nlines, of; a; header": "x", "n": "1"})]),
    "tabs.csv": ('text\tlabel\n"a\tb"\t1\n', texts((2, "a\tb", "1"))),
    "index.csv": (",text\n0,a\n1,b\n", [(2, {"text": "a"}), (3, {"text": "b"})]),
    "bom.csv": ("\ufefftext,label\na,1\n", texts((2, "a", "1"))),
    "plain.tsv": ("text\tlabel\nhello\t1\nyou\t2\n", texts((2, "hello", "1"), (3, "you", "2"))),
    "stray.tsv": (
        'text\tlabel\na "quoted word\t1\nanother" one\t2\n',
        texts((2, 'a "quoted word', "1"), (3, 'another" one', "2")),
    ),
    "lone.tsv": (
        'text\tlabel\n"begins with a quote\t1\nand ends" not\t2\n',
        texts((2, '"begins with a quote', "1"), (3, 'and ends" not', "2")),
    ),
    "quoted.tsv": ('text\tlabel\n"two\nlines"\t1\n"a\tb"\t2\n', texts((3, "two\nlines", "1"), (4, "a\tb", "2"))),
    "enclosed.tsv": ('text\tlabel\n"a"\t1\n"b"\t2\n', texts((2, "a", "1"), (3, "b", "2"))),
    "returns.tsv": ("text\tlabel\r\na\rb\t1\r\nc\t2\r\n", texts((2, "a\rb", "1"), (3, "c", "2"))),
    "rows.jsonl": (
        '{"text": "a\\u2028b", "n": 1}\n\n{"text": null, "other": [1]}\n',
        [(1, {"text": "a\u2028b", "n": 1}), (3, {"text": None, "other": [1]})],
    ),
    "half.jsonl": ('{"text": "cut \\ud83d"}\n', [(1, {"text": "cut ?"})]),
    "whole.jsonl": ('{"text": "\\ud83d\\ude00"}\n', [(1, {"text": "\U0001f600"})]),
    "list.json": (
        ' [{"text": "a",\n "n": 1}, {"text": "cut \\ud83d"}]',
        [(1, {"text": "a", "n": 1}), (2, {"text": "cut ?"})],
    ),
    "lines.json": ('{"text": "a"}\n{"text": "b"}\n', [(1, {"text": "a"}), (2, {"text": "b"})]),
    "lines.txt": ("one\n\n  two  \nthree", [(1, {"text": "one"}), (3, {"text": "two"}), (4, {"text": "three"})]),
}


@pytest.mark.parametrize("name", FILES)
def test_rows_and_tables(tmp_path, name):
    path, (content, wanted) = tmp_path / name, FILES[name]
    path.write_bytes(content.encode())
    rows = open_rows(path)
    for _ in range(2):  # a file can be read again
        assert list(rows) == wanted
        assert rows.share == 1
    assert rows.unit == ("object" if name == "list.json" else "line")
    for table in (read_table(path), sample(rows)):
        assert list(table.lines) == [number for number, _ in wanted]
        assert table.columns == {name: [row.get(name) for _, row in wanted] for name in table.columns}
        assert set(table.columns) == {name for _, row in wanted for name in row}
        assert (table.unit, table.named) == (rows.unit, name != "lines.txt")


@given(st.lists(st.tuples(st.text(), st.text(st.characters(exclude_categories=["Cs"]))), min_size=1))
def test_any_json_lines(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("rows") / "x.jsonl"
    path.write_text("".join(json.dumps({"a": a, "b": b}) + "\n" for a, b in rows))
    assert [(row["a"], row["b"]) for _, row in open_rows(path)] == rows


def test_parquet(tmp_path):
    path = tmp_path / "x.parquet"
    columns = {"text": [f"text {i}" for i in range(3000)], "n": list(range(3000))}
    parquet.write_table(pyarrow.table(columns), path)
    rows = open_rows(path)
    assert [row["n"] for _, row in rows] == columns["n"]
    assert rows.place(next(iter(rows))[0]).endswith("row 1")


def test_parquet_with_the_names_of_classes(tmp_path):
    features = Features({"text": Value("string"), "label": ClassLabel(names=["no", "yes"])})
    rows = Dataset.from_dict({"text": ["a", "b", "c", "d"], "label": [1, 0, -1, None]}, features=features)
    rows.to_parquet(tmp_path / "x.parquet")
    assert [row["label"] for _, row in open_rows(tmp_path / "x.parquet")] == ["yes", "no", None, None]


def test_the_share_grows(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("text\n" + "a long line of text\n" * 20_000)
    rows = open_rows(path)
    shares = [rows.share for _ in rows]
    assert 0 < shares[0] < 0.1
    assert shares == sorted(shares)
    assert shares[-1] == 1


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("x.csv", "a,b\n1,2\n3\n", "line 3: 1 fields where the header has 2"),
        ("x.csv", "a,a\n1,2\n", "names the column 'a' twice"),
        ("x.csv", 'a\n"b', "stray quote"),
        ("x.csv", "", "is empty"),
        ("x.csv", "a,b\n", "holds no rows"),
        ("x.jsonl", '{"a": 1}\n{', "line 2: not JSON"),
        ("x.jsonl", "[1]", "line 1: not an object"),
        ("x.json", '[{"a": 1}, 2]', "object 2: not an object"),
        ("x.json", '[{"a": 1},\n', "line 2: not JSON"),
        ("x.csv", b"a\n\xff\n", "not UTF-8"),
        ("x.parquet", "no", "not a readable parquet file"),
        ("x.docx", "", r"unknown kind of file '\.docx'"),
    ],
)
def test_damaged_files(tmp_path, name, content, reason):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=reason):
        sample(open_rows(path))


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        open_rows(tmp_path / "x.csv")
    with pytest.raises(DataError, match="is a folder"):
        open_rows(tmp_path)


def test_without_pyarrow(tmp_path, monkeypatch):
    (tmp_path / "x.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match="pip install pyarrow"):
        list(open_rows(tmp_path / "x.parquet"))
