"""The scripts behind docs/results.md: a mistake is one line, as in the commands."""

import subprocess
import sys
from pathlib import Path

import pytest

RUNS = Path(__file__).parents[1] / "runs"


@pytest.mark.parametrize("script", ["glue.py", "squad.py", "augment.py", "tune.py"])
def test_a_wrong_folder_is_one_line(tmp_path, script):
    command = [sys.executable, RUNS / script, tmp_path / "nowhere", "--out", tmp_path / "out"]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 2, process.stderr
    assert str(tmp_path / "nowhere") in process.stderr
    assert len(process.stderr.splitlines()) == 1
