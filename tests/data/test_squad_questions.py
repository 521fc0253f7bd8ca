import gzip
import json
import logging
import tracemalloc
import zipfile

import datasets
import pytest

from ternarybert.data.squad import questions
from ternarybert.data.squad.questions import GoldAnswer, Question, holds_questions, read_questions
from ternarybert.errors import DataError

CONTEXT = "Super Bowl 50 was played in 2016 at Levi's Stadium in Santa Clara."
OFFICIAL = {
    "version": "v2.0",
    "data": [
        {
            "title": "Super_Bowl_50",
            "paragraphs": [
                {
                    "context": CONTEXT,
                    "qas": [
                        {
                            "id": "q1",
                            "question": "Where?",
                            "answers": [{"text": "Levi's Stadium", "answer_start": 36}],
                            "is_impossible": False,
                        },
                        {
                            "id": "q2",
                            "question": "Who sang?",
                            "answers": [],
                            "is_impossible": True,
                            "plausible_answers": [{"text": "Santa Clara", "answer_start": 54}],
                        },
                    ],
                }
            ],
        }
    ],
}
WANTED = [
    Question("Where?", CONTEXT, (GoldAnswer("Levi's Stadium", 36),), "q1", "Super_Bowl_50"),
    Question("Who sang?", CONTEXT, (), "q2", "Super_Bowl_50"),
]


def jsonl(tmp_path, *rows, name="own.jsonl"):
    path = tmp_path / name
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return path


def test_the_official_format(tmp_path):
    plain = tmp_path / "dev-v2.0.json"
    plain.write_text(json.dumps(OFFICIAL))
    assert read_questions(plain) == WANTED
    with zipfile.ZipFile(tmp_path / "dev.json.zip", "w") as archive:
        archive.write(plain, "folder/dev-v2.0.json")
    assert read_questions(tmp_path / "dev.json.zip") == WANTED
    (tmp_path / "dev.json.gz").write_bytes(gzip.compress(plain.read_bytes()))
    assert read_questions(tmp_path / "dev.json.gz") == WANTED


@pytest.mark.parametrize("suffix", ["parquet", "jsonl", "json"])
def test_the_hubs_format(tmp_path, suffix):
    answers = [{"text": ["Levi's Stadium"], "answer_start": [36]}, {"text": [], "answer_start": []}]
    rows = [
        {"id": q.id, "title": q.title, "context": q.context, "question": q.question, "answers": a}
        for q, a in zip(WANTED, answers, strict=True)
    ]
    path = tmp_path / f"hub.{suffix}"
    if suffix == "parquet":
        datasets.Dataset.from_list(rows).to_parquet(path)
    else:
        path.write_text(json.dumps(rows) if suffix == "json" else "\n".join(map(json.dumps, rows)))
    assert read_questions(path) == WANTED


def test_the_users_own_lines(tmp_path):
    path = jsonl(
        tmp_path,
        {"question": "When?", "context": CONTEXT, "answers": ["2016"]},
        "",
        {"question": "", "context": CONTEXT, "answers": [{"text": "Clara", "answer_start": 60}, {"text": "a"}]},
        {"question": "Who?", "context": CONTEXT, "answers": [], "id": 7},
    )
    first, second, third = read_questions(path)
    assert first == Question("When?", CONTEXT, (GoldAnswer("2016", 28),), "1")
    assert second.answers == (
        GoldAnswer("Clara", 60),
        GoldAnswer("a", 15),
    )  # a text without a place: the first of its kind
    assert (second.id, second.question) == ("3", "")  # an empty question is odd, not wrong
    assert (third.answers, third.id) == ((), "7")


def test_questions_that_nobody_has_answered(tmp_path):
    path = jsonl(tmp_path, {"question": "When?", "context": CONTEXT})
    assert read_questions(path)[0].answers is None


def test_an_answer_close_by_is_found_and_said(tmp_path, caplog):
    row = {"question": "?", "context": "on no, no, " + CONTEXT, "answers": [{"text": "no", "answer_start": 6}]}
    with caplog.at_level(logging.WARNING):
        (question,) = read_questions(jsonl(tmp_path, row))
    assert question.answers == (GoldAnswer("no", 7),)
    assert "1 answers are not where 'answer_start' says" in caplog.text


