"""Modules, files and functions that the documents name exist: a stranger finds what the map shows."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "ternarybert"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# Paths in the documents are relative to one of these.
BASES = [ROOT, PACKAGE, ROOT / "tests", ROOT / "native", ROOT / "native" / "src", ROOT / "native" / "src" / "kernels"]
ELSEWHERE = {"data_augmentation.py"}  # the released script


def tree():
    """Files and folders that the README's map names, as paths below the package."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    block = readme.partition("\nsrc/ternarybert/\n")[2].partition("\nnative/")[0]
    named, folder = set(), Path()
    for line in block.splitlines():
        if top := re.match(r"  (\w+/|\w+\.py)", line):
            folder = Path(top[1]) if top[1].endswith("/") else Path()
            named.add(Path(top[1]))
        named |= {folder / name for name in re.findall(r"\b\w+\.py\b|\b\w+/(?=  )", line) if Path(name) != folder}
    return named


def test_the_map_names_nothing_that_is_not_there():
    assert [str(path) for path in sorted(tree()) if not (PACKAGE / path).exists()] == []


def test_the_map_names_every_folder_and_top_module():
    modules = {Path(path.name) for path in PACKAGE.glob("*.py")} - {Path("__main__.py")}
    folders = {Path(path.parent.name) for path in PACKAGE.glob("*/__init__.py")}
    assert modules | folders <= tree()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_exist(page):
    named = set(re.findall(r"`([\w/-]+\.(?:py|cc|c|h))(?:::\w+)?`", page.read_text(encoding="utf-8"))) - ELSEWHERE
    assert [name for name in sorted(named) if not any((base / name).exists() for base in BASES)] == []


def resolve(name):
    """The module or attribute of a dotted name below the package."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(["ternarybert", *parts[:count]]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise AttributeError(name)


def equations():
    page = (ROOT / "docs" / "explanation" / "paper.md").read_text(encoding="utf-8")
    table = page.partition("## Equations and algorithms")[2].partition("\n## ")[0]
    rows = [row.split(" | ") for row in table.splitlines() if row.startswith("| ")][1:]
    return [name for row in rows for name in re.findall(r"`([a-z]+(?:\.\w+)+)(?:\([^`]*\))?`", row[1])]


@pytest.mark.parametrize("name", sorted(set(equations())))
def test_every_equation_has_its_function(name):
    resolve(name)
