"""Rows one by one are the rows of the whole table, for every kind of file."""

import json
import sys

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from ternarybert.errors import DataError, MissingExtraError
from ternarybert.tasks.files import read_table
from ternarybert.tasks.stream import open_rows

FILES = {
    "plain.csv": "text,label\nhello,1\nyou,2\n",
    "quoted.csv": 'text,label\n"hello, you",1\n"two\nlines",2\n\n"say ""hi""",3\n',
    "semicolons.csv": "text;label\na,b;1\nc;2\n",
    "index.csv": ",text\n0,a\n1,b\n",
    "bom.csv": "\ufefftext,label\na,1\n",
    "plain.tsv": "text\tlabel\nhello\t1\nyou\t2\n",
    "stray.tsv": 'text\tlabel\na "quoted word\t1\nanother" one\t2\n',
    "lone.tsv": 'text\tlabel\n"begins with a quote\t1\nand ends" not\t2\n',
    "quoted.tsv": 'text\tlabel\n"two\nlines"\t1\n"a\tb"\t2\n',
    "enclosed.tsv": 'text\tlabel\n"a"\t1\n"b"\t2\n',
    "returns.tsv": "text\tlabel\r\na\rb\t1\r\nc\t2\r\n",
    "rows.jsonl": '{"text": "a\\u2028b", "n": 1}\n\n{"text": null, "other": [1]}\n',
    "lines.txt": "one\n\n  two  \nthree",
}


@pytest.mark.parametrize("name", FILES)
def test_the_rows_of_the_table(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(FILES[name].encode())
    table, rows = read_table(path), open_rows(path)
    for _ in range(2):  # a file can be read again
        streamed = list(rows)
        assert [number for number, _ in streamed] == list(table.lines)
        for i, (_, row) in enumerate(streamed):
            assert {column: row.get(column) for column in table.columns} == {c: v[i] for c, v in table.columns.items()}
        assert rows.share == 1
    sample = rows.sample()
    assert (sample.columns, list(sample.lines), sample.unit) == (table.columns, list(table.lines), table.unit)
    assert sample.named == table.named == (name != "lines.txt")


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
        ("x.csv", b"a\n\xff\n", "not UTF-8"),
        ("x.parquet", "no", "not a readable parquet file"),
        ("x.docx", "", r"unknown kind of file '\.docx'"),
    ],
)
def test_damaged_files(tmp_path, name, content, reason):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=reason):
        list(open_rows(path).sample().lines) and list(open_rows(path))


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
