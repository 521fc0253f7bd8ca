"""Rows one by one, and the tables that they make, for every kind of file."""

import csv
import json
import logging
import os
import sys
from dataclasses import replace

import pyarrow
import pytest
from datasets import ClassLabel, Dataset, Features, Value
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from ternarybert.data import readers
from ternarybert.data.readers import BadRow, Rows, open_rows, read_plain_tsv, read_table, sample
from ternarybert.data.squad.questions import holds_questions
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
    "lines.txt": ("one\n  two  \nthree", [(1, {"text": "one"}), (2, {"text": "two"}), (3, {"text": "three"})]),
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
    assert rows.location(next(iter(rows))[0]).endswith("row 1")


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
        ("x.jsonl", '{"a": 1}\n{"a": ' + "9" * 5000 + "}", "line 2: not JSON"),
        ("x.json", '[{"a": 1},\n{"a": ' + "9" * 5000 + "}]", "not JSON"),
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


# --- tables ----------------------------------------------------------------------------------------------------


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_csv_of_a_spreadsheet(tmp_path):
    text = '\ufefftext,label\r\n"two\r\nlines, one ""quoted""",a\r\nNone,b\r\n"",c\r\n,\r\n'
    table = read_table(write(tmp_path, "t.csv", text))
    assert table.columns == {"text": ['two\r\nlines, one "quoted"', "None", ""], "label": ["a", "b", "c"]}
    assert table.location(1) == f"{tmp_path / 't.csv'}, line 4"


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
    assert table.location(1).endswith("t.jsonl, line 3")


def test_a_json_list(tmp_path):
    table = read_table(write(tmp_path, "t.json", json.dumps([{"text": "a"}, {"text": "b"}], indent=2)))
    assert table.columns == {"text": ["a", "b"]}
    assert table.location(1).endswith("object 2")


def test_plain_text_is_one_text_a_line(tmp_path):
    table = read_table(write(tmp_path, "t.txt", "\ufeffone, two\r\n\r\n  three \n"))
    assert table.columns == {"text": ["one, two", "three"]}
    assert table.location(1).endswith("t.txt, line 3")


def test_parquet_as_a_table(tmp_path):
    rows = Dataset.from_dict({"text": ["a", None, "c"], "n": [1, 2, 3], "label": [1, 0, -1]})
    rows = rows.cast_column("label", ClassLabel(names=["no", "yes"]))
    rows.to_parquet(str(tmp_path / "t.parquet"))
    table = read_table(tmp_path / "t.parquet")
    assert table.columns == {"text": ["a", None, "c"], "n": [1, 2, 3], "label": ["yes", "no", None]}
    assert table.location(0).endswith("t.parquet, row 1")


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
        ("t.json", '[{"text": "a"},\n {"text": ', "line 2: not JSON"),
        ("t.json", '[{"text": "a"},\n\n {"text": 3 4}]', "line 3: not JSON"),
        ("t.json", '[{"text": "a"}\n {"text": "b"}]', "line 2: not JSON"),
        ("t.json", '[{"text": "a"}]\n\n x', "line 3: not JSON"),
        ("t.json", '[{"text": "a"},\n 3', "object 2: not an object"),
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


# --- what is read to find out what a file is -------------------------------------------------------------------


@pytest.fixture
def count(monkeypatch):
    """How many lines, and characters of blocks, were read so far."""
    seen = {"lines": 0, "characters": 0}
    lines, blocks = Rows.text_lines, Rows.text_blocks

    def counted_lines(self, newline=None):
        for line in lines(self, newline):
            seen["lines"] += 1
            yield line

    def counted_blocks(self):
        for block in blocks(self):
            seen["characters"] += len(block)
            yield block

    monkeypatch.setattr(Rows, "text_lines", counted_lines)
    monkeypatch.setattr(Rows, "text_blocks", counted_blocks)
    return seen


@pytest.mark.parametrize("text", ["a text", '"a text"', 'a "text'])
def test_a_sample_of_a_tsv_file_reads_little_of_it(tmp_path, count, text):
    rows = open_rows(write(tmp_path, "t.tsv", "text\tlabel\n" + f"{text}\t1\n" * 20_000))
    assert len(sample(rows)) == 200
    assert count["lines"] <= 201 + readers._LOOK_AHEAD[0] + 1


