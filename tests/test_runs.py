"""The scripts behind docs/results/: a mistake is one line, as in the commands."""

import json
from argparse import Namespace
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest
from scipy import stats

from ternarybert.data import TaskData
from ternarybert.data.squad.questions import GoldAnswer, Question
from ternarybert.data.squad.task import SQUAD
from ternarybert.errors import UnsupportedModelError
from ternarybert.runtime.evaluate import evaluate
from tests.processes import fork
from tests.runtime.folders import save_student

RUNS = Path(__file__).parents[1] / "runs"


def test_students_with_another_source_have_separate_folders(monkeypatch):
    monkeypatch.syspath_prepend(RUNS)
    cell = run_path(str(RUNS / "augment.py"))["Cell"]
    assert cell("default", 42, "").name == cell("default", 42, "", glove="none").name == "default"
    assert cell("default", 42, "-augmented").name == "default-augmented"
    assert cell("paper", 1, "-equal-steps", 5).name == "paper-equal-steps-5-seed-1"
    assert cell("paper", 1, "-equal-steps", 5, "none").name == "paper-equal-steps-5-glove-none-seed-1"
    assert cell("default", 42, "-augmented", None, "my/glove.300d.txt").name == "default-augmented-glove-glove.300d"


@pytest.mark.parametrize("script", ["glue.py", "squad.py", "augment.py", "tune.py", "paired.py"])
def test_a_wrong_folder_is_one_line(tmp_path, script):
    more = ["one", "other"] if script == "paired.py" else ["--out", tmp_path / "out"]
    process = fork(RUNS / script, tmp_path / "nowhere", *more)
    _, err = process.communicate()
    assert process.returncode == 2, err
    assert str(tmp_path / "nowhere") in err
    assert len(err.splitlines()) == 1


def test_the_table_of_questions_compares_students_on_all_test_questions_with_their_teacher(monkeypatch, tmp_path):
    def scores(exact, f1):
        return {"scores": {"exact": exact, "f1": f1}}

    monkeypatch.syspath_prepend(RUNS)
    script = run_path(str(RUNS / "squad.py"))
    for name, content in {
        "teacher/finetune.json": {"best": scores(41, 51), "final": scores(39, 49), "steps": 9, "seconds": 60.4},
        "teacher/test.json": scores(40, 50),
        "default/metrics.json": {"student": {"best": scores(38, 48)}, "steps": 18, "seconds": 99.6},
        "default/test.json": scores(37, 47),
    }.items():
        path = tmp_path / "minilm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    assert script["table"](tmp_path).splitlines()[2:] == [
        "| minilm | fp32 | 40.0 / 50.0 | | 9 | 60 |",
        "| minilm | default | 37.0 / 47.0 | 94.0 % | 18 | 100 |",
    ]
    cells = {cell.name: cell.recipe for cell in script["CELLS"]}
    assert all(recipe.name == name for name, recipe in cells.items())
    assert len(cells) == len(script["CELLS"]), "two students would share a folder"


def test_a_trial_on_questions_has_a_folder_of_its_own(monkeypatch):
    monkeypatch.syspath_prepend(RUNS)
    root_of = run_path(str(RUNS / "squad.py"))["root_of"]
    assert root_of(Namespace(out="out", part=None, max_steps=-1)) == Path("out")
    assert root_of(Namespace(out="out", part=64, max_steps=-1)) == Path("out/trial-questions-64-steps-all")
    assert root_of(Namespace(out="out", part=None, max_steps=3)) == Path("out/trial-questions-all-steps-3")


def test_the_error_of_a_difference_takes_questions_of_one_text_together(monkeypatch):
    monkeypatch.syspath_prepend(RUNS)
    difference = run_path(str(RUNS / "paired.py"))["difference"]
    first, second = np.random.default_rng(0).uniform(0, 100, (2, 30))
    gain, error = difference(first, second, [f"text {i}" for i in range(30)])
    assert gain / error == pytest.approx(stats.ttest_rel(first, second).statistic)
    means = (first - second).reshape(10, 3).mean(1)
    assert difference(first, second, [f"text {i // 3}" for i in range(30)]) == pytest.approx(
        (means.mean(), stats.sem(means))
    )
    assert difference(*np.repeat([first, second], 2, 1), np.repeat(np.arange(30), 2)) == pytest.approx((gain, error))


def test_students_are_compared_as_they_are_scored(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(RUNS)
    f1_of = run_path(str(RUNS / "paired.py"))["f1_of"]
    context = "The movie was great, and the plot: very fun! We hated it not."
    answers = ("movie", "great", "the plot", "very fun", "We hated it not")
    asked = [Question(f"what was {text}", context, (GoldAnswer(text, context.index(text)),), text) for text in answers]
    data = TaskData(SQUAD["squad"], None, {"test": asked})
    student = save_student(tmp_path / "student", "ForQuestionAnswering")
    assert 0 < f1_of(student, data, 1).mean() < 100
    assert f1_of(student, data, 1).mean() == pytest.approx(evaluate(student, data)["scores"]["f1"])
    with pytest.raises(UnsupportedModelError, match="classifier"):
        f1_of(save_student(tmp_path / "classifier", "ForSequenceClassification"), data, 1)
