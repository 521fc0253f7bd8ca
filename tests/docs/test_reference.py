"""The reference is complete: every command, option, recipe field, public name and C function is on its page."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest
import typer
import typer.main

import ternarybert
from ternarybert import errors
from ternarybert.cli import COMMANDS, make_app
from ternarybert.recipe import PRESETS

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def load_generated():
    spec = importlib.util.spec_from_file_location("generated", ROOT / "docs" / "generated.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATED = load_generated()
APP = typer.main.get_command(make_app())


def section(page, name):
    return page.split(f"## {name}\n", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_every_command_has_a_row_with_help(name):
    rows = section(GENERATED.command_line(), name)
    for parameter in APP.commands[name].params:
        if "--help" in parameter.opts:
            continue
        is_option = parameter.param_type_name == "option"
        shown = parameter.opts[-1] if is_option else parameter.metavar or parameter.name
        start = r"\| `(?:-\w, )?" if is_option else r"\| `\[?"
        [row] = re.findall(rf"^{start}{re.escape(shown)}(?![\w-])[^`]*` \|.*$", rows, re.MULTILINE)
        assert row.rsplit("|", 2)[1].strip(), f"{name} {shown} has no help text"


def test_an_option_without_help_is_an_error(monkeypatch):
    app = typer.Typer()

    @app.command("one")
    def one(undocumented: int = typer.Option(1)):
        """Do one thing."""

    @app.command("two")
    def two():
        """Do another."""

    monkeypatch.setattr(GENERATED, "make_app", lambda: app)
    with pytest.raises(ValueError, match="--undocumented"):
        GENERATED.command_line()


def leaves(data, path=""):
    for key, value in data.items():
        yield from leaves(value, f"{path}{key}.") if isinstance(value, dict) else [f"{path}{key}"]


def test_every_recipe_field_is_listed_once():
    listed = re.findall(r"^\| `([\w.]+)` \|", GENERATED.recipe_fields(), re.MULTILINE)
    assert sorted(listed) == sorted(leaves(PRESETS["default"].to_dict()))


def test_presets_are_listed_with_their_values():
    [row] = [line for line in GENERATED.recipe_fields().splitlines() if line.startswith("| `schedule.learning_rate` |")]
    values = [preset.schedule.learning_rate for preset in PRESETS.values()]
    assert [float(cell.strip(" `")) for cell in row.split("|")[2 : 2 + len(values)]] == values


def test_every_public_name_and_error_is_listed():
    assert {f"::: ternarybert.{name}" for name in ternarybert.__all__} == set(GENERATED.python_api().split("\n\n"))
    ours = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert ours <= set(re.findall(r"^\| `(\w+)` \|", GENERATED.error_classes(), re.MULTILINE))


def test_every_c_function_is_on_the_page():
    header = GENERATED.HEADER.read_text(encoding="utf-8")
    page = GENERATED.c_header()
    functions = set(re.findall(r"TB_API [^;]*?(tb_\w+)\(", header))
    assert functions and all(f"{name}(" in page for name in functions)
    assert "#ifdef" not in page


def test_every_marker_has_a_generator():
    wanted = {name for page in PAGES for name in GENERATED._MARKER.findall(page.read_text(encoding="utf-8"))}
    assert wanted == set(GENERATED.GENERATORS)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_options_in_the_documents_exist(page):
    """Every option behind a command of ours, in every document."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    for name, rest in re.findall(r"ternarybert (\w+)([^`\n]*)", text):
        if name not in COMMANDS:
            continue
        parameters = APP.commands[name].params
        known = {"--help", *(option for each in parameters for option in [*each.opts, *each.secondary_opts])}
        used = set(re.findall(r"(?<=\s)--[a-z0-9-]+", rest.split("  #")[0]))
        assert used <= known, f"{page.name}: ternarybert {name} has no {', '.join(used - known)}"


IMPORT = re.compile(r"^(?:from (ternarybert[\w.]*) import ([\w, ]+)|import (ternarybert[\w.]*))", re.MULTILINE)


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_imports_and_names_in_the_documents_exist(page):
    """What the Python blocks import from this package, and every `ternarybert.name` that they use."""
    blocks = "".join(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
    for module, names, plain in IMPORT.findall(blocks):
        if module.startswith("ternarybert.integrations."):  # its library may not be installed here
            source = ROOT / "src" / f"{module.replace('.', '/')}.py"
            defined = {getattr(node, "name", None) for node in ast.parse(source.read_text(encoding="utf-8")).body}
            assert set(names.replace(" ", "").split(",")) <= defined, f"{page.name}: {module} has no {names}"
            continue
        imported = importlib.import_module(module or plain)
        for name in filter(None, names.replace(" ", "").split(",")):
            assert hasattr(imported, name), f"{page.name}: {module} has no {name}"
    for name in re.findall(r"\bternarybert\.(\w+)\(", blocks):
        assert name in ternarybert.__all__, f"{page.name}: ternarybert.{name} is not public"


SOURCES = [
    path
    for folder in ("src", "tests", "runs", "bench", "native", "examples")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in {".py", ".cc", ".c", ".h", ".jinja"}
]


def test_documents_that_the_sources_name_exist():
    named = {
        (path.relative_to(ROOT), document)
        for path in SOURCES
        for document in re.findall(r"\bdocs/[\w/.-]+\.(?:md|svg|png)", path.read_text(encoding="utf-8"))
    }
    assert named
    assert [pair for pair in sorted(named) if not (ROOT / pair[1]).exists()] == []
