"""Folders, patterns and URLs as one table: the rows are those of the files, in their order, wherever they are."""

import http.server
import io
import sys
import threading
from functools import partial

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ternarybert.data.locations import RemotePath, open_location
from ternarybert.data.readers import SUFFIXES, BadRow, open_rows, read_table
from ternarybert.data.writers import write_table
from ternarybert.errors import DataError, MissingExtraError

ROWS = {"text": ["a good film", 'say "no", twice', "line\nbreak", "", "größer €"], "id": ["1", "2", "3", "4", "5"]}


def rows_of(location):
    return [row for _, row in open_location(location)]


def write(path, columns=ROWS):
    """A table in the format of the suffix; plain text has no line breaks and one column."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".txt":
        path.write_text("a good film\ndull\n", encoding="utf-8")
    elif path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
    elif path.suffix == ".json":
        path.write_text('[{"text": "a good film"}, {"text": "größer"}]', encoding="utf-8")
    else:
        write_table(path, {"text": ["a good film", "größer"]} if path.suffix == ".tsv" else columns)
    return path


@pytest.fixture
def memory():
    """The file system of fsspec in this process; empty before and after."""
    filesystem = fsspec.filesystem("memory")
    filesystem.store.clear()
    yield filesystem
    filesystem.store.clear()


@pytest.fixture
def server(tmp_path):
    """A web server whose pages list the files of `tmp_path / "web"`."""
    (tmp_path / "web").mkdir()
    handler = partial(type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": lambda *_: None}))
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=tmp_path / "web"))
    thread = threading.Thread(target=running.serve_forever, daemon=True)
    thread.start()
    yield tmp_path / "web", f"http://127.0.0.1:{running.server_port}"
    running.shutdown()
    running.server_close()
    thread.join()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_remote_file_has_the_rows_of_a_local_one(tmp_path, memory, suffix):
    path = write(tmp_path / f"mails{suffix}")
    memory.pipe("/box/mails" + suffix, path.read_bytes())
    rows = open_location(f"memory://box/mails{suffix}")
    assert list(rows) == list(open_rows(path))
    assert rows.share == 1.0
    assert list(rows) == list(open_rows(path))  # as often as wanted


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_folders_and_patterns_are_read_in_the_order_of_their_paths(tmp_path, suffix):
    parts = [write(tmp_path / "in" / name) for name in (f"b{suffix}", f"a{suffix}", f"deep/c{suffix}")]
    write(tmp_path / "in" / "_temporary" / f"half{suffix}"), write(tmp_path / "in" / f".hidden{suffix}")
    (tmp_path / "in" / "_SUCCESS").touch()
    expected = [row for part in sorted(parts) for _, row in open_rows(part)]
    assert rows_of(tmp_path / "in") == expected
    assert rows_of(f"{tmp_path}/in/**/*{suffix}") == expected
    assert rows_of(f"{tmp_path}/in/[a-b]{suffix}") == expected[:10]
    assert [number for number, _ in open_location(tmp_path / "in")] == list(range(1, 16))


def test_a_file_whose_name_looks_like_a_pattern_is_a_file(tmp_path):
    assert rows_of(write(tmp_path / "mails[1].csv")) == rows_of(write(tmp_path / "plain.csv"))


def test_partitions_are_columns(tmp_path, memory):
    for year, country in (("2025", "at"), ("2026", "c%2Fh")):
        path = write(tmp_path / f"year={year}" / f"country={country}" / "part-0.parquet")
        memory.pipe(f"/mails/year={year}/country={country}/part-0.parquet", path.read_bytes())
    rows = rows_of(tmp_path)
    assert [(row["year"], row["country"]) for row in rows] == [("2025", "at")] * 5 + [("2026", "c/h")] * 5
    assert list(rows[0]) == ["year", "country", "text", "id"]
    assert rows_of("memory://mails") == rows_of("memory://mails/*/*/*.parquet") == rows
    # A field of the file itself wins.
    write(tmp_path / "own" / "text=x" / "a.csv")
    assert rows_of(tmp_path / "own")[0]["text"] == "a good film"


def test_files_from_a_web_server(server):
    folder, address = server
    for suffix in (".csv", ".parquet"):
        path = write(folder / f"mails{suffix}")
        assert rows_of(f"{address}/mails{suffix}") == [row for _, row in open_rows(path)]
        assert rows_of(f"{address}/mails{suffix}?key=1") == rows_of(path)
    with pytest.raises(DataError, match=r"none\.csv does not exist"):
        rows_of(f"{address}/none.csv")


def test_a_bad_row_is_named_by_its_file(tmp_path):
    write(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("text,id\ngood,1\ntoo,many,fields\n")
    rows = open_location(tmp_path)
    with pytest.raises(DataError, match=r"b\.csv, line 3: 3 fields"):
        list(rows)
    rows.strict = False
    (bad,) = [row for _, row in rows if isinstance(row, BadRow)]
    assert "b.csv, line 3: 3 fields" in bad.reason and bad["text"] == "too"


def test_what_cannot_be_read_is_one_line(tmp_path, memory):
    (tmp_path / "empty").mkdir()
    memory.pipe("/box/a.csv", b"text\na\n")
    memory.pipe("/box/notes.doc", b"")
    write(tmp_path / "two" / "a.csv"), write(tmp_path / "two" / "b.jsonl")
    for location, words in (
        (tmp_path / "empty", "no file that can be read"),
        (f"{tmp_path}/*.parquet", "no file that can be read"),
        (tmp_path / "two", r"several kinds: \.csv, \.jsonl"),
        ("memory://box/b.csv", "does not exist"),
        ("memory://box/notes.doc", r"unknown kind of file '\.doc'"),
        ("nowhere://box/a.csv", "nowhere"),
        ("http://127.0.0.1:9/a.csv", "127.0.0.1"),
    ):
        with pytest.raises(DataError, match=words) as caught:
            rows_of(location)
        assert "\n" not in str(caught.value)


def test_a_missing_package_of_a_protocol_is_named(monkeypatch):
    known = sys.modules["fsspec.registry"].known_implementations  # the package hides the module of this name
    monkeypatch.setitem(known, "far", {"class": "far_away.Far", "err": "Install far_away"})
    with pytest.raises(MissingExtraError, match=r"far://a\.csv needs more: Install far_away"):
        rows_of("far://a.csv")


def test_a_connection_that_breaks_is_one_line():
    class Breaking(io.BytesIO):
        def read(self, size=-1):
            if self.tell() > 3_000_000:
                raise RuntimeError("the server went away\nand more")
            return super().read(size)

    class Filesystem:
        size = staticmethod(lambda path: 4_000_000)
        open = staticmethod(lambda path, mode: Breaking(b"text\n" + b"good\n" * 800_000))
        unstrip_protocol = staticmethod(lambda path: f"s3://{path}")

    from ternarybert.data.readers import rows_of as file_rows

    with pytest.raises(DataError, match=r"^s3://box/a\.csv cannot be read \(the server went away\)$"):
        list(file_rows(RemotePath(Filesystem(), "box/a.csv")))


def test_training_still_wants_a_file(tmp_path):
    write(tmp_path / "in" / "a.csv")
    with pytest.raises(DataError, match="is a folder; give a file"):
        read_table(tmp_path / "in")
