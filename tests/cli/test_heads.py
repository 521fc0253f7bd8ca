"""The commands on words, several labels and rankings: from files to a student, both engines, predictions."""

import json

import pytest

from tests import tiny
from tests.cli.test_train import table_rows
from tests.data.test_reranking import pairs

QUICK = ["--max-steps", "3", "--evaluations", "1", "--batch-size", "8", "--max-length", "24"]


@pytest.fixture
def work(encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").symlink_to(encoder)
    return tmp_path


def write(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def check(run, name, metric, file, *more):
    """Fine-tune, ternarize and evaluate with both engines; the scores of both are the same."""
    made = run("finetune", "tiny", "--train", file, *more, *QUICK)
    assert made.code == 0, made.err
    made = run("ternarize", name, "--train", file, *QUICK)
    assert made.code == 0, made.err
    assert len(table_rows(made.out, f"dev {metric}")) == 3
    scores = []
    for engine in ("torch", "native"):
        judged = run("evaluate", f"{name}-ternary", "--eval", file, "--max-length", "24", "--engine", engine, "--json")
        assert judged.code == 0, judged.err
        scores.append(json.loads(judged.out)["scores"][metric])
    assert scores[0] == pytest.approx(scores[1])


def test_words(run, work):
    write(work / "words.jsonl", [{"tokens": ["the", "film"], "tags": ["O", "B-x"]}] * 20)
    check(run, "tiny-words", "f1", "words.jsonl")
    told = run("predict", "tiny-words-ternary", "the film", "--json")
    assert set(json.loads(told.out)) == {"text", "entities"}
    (work / "plain.txt").write_text("the film\n" * 30, encoding="utf-8")
    made = run("ternarize", "tiny-words", "--train", "plain.txt", "--output", "bare", *QUICK)
    assert made.code == 0, made.err
    assert len(table_rows(made.out, "dev agreement")) == 2


def test_columns_of_words_with_another_suffix(run, work):
    (work / "words.txt").write_text("the O\nfilm B-x\n\n" * 20, encoding="utf-8")
    made = run("finetune", "tiny", "--task", "ner", "--train", "words.txt", *QUICK)
    assert made.code == 0, made.err
    assert "BIO entities: x" in made.err


def test_several_labels(run, work):
    rows = [{"text": "good film", "labels": ["good"]}, {"text": "bad fun", "labels": ["bad", "fun"]}]
    write(work / "moods.jsonl", rows * 15)
    check(run, "tiny-moods", "micro_f1", "moods.jsonl")
    assert (work / "tiny-moods-ternary" / "README.md").read_text(encoding="utf-8").count("| bad | ") == 1


def test_rankings(run, work):
    write(work / "asked.jsonl", pairs(12))
    check(run, "tiny-asked", "ndcg@10", "asked.jsonl")


@pytest.mark.parametrize(
    ("task", "content", "message"),
    [
        ("ner", "a O\nb\n", "data.conll, line 2: 1 columns"),
        ("ner", "a I-x\n", "data.conll, line 1: 'I-x' follows no 'B-x'"),
        ("multi-label", '{"text": "a", "labels": "x"}\n', "line 1: 'labels' is the string 'x'"),
        ("rerank", '{"query": "a", "text": "b", "score": 7}\n', "line 1: the score 7 is not"),
    ],
)
def test_bad_input_is_one_line(run, work, task, content, message):
    file = work / ("data.conll" if task == "ner" else "data.jsonl")
    file.write_text(content, encoding="utf-8")
    made = run("finetune", "tiny", "--task", task, "--train", file, *QUICK)
    assert made.code == 2
    assert message in made.err
    assert made.err.count("\n") == 1


def test_a_task_of_own_files_needs_files(run, work):
    made = run("finetune", "tiny", "--task", "ner", *QUICK)
    assert made.code == 2
    assert "--train" in made.err


def test_a_report_on_words(run, work):
    labels = {"id2label": {0: "O", 1: "B-x"}, "label2id": {"O": 0, "B-x": 1}}
    tiny.save(work / "teacher", make=tiny.tagger, **labels)
    write(work / "words.jsonl", [{"tokens": ["the", "film"], "tags": ["O", "B-x"]}] * 20)
    made = run("ternarize", "teacher", "--train", "words.jsonl", *QUICK)
    assert made.code == 0, made.err
    assert run("report", "teacher-ternary").code == 0
    page = (work / "teacher-ternary" / "report" / "report.html").read_text(encoding="utf-8")
    assert "F1 by type" in page
    assert "entities in brackets" in page


def test_a_report_on_several_labels(run, work):
    rows = [{"text": "good film", "labels": ["good"]}, {"text": "bad fun", "labels": ["bad", "fun"]}]
    write(work / "moods.jsonl", rows * 15)
    assert run("finetune", "tiny", "--train", "moods.jsonl", *QUICK).code == 0
    assert run("ternarize", "tiny-moods", "--train", "moods.jsonl", *QUICK).code == 0
    assert run("report", "tiny-moods-ternary").code == 0
    page = (work / "tiny-moods-ternary" / "report" / "report.html").read_text(encoding="utf-8")
    assert "Probabilities of the student" in page
    assert "share that applies" in page


@pytest.mark.parametrize(
    ("metric", "rows"),
    [
        ("f1", [{"tokens": ["the", "film"], "tags": ["O", "B-x"]}] * 20),
        ("micro_f1", [{"text": "good", "labels": ["good"]}, {"text": "bad", "labels": ["bad", "fun"]}] * 15),
        ("ndcg@10", pairs(12)),
    ],
)
def test_methods_are_compared(run, work, metric, rows):
    write(work / "rows.jsonl", rows)
    assert run("finetune", "tiny", "--train", "rows.jsonl", "--output", "teacher", *QUICK).code == 0
    chosen = ["--method", "ternarybert", "--method", "minmax", "--bits", "8-8-8", "--max-steps", "2"]
    made = run("compare", "teacher", "--train", "rows.jsonl", *chosen, "--json")
    assert made.code == 0, made.err
    found = json.loads(made.out)
    assert metric in found["metrics"]
    assert not [row for row in found["rows"] if row["failed"]]
