"""Help pages: every command is listed, explained, and shows an example that its own parser accepts."""

import re
import shlex

import pytest
import typer.main

from ternarybert.cli import COMMANDS, make_app

from .shell import command


def click_command(name):
    group = typer.main.get_command(make_app([name]))
    return group.commands[name]


def examples(name):
    """The commands that the end of a help page shows: from `ternarybert` to the end of the line or the next one."""
    epilog = click_command(name).epilog
    lines = re.split(r"\n|\s+or\s+", epilog)
    return [found[1].strip() for line in lines if (found := re.search(rf"\b(ternarybert {name}\b.*)", line))]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_example_is_one_that_the_command_takes(name):
    shown = [example for example in examples(name) if not example.endswith("...")]
    assert shown, f"the help of {name} has no example"
    for example in shown:
        words = shlex.split(example.split(" > ")[0])[2:]
        with click_command(name).make_context(name, words):
            pass  # an unknown option or a missing argument would have raised


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_does(name):
    parameters = click_command(name).params
    for parameter in parameters:
        text = getattr(parameter, "help", None) or ""
        assert text[:1].isupper(), f"{name} {parameter.opts}: {text!r}"
        assert text.endswith(".") and not text.startswith("Of "), f"{name} {parameter.opts}: {text!r}"
    code, out, _ = command(name, "--help")
    assert code == 0
    assert "Example: ternarybert" in re.sub(r"\s+", " ", out)
    assert click_command(name).help.strip().split("\n")[0].endswith((".", ":"))


@pytest.mark.parametrize("name", COMMANDS)
def test_brackets_are_shown(name):
    """Rich takes [words] for markup unless they are escaped."""
    said = re.sub(r"\\\[", "[", " ".join(click_command(name).help.split()))
    _, out, _ = command(name, "--help")
    assert all(extra in re.sub(r"[\s│]+", " ", out) for extra in re.findall(r"ternarybert\[[a-z,]+\]", said))


def test_the_first_page_lists_all():
    code, out, _ = command("--help")
    assert code == 0
    assert all(re.search(rf"\b{name}\b", out) for name in COMMANDS)


@pytest.mark.parametrize(
    "wrong, meant",
    [
        (["predikt", "folder"], "'predict'"),
        (["ternarise", "teacher"], "'ternarize'"),
        (["docter"], "'doctor'"),
        (["predict", "folder", "--inptu", "x.csv"], "--input"),
        (["ternarize", "teacher", "--lerning-rate", "1"], "--learning-rate"),
        (["demo", "--qick"], "--quick"),
        (["--verson"], "--version"),
    ],
)
def test_a_mistyped_command_or_option_gets_a_suggestion(wrong, meant):
    code, _, err = command(*wrong)
    assert code == 2
    assert meant in re.sub(r"[\s│]+", " ", err)


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "my-modle"],
        ["unpack", "my-modle", "plain"],
        ["pack", "my-modle", "packed"],
        ["predict", "my-modle", "a text"],
        ["predict", "my-model", "--input", "mial.csv"],
        ["augment", "more.csv", "--train", "mial.csv"],
        ["evaluate", "my-modle", "--engine", "native", "--eval", "mail.csv"],
    ],
    ids=" ".join,
)
def test_a_mistyped_folder_or_file_gets_a_suggestion(arguments, tmp_path, monkeypatch):
    from tests.runtime.folders import save_student

    monkeypatch.chdir(tmp_path)
    save_student(tmp_path / "my-model", "ForSequenceClassification")
    (tmp_path / "mail.csv").write_text("text,label\na film,0\n")
    code, _, err = command(*arguments)
    wanted = "mail.csv" if "mial.csv" in arguments else "my-model"
    assert code == 2
    assert err.startswith("ternarybert: ") and err.count("\n") == 1
    assert f"did you mean '{wanted}'?" in err


def test_a_folder_that_we_may_not_look_into_is_no_news(tmp_path):
    from ternarybert.errors import suggest_path

    assert suggest_path(tmp_path / "nowhere" / "model") == ""
    (tmp_path / "model").mkdir()
    assert suggest_path(tmp_path / "modle") == f"; did you mean '{tmp_path / 'model'}'?"
