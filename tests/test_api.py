"""The public names: complete, typed for users, and imported only when they are used."""

import subprocess
import sys
from pathlib import Path

import pytest
from mypy import api

import ternarybert

SOURCES = Path(ternarybert.__file__).parents[1]

USER = """
import ternarybert
reveal_type(ternarybert.load("x"))
reveal_type(ternarybert.load_torch)
reveal_type(ternarybert.finetune)
reveal_type(ternarybert.ternarize)
reveal_type(ternarybert.evaluate)
reveal_type(ternarybert.predict_file)
reveal_type(ternarybert.compare_methods)
reveal_type(ternarybert.reproduce)
reveal_type(ternarybert.load_table("x.csv").train)
reveal_type(ternarybert.load_glue)
reveal_type(ternarybert.load_squad)
reveal_type(ternarybert.Recipe().name)
reveal_type(ternarybert.TrainingOptions().seed)
reveal_type(ternarybert.__version__)
ternarybert.tenarize
ternarybert.load(3)
"""
REVEALED = {
    "load": "ternarybert.runtime.model.Model",
    "load_torch": "def (",
    "finetune": "def (",
    "ternarize": "def (",
    "evaluate": "def (",
    "predict_file": "def (",
    "compare_methods": "ternarybert.compare.grid.ComparisonResult",
    "reproduce": "ternarybert.compare.grid.Reproduction",
    "load_table": "",
    "load_glue": "def (",
    "load_squad": "def (",
    "Recipe": "str",
    "TrainingOptions": "int",
    "__version__": "str",
}
# Other packages are Any, which makes this a matter of seconds.
CONFIG = """[mypy]
follow_imports = skip
[mypy-ternarybert.*]
follow_imports = silent
"""


def test_mypy_sees_the_types_in_a_users_file(tmp_path, monkeypatch):
    monkeypatch.setenv("MYPYPATH", str(SOURCES))
    (tmp_path / "user.py").write_text(USER)
    (tmp_path / "mypy.ini").write_text(CONFIG)
    arguments = ["--config-file", tmp_path / "mypy.ini", "--cache-dir", tmp_path / "cache", tmp_path / "user.py"]
    out, err, _ = api.run([*map(str, arguments)])
    assert not err
    notes = [line.partition("Revealed type is ")[2] for line in out.splitlines() if "Revealed type" in line]
    assert len(notes) == len(REVEALED), out
    for (name, wanted), note in zip(REVEALED.items(), notes, strict=True):
        assert wanted in note and note.strip('"') != "Any", f"{name}: {note}"
    errors = [line for line in out.splitlines() if ": error: " in line]
    assert len(errors) == 2, out
    assert "tenarize" in errors[0] and '"load"' in errors[1]


def test_every_public_name_is_there():
    for name in ternarybert.__all__:
        assert getattr(ternarybert, name) is not None
        assert name in dir(ternarybert)
    assert ternarybert.ternarize.__module__ == "ternarybert.training.ternarize"
    assert ternarybert.finetune.__module__ == "ternarybert.training.finetune"
    assert ternarybert.evaluate.__module__ == "ternarybert.training.evaluate"
    assert callable(ternarybert.compare_methods) and callable(ternarybert.compare_methods), "the second time as well"
    with pytest.raises(AttributeError, match="tenarize"):
        _ = ternarybert.tenarize


def test_a_star_import_gives_the_public_names():
    namespace = {}
    exec("from ternarybert import *", namespace)
    assert {*ternarybert.__all__} <= {*namespace}


@pytest.mark.parametrize(
    ("use", "heavy"),
    [
        ("", "torch transformers datasets numpy typer rich yaml tokenizers"),
        ("ternarybert.load", "torch transformers datasets typer rich"),
        ("ternarybert.load_table", "torch transformers typer rich"),
        ("ternarybert.Recipe", "torch transformers datasets typer rich"),
        ("ternarybert.compare_methods, ternarybert.reproduce", "torch transformers datasets typer rich"),
    ],
)
def test_nothing_is_imported_before_it_is_needed(use, heavy):
    script = f"import sys, ternarybert\n{use}\nprint(*sorted(set({heavy.split()!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("name", ["ternarize", "finetune", "evaluate", "load_torch", "compare_methods", "reproduce"])
def test_without_torch_the_extra_is_named(name):
    """A base install; the error is ours, and an ImportError as well."""
    code = f"""
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
import ternarybert
try:
    if "{name}" == "compare_methods":
        ternarybert.compare_methods("teacher", None, "out")
    elif "{name}" == "reproduce":
        ternarybert.reproduce("main", "out", tasks=["rte"], data="nowhere")
    else:
        ternarybert.{name}
except ternarybert.errors.TernaryBertError as error:
    assert isinstance(error, ImportError) or "nowhere" in str(error), error
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "ternarybert[train]" in done.stdout or "nowhere" in done.stdout
