"""The scripts behind docs/results.md: a mistake is one line, as in the commands."""

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest
from scipy import stats

RUNS = Path(__file__).parents[1] / "runs"


def test_students_of_other_words_have_folders_of_their_own(monkeypatch):
    monkeypatch.syspath_prepend(RUNS)
    cell = run_path(str(RUNS / "augment.py"))["Cell"]
    assert cell("default", 42, "").name == cell("default", 42, "", glove="none").name == "default"
    assert cell("default", 42, "-augmented").name == "default-augmented"
    assert cell("paper", 1, "-equal-steps", 5).name == "paper-equal-steps-5-seed-1"
    assert cell("paper", 1, "-equal-steps", 5, "none").name == "paper-equal-steps-5-glove-none-seed-1"
    assert cell("default", 42, "-augmented", None, "my/glove.300d.txt").name == "default-augmented-glove-glove.300d"


@pytest.mark.parametrize("script", ["glue.py", "squad.py", "augment.py", "tune.py"])
def test_a_wrong_folder_is_one_line(tmp_path, script):
    command = [sys.executable, RUNS / script, tmp_path / "nowhere", "--out", tmp_path / "out"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 2, process.stderr
    assert str(tmp_path / "nowhere") in process.stderr
    assert len(process.stderr.splitlines()) == 1


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
    for name, recipe in cells.items():
        weights = (0.1, 10.0) if "balanced" in name else (1.0, 1.0)
        assert (recipe.distill.attention, recipe.distill.hidden) == weights, name
        assert len(recipe.stages) == (2 if "two-stages" in name else 1), name
        assert str(recipe.activation.granularity) == ("tensor" if "paper" in name else "token"), name
        assert (recipe.activation.scheme == "symmetric") == ("symmetric" in name), name
        assert recipe.weight.method == recipe.embedding.method == ("lat" if "lat" in name else "twn"), name


def test_a_trial_on_questions_has_a_folder_of_its_own(monkeypatch):
    monkeypatch.syspath_prepend(RUNS)
    place_of = run_path(str(RUNS / "squad.py"))["place_of"]
    assert place_of("minilm", Namespace(out="out", part=None, max_steps=-1)) == Path("out/minilm")
    for options in ({"part": 64, "max_steps": -1}, {"part": None, "max_steps": 3}):
        assert place_of("minilm", Namespace(out="out", **options)) == Path("out/minilm-trial")


def test_the_difference_of_two_students_is_taken_question_by_question(monkeypatch):
    """Two students that differ on one question of four: as sure as a sample of four says, however noisy each is."""
    monkeypatch.syspath_prepend(RUNS)
    line = run_path(str(RUNS / "paired.py"))["line"]
    f1 = {Path("x/lat"): np.array([100.0, 0.0, 50.0, 40.0]), Path("x/twn"): np.array([100.0, 0.0, 50.0, 0.0])}
    assert line(*f1, f1) == "| lat | twn | 47.50 | 37.50 | +10.00 | 10.00 |"
    assert stats.ttest_rel(*f1.values()).statistic == pytest.approx(1.0)  # the difference over its error
