"""`load("minilm")` finds the model of an installed wheel, and a folder of that name comes first."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ternarybert.errors import NotPackedError
from ternarybert.runtime import installed
from tests.embedders import packed_embedder

ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, sys
import ternarybert
from ternarybert.runtime.installed import installed_models
model = ternarybert.load("minilm")
assert "torch" not in sys.modules
print(json.dumps([str(model.folder), model.encode("a good film").tolist(), list(installed_models())]))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The wheel of models/minilm with a tiny model in it, built and installed into a folder."""
    work = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "models" / "minilm", work / "project", ignore=shutil.ignore_patterns("model", "*.egg-info"))
    packed_embedder(work / "project" / "src" / "ternarybert_minilm" / "model")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run(
        [*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", work / "dist", work / "project"],
        check=True,
        capture_output=True,
    )
    [wheel] = (work / "dist").glob("ternarybert_minilm-*.whl")
    subprocess.run(
        [*pip, "install", "--no-deps", "--no-index", "--target", work / "site", wheel], check=True, capture_output=True
    )
    return work / "site"


def run(site, place):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(site)])}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=place, env=environment, check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout)


def test_a_wheel_is_found_by_name(site, tmp_path):
    folder, vector, names = run(site, tmp_path)
    assert Path(folder) == site / "ternarybert_minilm" / "model" and names == ["minilm"]
    assert len(vector) == 32


def test_a_packed_folder_of_that_name_comes_first(site, tmp_path):
    (tmp_path / "minilm").mkdir()  # not a model: the installed one is meant
    assert Path(run(site, tmp_path)[0]).is_relative_to(site)
    (tmp_path / "minilm").rmdir()
    packed_embedder(tmp_path / "minilm", pooling="cls")
    folder, _, _ = run(site, tmp_path)
    assert Path(folder) == tmp_path / "minilm"


def test_names_and_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(installed, "entry_points", lambda group: [])  # the development environment has a model
    (tmp_path / "notes").mkdir()
    assert installed.model_folder("notes") == Path("notes")  # reading it says what is missing
    (tmp_path / "notes.tbert").touch()
    with pytest.raises(NotPackedError, match=r"notes\.tbert' is a file.*folders.*C and JavaScript"):
        installed.model_folder("notes.tbert")
    with pytest.raises(NotPackedError, match="note"):
        installed.model_folder("note")
    with pytest.raises(NotPackedError, match="minilm"):
        installed.model_folder("./minilm")
    with pytest.raises(NotPackedError, match="ternarybert-minilm"):
        installed.model_folder(Path("minilm"))


def test_a_package_without_a_folder(monkeypatch):
    from importlib.metadata import EntryPoint

    point = EntryPoint("made", "email", installed.GROUP)
    monkeypatch.setattr(installed, "entry_points", lambda group: [point])
    with pytest.raises(NotPackedError, match=r"email.*model"):
        installed.model_folder("made")
