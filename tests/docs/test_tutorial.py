"""The tutorial runs as it stands, and prints what the page shows."""

import contextlib
import io
import json
import re
import shlex
from pathlib import Path

import pytest

from tests.cli.shell import command

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorials" / "first-model.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)


def run_python(code, names):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        exec(compile(code, "first-model.md", "exec"), names)
    return printed.getvalue()


def run_console(code):
    for line in code.splitlines():
        program, *arguments = shlex.split(line.removeprefix("$ "))
        assert program == "ternarybert"
        status, out, err = command(*arguments)
        assert status == 0, f"{line}\n{out}{err}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder that the tutorial leaves behind."""
    folder, names, printed = tmp_path_factory.mktemp("tutorial"), {}, None
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for language, code in BLOCKS:
            if language == "python":
                printed = run_python(code, names)
            elif language == "console":
                run_console(code)
            else:
                assert printed == code
        names["model"].close()
    return folder


def test_every_block_runs_and_prints_what_the_page_shows(folder):
    assert {language for language, _ in BLOCKS} == {"python", "console", "text"}
    assert (folder / "answers.csv").is_file()


def test_the_reference_of_metrics_json_is_complete(folder):
    """Every key that `ternarize` writes is described, and every key described is written."""
    page = (ROOT / "docs" / "reference" / "metrics-json.md").read_text(encoding="utf-8")
    table = page.partition("## After `ternarize`")[2].partition("\n## ")[0]
    described = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert described == set(json.loads((folder / "student" / "metrics.json").read_text()))


def test_the_reference_of_finetune_json_is_complete(folder):
    page = (ROOT / "docs" / "reference" / "metrics-json.md").read_text(encoding="utf-8")
    table = page.partition("## After `finetune`")[2].partition("\n## ")[0]
    described = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert described == set(json.loads((folder / "teacher" / "finetune.json").read_text()))