@pytest.mark.parametrize("text", ["a text", '"a text"', '"a" text'])
def test_a_tsv_file_is_read_once_in_a_pass(tmp_path, count, text):
    rows = open_rows(write(tmp_path, "t.tsv", "text\tlabel\n" + f"{text}\t1\n" * 20_000))
    shares = [rows.share for _ in rows]
    assert count["lines"] == len(shares) + 1 == 20_001
    assert shares == sorted(shares)  # a progress bar never goes back
    assert len(list(rows)) == 20_000


@pytest.mark.parametrize("before", [1, 100, 5_000])
@pytest.mark.parametrize(
    ("lines", "texts"),
    [
        ('"a\tb"\t1\n"two\nlines"\t0\n', ["a\tb", "two\nlines"]),
        ('"open\t1\nshut"\t0\n', ['"open', 'shut"']),
        ('"The" end\t1\n"b"\t0\n', ['"The" end', '"b"']),
        ("a\rb\t1\n", ["a\rb"]),
    ],
)
def test_quotes_that_come_late_in_a_tsv_file(tmp_path, before, lines, texts):
    """There is nothing to decide before, however long that is."""
    rows = open_rows(write(tmp_path, "t.tsv", "text\tlabel\n" + "plain\t1\n" * before + lines + "plain\t1\n" * 5_000))
    for _ in range(2):
        found = list(rows)
        assert [row["text"] for _, row in found[before:-5_000]] == texts
        assert found[before - 1][0] == before + 1
        assert found[-1][0] == before + 5_001 + lines.count("\n")


def test_a_quote_in_a_tsv_file_that_is_never_closed(tmp_path):
    path = write(tmp_path, "t.tsv", "text\tlabel\n" + '"open\t1\n' + "plain\t1\n" * 5_000)
    assert len(read_table(path)) == 5_001


def test_a_quoted_text_of_many_lines_in_a_tsv_file(tmp_path):
    long = "\n".join(f"line {i}" for i in range(1_500))
    path = write(tmp_path, "t.tsv", "text\tlabel\n" + f'"{long}"\t1\n' * 3)
    assert read_table(path).columns["text"] == [long] * 3


def test_a_tsv_file_of_an_old_macintosh(tmp_path):
    assert read_table(write(tmp_path, "t.tsv", "text\tlabel\ra\t1\rb\t2\r")).columns["text"] == ["a", "b"]


def test_blank_lines_in_a_tsv_file(tmp_path):
    table = read_table(write(tmp_path, "t.tsv", "\ntext\tlabel\n  \na\t1\n\t\n \t \n"))
    assert table.columns == {"text": ["a", " "], "label": ["1", " "]}


@pytest.mark.parametrize(
    ("name", "content", "blank", "rows"),
    [
        ("t.csv", "id,text\n1,good\n,\n3,bad\n\n", [3], 3),  # an empty line is no row of two fields
        ("t.csv", "text\ngood\n\nbad\n", [3], 3),
        ("t.csv", 'text\n"go\nod"\n""\nbad\n', [4], 3),
        ("t.tsv", "id\ttext\n1\tgood\n\t\n3\tbad\n", [3], 3),
        ("t.tsv", 'id\ttext\n1\t"good"\n\t\n3\t"bad"\n\t\n', [3, 5], 4),
        ("t.tsv", 'id\ttext\n1\t"good" one\n\t\n3\tbad\n\t\n', [3, 5], 4),
        ("t.txt", "good\n\n \nbad\n", [2, 3], 4),
    ],
)
def test_blank_rows_are_rows_and_are_left_out_of_a_table_with_a_warning(tmp_path, caplog, name, content, blank, rows):
    path = write(tmp_path, name, content)
    found = list(open_rows(path))
    assert len(found) == rows
    assert [number for number, row in found if not any(row.values())] == blank
    assert len(read_table(path)) == rows - len(blank)
    assert f"{len(blank)} blank rows" in caplog.text
    assert f"line {blank[0]}" in caplog.text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", "id,text\n1,good\n2\n3,bad,or,so\n4,fine\n"),
        ("t.tsv", "id\ttext\n1\tgood\n2\n3\tbad\tor\n4\tfine\n"),
        ("t.tsv", 'id\ttext\n1\t"good" one\n2\n3\tbad\tor\n4\tfine\n'),
        ("t.jsonl", '{"id": 1}\n{"id": \n[3]\n{"id": 4}\n'),
        ("t.jsonl", '{"id": 1}\n' + "[" * 100_000 + '\n"three"\n{"id": 4}\n'),
    ],
)
def test_bad_rows_are_given_as_such_or_refused(tmp_path, name, content):
    rows = open_rows(write(tmp_path, name, content))
    with pytest.raises(DataError, match="line"):
        list(rows)
    found = list(replace(rows, strict=False))
    assert [isinstance(row, BadRow) for _, row in found] == [False, True, True, False]
    assert [str(row.get("id")) for _, row in found] in (["1", "2", "3", "4"], ["1", "None", "None", "4"])
    assert all(row.reason for _, row in found[1:3])


