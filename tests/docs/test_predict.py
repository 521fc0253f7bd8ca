"""The examples in docs/how-to/predict.md run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.folders import save_student

TEXT = (Path(__file__).parents[2] / "docs" / "how-to" / "predict.md").read_text(encoding="utf-8")
LABELS = {"id2label": {0: "negative", 1: "positive"}, "label2id": {"negative": 0, "positive": 1}}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with everything that the examples name."""
    place = tmp_path_factory.mktemp("examples")
    save_student(place / "my-model-ternary", "ForSequenceClassification", **LABELS)
    save_student(place / "my-qa-model", "ForQuestionAnswering")
    (place / "lines.txt").write_text("a fine film\ndull\n")
    (place / "article.txt").write_text("The film was good.\n\nWe liked it.\n")
    (place / "mails.csv").write_text("id,body\n1,a fine film\n2,dull\n")
    for year in (2025, 2026):
        (place / "mails" / f"year={year}").mkdir(parents=True)
        (place / "mails" / f"year={year}" / "mails.csv").write_text("id,body\n1,a fine film\n2,dull\n")
    (place / "test.csv").write_text("text,label\na fine film,positive\ndull,negative\n")
    return place


def test_python(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    examples = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    names = {}
    for example in examples:
        exec(compile(example, "predict.md", "exec"), names)
    names["model"].close()
    assert capsys.readouterr().out.count("label=") == 6


COMMANDS = re.findall(r"^ternarybert .*", TEXT, re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_commands(place, line):
    shell = line.replace("ternarybert", f"{sys.executable} -m ternarybert", 1)
    environment = os.environ | {"TERNARYBERT_THREADS": "1"}
    done = subprocess.run(
        ["bash", "-c", shell], cwd=place, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
