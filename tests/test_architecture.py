"""Imports follow the data and never turn back: the layers of docs/development/hacking.md, read from the sources."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "src" / "ternarybert"

# Who may import whom. Everyone may import the small modules at the top (errors, recipe, ...).
ALLOWED = {
    "quantize": set(),
    "data": set(),
    "packed": set(),
    "student": {"quantize"},
    "augment": {"data", "packed"},
    "training": {"student", "quantize", "data", "packed", "augment"},
    "compare": {"training", "augment", "student", "quantize", "data", "packed"},
    "hf": {"packed", "student", "quantize"},
    "runtime": {"packed", "data"},
    "bench": {"runtime", "packed", "hf"},
    "report": {"bench", "runtime", "packed", "data", "student", "training"},
    "export": {"runtime", "packed"},
    "serve": {"runtime"},
    "embedding_evaluation": {"training", "runtime", "packed", "data"},
    "search": {"runtime", "packed", "data"},
    "mteb_model": {"runtime"},
    "scale": {"runtime"},
    "integrations": {"runtime"},
    "doctor": {"bench", "runtime", "packed"},
    "demo": {"bench", "training", "runtime", "packed", "data"},
}
ALLOWED["cli"] = set(ALLOWED)
TOP = {"errors", "families", "recipe", "recipe_io", "numerics", "native", "locks", "storage", "__init__", "__main__"}
TORCH_FREE = {"packed", "runtime", "data", "serve", "export", "doctor", "scale", "integrations", *TOP}
HEAVY = {"torch", "transformers"}


def imports(path: Path) -> set[str]:
    """Dotted names that a source file imports, wherever in it; relative ones made absolute."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = (
                ["ternarybert", *path.relative_to(PACKAGE).parts[:-1]][: -node.level + 1 or None] if node.level else []
            )
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return found


def part_of(path: Path) -> str:
    """The folder below the package, or the module's own name."""
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_import_turns_back(path):
    part = part_of(path)
    assert part in ALLOWED or part in TOP, f"say in this test what {part} may import"
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("ternarybert.")}
    folders = {name for name in ours if (PACKAGE / name).is_dir()}
    if part not in {"__init__", "__main__"}:
        assert folders - {part} <= ALLOWED.get(part, set())
    if part in TORCH_FREE and part != "__init__":
        assert not {name.split(".")[0] for name in imports(path)} & HEAVY


def test_class_names_are_unique():
    """A name means one thing in the whole package, so that a search for it ends at once."""
    places = defaultdict(list)
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                places[node.name.strip("_")].append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    twice = [f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1]
    assert not twice, "\n".join(twice)


# No metaphors: a teacher model is a teacher model, its cached outputs are a cache, and a message is a message.
METAPHORS = {"classroom", "lesson", "pupil", "teach", "said", "hear"}


def words_of(name: str) -> list[str]:
    """TeacherCache and teacher_cache are both teacher, cache."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_").split("_")


def names_in(tree: ast.AST) -> set[str]:
    """Everything that a source file gives a name to."""
    given = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    given |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    defined = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return given | {node.name for node in ast.walk(tree) if isinstance(node, defined)}


def test_names_are_those_of_the_field():
    found = {
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in SOURCES
        for name in {path.stem} | names_in(ast.parse(path.read_text(encoding="utf-8")))
        if METAPHORS & set(words_of(name))
    }
    assert not found, "\n".join(sorted(found))
