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
from ternarybert.errors import OptionError, UnsupportedModelError
from ternarybert.recipe import PRESETS, ROW
from ternarybert.runtime.evaluate import evaluate
from tests import tiny
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


@pytest.mark.parametrize(
    "script", ["glue.py", "squad.py", "augment.py", "tune.py", "paired.py", "testbed.py", "bf16.py", "heads.py"]
)
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


def test_a_candidate_of_the_testbed_is_the_sum_of_its_parts(monkeypatch):
    monkeypatch.syspath_prepend(RUNS)
    script = run_path(str(RUNS / "testbed.py"))
    recipe = script["recipe_of"]("variance+row+tail10", "text")
    assert (recipe.distill.normalize, recipe.weight.granularity, recipe.schedule.tail) == ("variance", ROW, 0.1)
    assert recipe.schedule.batch_size == 64
    assert script["recipe_of"]("base", "stsb") == PRESETS["default"]
    with pytest.raises(OptionError, match="'rows'"):
        script["recipe_of"]("variance+rows", "text")
    for candidate in (*script["ALONE"], *script["TOGETHER"]):
        script["recipe_of"](candidate, "text")


def test_the_testbed_distills_vectors_writes_a_table_and_repeats_nothing(monkeypatch, tmp_path):
    """On a tiny encoder: texts of STS-B's held-out pairs are not trained on, and the closest student comes first."""
    monkeypatch.syspath_prepend(RUNS)
    script = run_path(str(RUNS / "testbed.py"))
    glue, model = tmp_path / "glue", tmp_path / "model"
    words = [" ".join(tiny.WORDS[(i + j) % len(tiny.WORDS)] for j in range(4 + i % 5)) for i in range(400)]
    columns = {
        "CoLA": "gj04\t1\t\t{0}",
        "SST-2": "{0}\t1",
        "MRPC": "1\t1\t2\t{0}\t{1}",
        "RTE": "1\t{0}\t{1}\tentailment",
        "STS-B": "1\t{0}\t{1}\t{2}",
    }
    headers = {
        "SST-2": "sentence\tlabel",
        "MRPC": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
        "RTE": "index\tsentence1\tsentence2\tlabel",
        "STS-B": "index\tsentence1\tsentence2\tscore",
    }
    for folder, line in columns.items():
        rows = [line.format(words[i], words[i + 1] + " it", i % 6) for i in range(60)]
        (glue / folder).mkdir(parents=True)
        (glue / folder / "train.tsv").write_text("\n".join([headers[folder], *rows] if folder in headers else rows))
    tiny.bert(vocab_size=len(tiny.tokenizer())).bert.save_pretrained(model)
    tiny.tokenizer().save_pretrained(model)
    for name, value in {"PAIRS": 20, "UNSEEN": 10, "TEXTS": 40, "encoder_folder": lambda: model}.items():
        monkeypatch.setitem(script["run_all"].__globals__, name, value)
    options = Namespace(glue=str(glue), gte=None, models=["minilm"], beds=["text"], candidates=["base", "variance+lsq"])
    vars(options).update(cpu_minutes=0.02, seeds=[1], threads=1, texts=40, out=str(tmp_path / "out"))
    data = script["texts_data"](str(glue), 40)
    pairs = {*data.evals["pairs"]["text"], *data.evals["pairs"]["text_pair"]}
    assert not pairs & {*data.train["text"], *data.evals["unseen"]["text"]}
    assert len(data.train) == 40

    script["run_all"](options)
    results = json.loads((tmp_path / "out" / "table.json").read_text())
    assert len(results) == 2
    assert all(result["steps"] > 0 and result["scores"]["unseen"]["cosine"] > 0 for result in results.values())
    table = (tmp_path / "out" / "table.md").read_text()
    assert "| variance+lsq | 0.02 | 1 |" in table and "| base | 0.02 | 1 |" in table
    monkeypatch.setattr(script["Bed"], "prepare", lambda self: pytest.fail("all is done"))
    script["run_all"](options)


def test_the_table_of_precisions(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(RUNS)
    script = run_path(str(RUNS / "bf16.py"))
    for precision, score, speed in (("float32", 80.0, 10.0), ("bf16", 79.5, 15.0)):
        path = tmp_path / "mrpc" / f"precision-{precision}-seed-1" / "metrics.json"
        path.parent.mkdir(parents=True)
        final = {"student": {"final": {"scores": {"f1": score}}}, "metric": "f1", "examples_per_second": speed}
        path.write_text(json.dumps(final))
    last = script["table"](tmp_path, ["mrpc"], [1]).splitlines()[-1]
    assert last == "| mrpc | 1 | 80.00 | 79.50 | -0.50 | 10.0 | 15.0 | 1.50 |"
    (tmp_path / "cpuinfo").write_text("flags : fpu avx512_bf16 sse")
    assert script["cpu_flags"](str(tmp_path / "cpuinfo")) == ["avx512_bf16"]
    assert script["cpu_flags"](str(tmp_path / "none")) == []
