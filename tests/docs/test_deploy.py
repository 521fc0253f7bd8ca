"""The examples in docs/how-to/deploy.md run as they stand."""

import re
import shlex
from pathlib import Path

from tests.cli.shell import command
from tests.runtime.folders import save_student

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "deploy.md").read_text(encoding="utf-8")


def test_the_commands_and_the_python(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    save_student(tmp_path / "small", "ForSequenceClassification")
    (tmp_path / "mails.csv").write_text("text\na good film\nvery dull\n")
    for line in re.findall(r"^ternarybert .*$", PAGE, re.MULTILINE):
        code, out, err = command(*shlex.split(line, comments=True)[1:])
        assert code == 0, f"{line}\n{out}{err}"
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(example, "deploy.md", "exec"), {})
    assert "'label': " in capsys.readouterr().out
    assert (tmp_path / "answers.csv").is_file()
