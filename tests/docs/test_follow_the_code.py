"""The walks of docs/development/follow-the-code.md lead through functions that exist, and stay short."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "development" / "follow-the-code.md").read_text(encoding="utf-8")
REFERENCE = re.compile(r"`([\w/]+\.(?:py|cc)):([\w.:]+)`")


@pytest.fixture(scope="module")
def generated():
    spec = importlib.util.spec_from_file_location("generated", ROOT / "docs" / "generated.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def walk(title):
    section = PAGE.partition(f"## {title}")[2].partition("\n## ")[0]
    return section, [row for row in section.splitlines() if re.match(r"\| \d", row)]


@pytest.mark.parametrize("path, name", sorted(set(REFERENCE.findall(PAGE))))
def test_every_step_exists(generated, path, name):
    line = generated.line_of(path, name)
    text = generated.source_path(path).read_text(encoding="utf-8").splitlines()[line - 1]
    assert name.rpartition(".")[2] in text


def test_a_name_that_is_not_there_is_an_error(generated):
    with pytest.raises(ValueError, match="nothing_like_it"):
        generated.line_of("runtime/load.py", "nothing_like_it")
    with pytest.raises(ValueError, match="tb_nothing"):
        generated.line_of("native/src/api.cc", "tb_nothing")


def test_the_walks_are_short():
    _, hops = walk("One text through `predict`")
    assert len(hops) <= 15
    section, _ = walk("One batch through `ternarize`")
    assert len({path for path, _ in REFERENCE.findall(section)}) <= 25
