"""Files become passages with the right lines, whatever is in them."""

import os

import pytest

from ternarybert.errors import DataError
from ternarybert.search.passages import LONGEST, ReadingNotes, find_files, read_passages, read_rows, split_text

TEXT = """# A heading

The first paragraph has two lines
of text, and is long enough.

short

## Another heading
Text right below the heading, without a blank line.
"""


def test_paragraphs_start_at_their_heading():
    found = list(split_text(TEXT))
    assert [(each.line, each.text.split()[1]) for each in found] == [(1, "A"), (8, "Another")]
    assert found[0].text.endswith("of text, and is long enough.")


def test_long_paragraphs_are_split_and_nothing_is_lost():
    lines = [f"line {i} " + "word " * 30 for i in range(40)]
    found = list(split_text("\n".join(lines)))
    assert len(found) > 1 and max(len(each.text) for each in found) <= LONGEST + 10
    assert " ".join(each.text for each in found).split() == " ".join(lines).split()
    assert all(found_line.text.startswith(f"line {found_line.line - 1} ") for found_line in found)


def test_one_endless_line_is_split_at_sentences():
    found = list(split_text("This is a sentence. " * 200))
    assert len(found) > 3 and all(each.line == 1 and each.text.endswith(".") for each in found)
    assert all(len(each.text) <= LONGEST for each in split_text("x" * 5000))


def test_binary_files_and_broken_encodings_are_noted(tmp_path):
    (tmp_path / "image.png").write_bytes(b"\x89PNG\0\0\0")
    (tmp_path / "latin.txt").write_bytes("ein schöner langer Satz über Bäume".encode("latin-1"))
    (tmp_path / "wide.txt").write_text("a sentence in another encoding", encoding="utf-16")
    (tmp_path / "mark.txt").write_text("\ufeffa sentence after a byte order mark", encoding="utf-8")
    (tmp_path / "empty.txt").touch()
    notes = ReadingNotes()
    found = {path.name: read_passages(path, notes) for path in find_files(tmp_path)}
    assert [len(found[name]) for name in ("image.png", "latin.txt", "wide.txt", "mark.txt", "empty.txt")] == [
        0,
        1,
        1,
        1,
        0,
    ]
    assert found["wide.txt"][0].text == "a sentence in another encoding"
    assert found["mark.txt"][0].text.startswith("a sentence")
    assert [path.name for path in notes.binary] == ["image.png"] and [path.name for path in notes.broken] == [
        "latin.txt"
    ]
    assert any("image.png" in line for line in notes.lines())


def test_hidden_files_are_left_out(tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("hidden")
    (tmp_path / ".ternarybert-index").write_text("hidden")
    (tmp_path / "b").mkdir()
    for name in ("b/two.txt", "one.txt"):
        (tmp_path / name).write_text("seen")
    assert [path.name for path in find_files(tmp_path)] == ["one.txt", "two.txt"]


def test_rows_of_a_table(tmp_path):
    (tmp_path / "mails.csv").write_text("id,body\n1,late delivery\n2,\n3,thanks\n")
    assert [(each.line, each.text) for each in read_rows(tmp_path / "mails.csv", "body")] == [
        (2, "late delivery"),
        (4, "thanks"),
    ]
    assert len(read_rows(tmp_path / "mails.csv")) == 2
    with pytest.raises(DataError, match=r"'bodi'.*body"):
        read_rows(tmp_path / "mails.csv", "bodi")


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="notes"):
        find_files(tmp_path / "notes")


def test_a_pipe_is_called_one(tmp_path):
    os.mkfifo(tmp_path / "notes")
    with pytest.raises(DataError, match="pipe"):
        find_files(tmp_path / "notes")


def test_what_is_a_text_is_the_rule_of_predict(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": 0}\n{"text": false}\n{"text": null}\n{"text": " "}\n{"text": [1]}\n')
    assert [passage.text for passage in read_rows(tmp_path / "t.jsonl")] == ["0", "False"]