def test_a_json_list_that_is_nested_too_deeply(tmp_path):
    with pytest.raises(DataError, match="nested"):
        list(open_rows(write(tmp_path, "t.json", '[{"a": ' + "[" * 200_000)))


def test_a_sample_of_a_json_list_reads_little_of_it(tmp_path, count):
    rows = open_rows(write(tmp_path, "t.json", json.dumps([{"text": "a text"}] * 100_000)))
    assert len(sample(rows)) == 200
    assert count["characters"] <= 2 * readers._BLOCK


@pytest.mark.parametrize("block", [1, 2, 7, 1000])
@pytest.mark.parametrize("indent", [None, 1])
def test_a_json_list_in_blocks_of_any_size(tmp_path, monkeypatch, block, indent):
    monkeypatch.setattr(readers, "_BLOCK", block)
    records = [{"text": 'a "b" [c], \\', "n": 1.25}, {}, {"text": "é\n" * 20, "more": [{"a": None}]}]
    rows = open_rows(write(tmp_path, "t.json", " \n" + json.dumps(records, indent=indent) + "\n\n"))
    assert [row for _, row in rows] == records
    assert rows.share == 1


def test_an_empty_json_list(tmp_path):
    assert list(open_rows(write(tmp_path, "t.json", " [ ] "))) == []


def bytes_read():
    """By this process so far, in whatever way."""
    with open("/proc/self/io") as file:
        return int(file.readline().split()[1])


BIG = {
    "big.csv": lambda path: path.write_text("text,label\n" + "a text of some words,1\n" * 200_000),
    "big.tsv": lambda path: path.write_text("text\tlabel\n" + 'a "text" of some words\t1\n' * 200_000),
    "big.jsonl": lambda path: path.write_text('{"text": "a text", "label": 1}\n' * 200_000),
    "big.json": lambda path: path.write_text(json.dumps([{"text": "a text", "label": 1}] * 200_000)),
    "big.parquet": lambda path: parquet.write_table(
        pyarrow.table({"text": [f"a text of row {i}" for i in range(500_000)]}), path, row_group_size=5_000
    ),
}


@pytest.mark.linux_only("what a process has read is in /proc")
@pytest.mark.parametrize("name", BIG)
def test_columns_are_looked_at_without_reading_the_file(tmp_path, name):
    path = tmp_path / name
    BIG[name](path)
    sample(open_rows(path)), holds_questions(path)  # whatever is imported now is not of the file
    before = bytes_read()
    assert len(sample(open_rows(path))) == readers._SAMPLE
    holds_questions(path)
    assert bytes_read() - before < path.stat().st_size / 10


@pytest.mark.linux_only("pipes")
def test_a_pipe_is_called_one(tmp_path):
    os.mkfifo(tmp_path / "x.csv")
    with pytest.raises(DataError, match=r"x\.csv") as caught:
        open_rows(tmp_path / "x.csv")
    assert "did you mean" not in str(caught.value)
    assert "pipe" in str(caught.value)
