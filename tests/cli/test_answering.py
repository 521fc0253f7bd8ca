"""The commands on questions: the user's own, and SQuAD's files."""

import json
from pathlib import Path

import pytest

from ternarybert import packed
from ternarybert.recipe import TWO_STAGES, Recipe
from tests import tiny
from tests.cli.test_train import table_rows
from tests.data.test_squad_task import write
from tests.processes import fork_ranks
from tests.runtime.folders import save_student

QUICK = ["--max-steps", "4", "--evaluations", "2", "--batch-size", "8"]
SHORT = ["--max-length", "40"]


def write_own(path, questions, answers=True):
    """JSON lines as people write them: an answer is its text."""
    rows = []
    for question in questions:
        row = {"question": question.question, "context": question.context, "title": question.title}
        rows.append(row | ({"answers": [answer.text for answer in question.answers]} if answers else {}))
    Path(path).write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def answerer(tmp_path_factory):
    return tiny.save(tmp_path_factory.mktemp("models") / "answerer", make=tiny.answerer)


def test_own_questions(run, encoder, tmp_path, monkeypatch):
    """Known by their columns; no flag but the file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").symlink_to(encoder)
    write_own("asked.jsonl", tiny.questions(60))
    write_own("test.jsonl", tiny.questions(20, start=200))
    made = run("finetune", "tiny", "--train", "asked.jsonl", *SHORT, *QUICK)
    assert made.code == 0, made.err
    assert made.err.startswith("asked: train ")
    assert "questions; all have answers" in made.err
    assert "  f1 " in made.err.splitlines()[-1]
    assert "The model is in tiny-asked." in made.out
    assert "Next: ternarybert ternarize tiny-asked --train asked.jsonl --max-length 40" in made.out
    made = run("ternarize", "tiny-asked", "--train", "asked.jsonl", *SHORT, *QUICK)
    assert made.code == 0, made.err
    assert len(table_rows(made.out, "dev exact")) == len(table_rows(made.out, "dev f1")) == 3
    assert len(table_rows(made.out, "dev agreement")) == 2
    assert "columns: prediction" not in made.out
    judged = run("evaluate", "tiny-asked-ternary", "--eval", "test.jsonl", *SHORT, "--teacher", "tiny-asked")
    assert judged.code == 0, judged.err
    assert "test: dev 20 questions; all have answers" in judged.err
    assert 0 <= table_rows(judged.out, "dev f1")[0] <= 100


def test_squad_with_unanswerable_questions_from_its_folder(run, encoder, tmp_path):
    write(tmp_path / "squad" / "train-v2.0.json", tiny.questions(40, silent=True), "2.0")
    write(tmp_path / "squad" / "dev-v2.0.json", tiny.questions(12, start=60, silent=True), "2.0")
    data = ["--task", "SQuAD-v2", "--data", tmp_path / "squad", *SHORT]
    made = run("finetune", encoder, *data, *QUICK, "-o", tmp_path / "teacher")
    assert "squad_v2: train 40 questions, dev 12 questions; 18 " in made.err
    made = run("ternarize", tmp_path / "teacher", *data, *QUICK, "--recipe", "paper", "-o", tmp_path / "out", "--json")
    assert made.code == 0, made.err
    metrics = json.loads(made.out)
    assert metrics["metric"] == "f1"
    assert Recipe.load(tmp_path / "out" / "recipe.yaml").stages == TWO_STAGES
    found = metrics["student"]["best"]["sets"]["dev"]
    assert packed.read(tmp_path / "out").config["question_answering"]["null_threshold"] == found["best_f1_thresh"]
    judged = json.loads(run("evaluate", tmp_path / "out", *data, "--json").out)
    assert judged["scores"]["f1"] == pytest.approx(found["f1"]) == pytest.approx(found["best_f1"])


def test_squad_from_its_folder(run, encoder, tmp_path):
    write(tmp_path / "train-v1.1.json", tiny.questions(40))
    write(tmp_path / "dev-v1.1.json", tiny.questions(12, start=60))
    data = ["--task", "squad", "--data", tmp_path, *SHORT]
    made = run("finetune", encoder, *data, *QUICK, "-o", tmp_path / "teacher")
    assert "squad: train 40 questions, dev 12 questions; all have answers" in made.err
    made = run("ternarize", tmp_path / "teacher", *data, *QUICK, "-o", tmp_path / "out", "--json")
    assert made.code == 0, made.err
    best = json.loads(made.out)["student"]["best"]["scores"]
    assert best["f1"] > 0
    assert packed.read(tmp_path / "out").config["question_answering"]["null_threshold"] is None
    for engine in ("torch", "native"):
        judged = json.loads(run("evaluate", tmp_path / "out", *data, "--engine", engine, "--json").out)
        assert judged["scores"]["f1"] == pytest.approx(best["f1"])


def test_questions_without_answers_are_enough_for_ternarize(run, fails, answerer, encoder, tmp_path):
    path = write_own(tmp_path / "bare.jsonl", tiny.questions(32), answers=False)
    made = run("ternarize", answerer, "--train", path, *SHORT, *QUICK, "-o", tmp_path / "out")
    assert made.code == 0, made.err
    assert "questions; no answers" in made.err
    assert "dev agreement" in made.out
    assert "needs training questions with 'answers'" in fails("finetune", encoder, "--train", path, *SHORT)
    assert "have no labels or 'answers'" in fails("evaluate", answerer, "--eval", path, *SHORT)


def test_the_native_engine_scores_as_torch_does(run, fails, answerer, tmp_path):
    asked = write_own(tmp_path / "asked.jsonl", tiny.questions(30, start=100))
    assert run("ternarize", answerer, "--train", asked, *SHORT, *QUICK, "-o", tmp_path / "out").code == 0
    command = ["evaluate", tmp_path / "out", "--eval", asked, *SHORT, "--json"]
    torch = json.loads(run(*command).out)
    native = json.loads(run(*command, "--engine", "native", "--teacher", tmp_path / "out").out)
    assert native["scores"].pop("agreement") == 100
    for key in ("task", "metric", "scores", "rows"):
        assert native[key] == torch[key]
    other = save_student(tmp_path / "other", "ForSequenceClassification")
    assert "no question-answering head" in fails("evaluate", other, "--eval", asked, "--engine", "native")


def test_questions_are_not_augmented(fails, answerer, tmp_path):
    asked = write_own(tmp_path / "asked.jsonl", tiny.questions(12))
    command = ["ternarize", answerer, "--train", asked, *SHORT, *QUICK, "-o", tmp_path / "out"]
    assert "leave --augment out" in fails(*command, "--augment")


def test_mistakes(run, fails, answerer, teacher, table, encoder, tmp_path):
    asked = write_own(tmp_path / "asked.jsonl", tiny.questions(12))
    assert "no question-answering head (it is a BertForSequenceClassification)" in fails(
        "ternarize", teacher, "--train", asked, "-o", tmp_path / "out"
    )
    assert "no question-answering head" in fails("evaluate", teacher, "--eval", asked)
    assert "no classification head (it is a BertForQuestionAnswering)" in fails(
        "ternarize", answerer, "--train", table, "-o", tmp_path / "out"
    )
    assert "neither train-v1.1.json nor dev-v1.1.json" in fails(
        "finetune", encoder, "--task", "squad", "--data", tmp_path
    )
    assert "unknown task 'squad3'" in fails("finetune", encoder, "--task", "squad3", "--data", tmp_path)
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"question": "q", "context": "the film", "answers": ["plot"]}\n')
    assert "broken.jsonl, line 1: the answer 'plot' is not in the context" in fails(
        "finetune", encoder, "--train", broken
    )
    only = write_own(tmp_path / "only.jsonl", tiny.questions(1))
    assert "give an evaluation file" in fails("finetune", encoder, "--train", only)


def test_named_columns_make_a_table_of_it(run, encoder, tmp_path):
    rows = [{"question": f"the film was {word}", "context": word} for word in ("good", "bad") * 12]
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    made = run(
        "finetune", encoder, "--train", path, "--text", "question", "--label", "context", *QUICK, "-o", tmp_path / "o"
    )
    assert made.code == 0, made.err
    assert "dev accuracy" in made.out


def test_two_processes_train_in_two_stages(answerer, tmp_path):
    """The head has no gradient in the first stage, which two processes must not wait for."""
    asked = write_own(tmp_path / "asked.jsonl", tiny.questions(40))
    command = ["ternarize", answerer, "--train", asked, *SHORT, *QUICK, "--recipe", "paper", "-o", tmp_path / "out"]
    process = fork_ranks(2, "-m", "ternarybert", *command)
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert packed.is_packed(tmp_path / "out")