def answered(*answers, **more):
    return {"question": "Q?", "context": CONTEXT, "answers": list(answers), **more}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"context": CONTEXT, "answers": []}, "the question is missing"),
        ({"question": "Q?", "context": None, "answers": []}, "the context is missing"),
        ({"question": 5, "context": CONTEXT, "answers": []}, r"the question is 5 \(int\), not a text"),
        ({"question": "Q?", "context": " \n", "answers": []}, "the context is empty"),
        ({"question": "Q?", "context": CONTEXT}, "'answers' is missing; give a list, an empty one"),
        ({"question": "Q?", "context": CONTEXT, "answers": "2016"}, "'answers' is '2016'; give a list"),
        (answered("2017"), "the answer '2017' is not in the context"),
        (answered(2016), r"the text of an answer is 2016 \(int\)"),
        (answered(" "), "an answer is empty; where the context has no answer, leave the list empty"),
        (answered({"answer_start": 3}), "the text of an answer is missing"),
        (answered({"text": "2016", "answer_start": "28"}), "'answer_start' is '28', not a whole number"),
        (answered({"text": "2016", "answer_start": 5}), "'2016' is not at character 5; count characters"),
        (answered({"text": "2016", "answer_start": -38}), "'2016' is not at character -38"),
        (answered({"text": "Super", "answer_start": -len(CONTEXT)}), "'Super' is not at character -66"),
        (answered("2016", is_impossible=True), "'is_impossible' is True, but there are 1 answers"),
        (answered(is_impossible=False), "'is_impossible' is False, but there are 0 answers"),
        ({**answered(), "answers": {"text": ["2016"], "answer_start": []}}, "two lists of one length"),
        ({**answered(), "answers": {"text": "2016"}}, "two lists of one length"),
        (answered(id="1"), "another question has the same id"),
        ("{", "not JSON"),
        ("[1]", "not an object"),
    ],
)
def test_a_malformed_line_is_pointed_at(tmp_path, row, message):
    path = jsonl(tmp_path, answered("2016"), row)
    with pytest.raises(DataError, match=rf"own\.jsonl, line 2.*{message}"):
        read_questions(path)


def test_columns_by_other_names(tmp_path):
    with pytest.raises(DataError, match="no column 'context'; did you mean 'contexts'"):
        read_questions(jsonl(tmp_path, {"question": "Q?", "contexts": CONTEXT}))
    with pytest.raises(DataError, match="a column 'answer'; call it 'answers'"):
        read_questions(jsonl(tmp_path, {"question": "Q?", "context": CONTEXT, "answer": "2016"}))


def damaged(change):
    data = json.loads(json.dumps(OFFICIAL))
    change(data["data"][0], data["data"][0]["paragraphs"][0])
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (damaged(lambda _, paragraph: paragraph.update(context="\ud83d")), "the context holds half a character"),
        ({"data": {}}, "'data' is not a list of objects"),
        ({"data": []}, "holds no questions"),
        (damaged(lambda article, paragraph: article.pop("paragraphs")), "article 1: 'paragraphs' is not a list"),
        (damaged(lambda article, paragraph: paragraph.update(qas=["q"])), "article 1: 'qas' is not a list of objects"),
        (damaged(lambda article, paragraph: paragraph.pop("context")), r"question 1 \(id q1\): the context is missing"),
        (damaged(lambda article, paragraph: paragraph["qas"][1].pop("question")), r"question 2 \(id q2\): the quest"),
        (
            damaged(lambda article, paragraph: paragraph["qas"][0]["answers"][0].update(answer_start=1)),
            r"question 1 \(id q1\): the answer 'Levi's Stadium' is not at character 1",
        ),
    ],
)
def test_damaged_official_files(tmp_path, data, message):
    path = tmp_path / "dev-v1.1.json"
    path.write_text(json.dumps(data))
    with pytest.raises(DataError, match=rf"dev-v1\.1\.json.*{message}"):
        read_questions(path)


