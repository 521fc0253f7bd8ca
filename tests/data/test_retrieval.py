"""Folders in the layout of BEIR are read, and what is wrong in them is named."""

import json

import pytest

from ternarybert.data.retrieval import load_retrieval
from ternarybert.errors import DataError

CORPUS = [{"_id": "d1", "title": "Film", "text": "a good one"}, {"_id": "d2", "title": "", "text": "dull"}]
QUERIES = [{"_id": "q1", "text": "what is good"}, {"_id": "q2", "text": "what is dull"}, {"_id": "q3", "text": "none"}]
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\nq2\td2\t1\nq3\td1\t0\n"


def made(folder, corpus=CORPUS, queries=QUERIES, qrels=QRELS):
    (folder / "qrels").mkdir()
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "qrels" / "test.tsv").write_text(qrels)
    return folder


def test_a_folder_is_read(tmp_path):
    data = load_retrieval(made(tmp_path))
    assert data.documents == ["Film a good one", "dull"] and data.queries == ["what is good", "what is dull"]
    assert data.relevant == [{0: 2.0}, {1: 1.0}]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"qrels": QRELS + "q9\td1\t1\n"}, "q9"),
        ({"qrels": QRELS + "q1\td9\t1\n"}, "d9"),
        ({"qrels": QRELS + "q1\td1\tmuch\n"}, "much"),
        ({"qrels": "query-id\tcorpus-id\nq1\td1\n"}, "2 columns"),
        ({"qrels": "query-id\tcorpus-id\tscore\nq1\td1\t0\n"}, r"test\.tsv"),
        ({"corpus": [*CORPUS, CORPUS[0]]}, "'d1'"),
        ({"queries": [{"id": "q1", "text": "x"}]}, "line 1.*id, text"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, change, named):
    with pytest.raises(DataError, match=named):
        load_retrieval(made(tmp_path, **change))


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels/test.tsv"])
def test_missing_files_are_named(tmp_path, name):
    (made(tmp_path) / name).unlink()
    with pytest.raises(DataError, match=name):
        load_retrieval(tmp_path)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match="scifact"):
        load_retrieval(tmp_path / "scifact")
