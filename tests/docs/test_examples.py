"""The scripts of examples/ run, one after the other, on a tiny model and a table of a few sentences."""

import contextlib
import csv
import io
import json
import runpy
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

from tests import tiny

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name, *arguments, stdin=""):
    """What a script prints. It runs in this process: importing torch once more would take longer than the script."""
    printed = io.StringIO()
    with (
        patch.object(sys, "argv", [name, *map(str, arguments)]),
        patch.object(sys, "stdin", io.StringIO(stdin)),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return printed.getvalue().splitlines()


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """What the first example makes: a teacher and a student."""
    folder, tokenizer = tmp_path_factory.mktemp("examples"), tiny.tokenizer()
    tiny.bert(vocab_size=len(tokenizer)).bert.save_pretrained(folder / "tiny")
    tokenizer.save_pretrained(folder / "tiny")
    rows = [(f"the {thing} was {word}", kind) for thing in ("film", "movie", "plot", "acting") for word, kind in WORDS]
    for name in ("train.csv", "test.csv"):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows([("text", "label"), *rows])
    printed = run(
        "ternarize_table.py", folder / "tiny", folder / "train.csv", "--epochs", 2, "--output", folder / "out"
    )
    assert [line.split()[:2] for line in printed[:2]] == [["teacher", "accuracy"], ["student", "accuracy"]]
    return folder / "out"


WORDS = [("good", "kind"), ("great", "kind"), ("fun", "kind"), ("bad", "harsh"), ("awful", "harsh"), ("dull", "harsh")]


def test_ternarize_table(out):
    teacher, student = out / "teacher" / "model.safetensors", out / "student" / "ternarybert.safetensors"
    assert student.stat().st_size < teacher.stat().st_size


@pytest.mark.parametrize(
    ("texts", "stdin"), [(["a good film", "very dull"], ""), ([], "a good film\nvery dull\n")], ids=["texts", "stdin"]
)
def test_predict(out, texts, stdin):
    answers = [json.loads(line) for line in run("predict.py", out / "student", *texts, stdin=stdin)]
    assert [set(answer["scores"]) for answer in answers] == [{"kind", "harsh"}] * 2


def test_compare_with_teacher(out):
    printed = run("compare_with_teacher.py", out / "teacher", out / "student", out.parent / "test.csv")
    figures = {line.rsplit(maxsplit=2)[0]: float(line.split()[-2]) for line in printed[:3]}
    differing = len(printed) - 3
    assert figures["agreement"] == pytest.approx(100 * (1 - differing / 24), abs=0.05)
    assert all(0 <= value <= 100 for value in figures.values())