def test_files_that_are_something_else(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"PK nothing")
    with pytest.raises(DataError, match=r"cannot read .*a\.zip"):
        read_questions(tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("x.txt", "x")
    with pytest.raises(DataError, match="holds 0 JSON files"):
        read_questions(tmp_path / "b.zip")
    for content, message in ((b"{", "does not hold JSON"), (b"[]", "does not hold SQuAD's JSON")):
        (tmp_path / "c.json.gz").write_bytes(gzip.compress(content))
        with pytest.raises(DataError, match=message):
            read_questions(tmp_path / "c.json.gz")
    (tmp_path / "d.json.gz").write_bytes(gzip.compress(b"{}" * 99)[:-12])
    with pytest.raises(DataError, match=r"cannot read .*d\.json\.gz"):
        read_questions(tmp_path / "d.json.gz")
    with pytest.raises(DataError, match="does not exist"):
        read_questions(tmp_path / "e.json")


def test_a_record_cannot_be_made_wrong():
    with pytest.raises(DataError, match="context is empty"):
        Question("Q?", " ")
    with pytest.raises(DataError, match="has no 'x' at character 1"):
        Question("Q?", "yy", (GoldAnswer("x", 1),))


def test_files_that_hold_questions(tmp_path):
    asked = {"question": "Where?", "context": CONTEXT}
    official = tmp_path / "dev.json"
    official.write_text(json.dumps(OFFICIAL))
    assert holds_questions(official)
    assert holds_questions(jsonl(tmp_path, asked))
    assert holds_questions(jsonl(tmp_path, {"question": "why"}, "", asked)), "the first line is to be complained of"
    assert holds_questions(jsonl(tmp_path, json.dumps([asked]), name="list.json"))
    datasets.Dataset.from_list([asked]).to_parquet(tmp_path / "q.parquet")
    assert holds_questions(tmp_path / "q.parquet")


@pytest.mark.parametrize("row", [{"question": "a", "context": "b", "label": 1}, {"text": "a"}, "{", "3", ""])
def test_files_that_hold_something_else(tmp_path, row):
    assert not holds_questions(jsonl(tmp_path, row))
    assert not holds_questions(tmp_path / "missing.jsonl")
    assert not holds_questions(jsonl(tmp_path, {"question": "a", "context": "b"}, {"label": 1}))
    table = tmp_path / "q.csv"
    table.write_text("question,context\na,b\n")
    assert not holds_questions(table)


def test_only_the_beginning_of_a_file_is_read_to_see_whether_it_holds_questions(tmp_path, monkeypatch):
    def whole(*_):
        raise AssertionError("the whole file was read")

    monkeypatch.setattr(questions, "_read_official", whole)
    monkeypatch.setattr(questions, "read_table", whole)
    asked = {"question": "Where?", "context": CONTEXT}
    (tmp_path / "dev.json").write_text(json.dumps(OFFICIAL, indent=1))
    assert holds_questions(tmp_path / "dev.json")
    (tmp_path / "deep.jsonl").write_text('{"question":' * 100_000)
    assert not holds_questions(tmp_path / "deep.jsonl")
    (tmp_path / "list.json").write_text(json.dumps([asked] * 10_000))
    assert holds_questions(tmp_path / "list.json")
    (tmp_path / "lines.json").write_text(f"{json.dumps(asked)}\n" * 3)
    assert holds_questions(tmp_path / "lines.json")
    datasets.Dataset.from_list([asked] * 3).to_parquet(tmp_path / "q.parquet")
    assert holds_questions(tmp_path / "q.parquet")


@pytest.mark.parametrize("kind", ["zip", "gz"])
def test_a_small_file_that_unpacks_to_a_large_one_is_refused(tmp_path, monkeypatch, kind):
    """A megabyte of zeros would take gigabytes as Python objects."""
    monkeypatch.setattr(questions, "_ALWAYS_UNPACKED", 1 << 20)
    path = tmp_path / f"x.json.{kind}"
    data = b'{"data": [' + b"[]," * (1 << 20) + b"[]]}"
    if kind == "gz":
        path.write_bytes(gzip.compress(data))
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("x.json", data)
    tracemalloc.start()
    with pytest.raises(DataError, match=r"x\.json.*unpack"):
        read_questions(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20


def test_json_that_is_nested_too_deeply(tmp_path):
    (tmp_path / "x.json").write_text('{"data": ' + "[" * 200_000)
    with pytest.raises(DataError, match=r"x\.json"):
        read_questions(tmp_path / "x.json")
