"""The scripts behind docs/results.md: a mistake is one line, as in the commands."""

import subprocess
import sys
from pathlib import Path
from runpy import run_path

import pytest

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
