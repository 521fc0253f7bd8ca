"""`ternarybert report`: what it writes and says, what it needs, and a line for mistakes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny
from tests.report import world
from tests.report.test_activations import save_student

from .shell import command


@pytest.fixture
def folder(tmp_path):
    return world.save(tmp_path / "small", world.metrics())


def test_a_report_in_the_folder(folder):
    code, out, err = command("report", folder)
    assert (code, out) == (0, "")
    assert f"{folder}/report/report.html" in err.splitlines()[-1] and "model card" in err.splitlines()[-1]
    assert "report/zeros.png" in (folder / "README.md").read_text()
    assert command("report", folder)[0] == 0  # again


def test_json(folder, tmp_path):
    code, out, _ = command("report", folder, "--output", tmp_path / "out", "--json")
    said = json.loads(out)
    assert code == 0
    assert said["report"] == str(tmp_path / "out" / "report.html")
    assert said["figures"] and all(Path(path).is_file() for path in said["figures"])
    assert said["card"] is False


def test_several(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    world.save(tmp_path / "other", world.metrics(), bits="3-3-8")
    code, _, err = command("report", "small", "other")
    assert code == 0, err
    page = (tmp_path / "report" / "report.html").read_text()
    assert "2 models side by side" in page
    assert not (folder / "report").exists()


def test_with_the_teacher_and_texts(tmp_path):
    tiny.save(tmp_path / "teacher")
    student = save_student(tmp_path / "student")
    (tmp_path / "texts.txt").write_text("we hated the acting\n")
    code, _, err = command(
        "report",
        student,
        "--teacher",
        tmp_path / "teacher",
        "--text",
        "a <b>good</b> film",
        "--texts",
        tmp_path / "texts.txt",
    )
    assert code == 0, err
    page = (student / "report" / "report.html").read_text()
    assert "a &lt;b&gt;good&lt;/b&gt; film" in page
    assert "we hated the acting" in page
    names = {path.stem for path in (student / "report").glob("*.png")}
    assert {"error", "hidden", "heads", "attention-1-layer-1", "attention-2-layer-2", "weights-word-embedding"} <= names


def test_speed(folder, tmp_path):
    engine = {
        "name": "ternarybert",
        "ms": {"1x16": 2.5},
        "ratios": {"1x16": 1.0},
        "memory": 9e6,
        "peak": 0,
        "error": 0.0,
    }
    timed = {
        "model": "6 layers x 384",
        "cpu": "a CPU",
        "kernel": "avx2",
        "threads": 1,
        "batches": ["1x16"],
        "engines": [{**engine, "failed": None}, {"name": "other", "failed": "not <installed>"}],
    }
    (tmp_path / "bench.json").write_text(json.dumps(timed))
    assert command("report", folder, "--bench", tmp_path / "bench.json")[0] == 0
    page = (folder / "report" / "report.html").read_text()
    assert "2.50 (1.00x)" in page
    assert "6 layers x 384, 1 thread, kernel avx2, a CPU" in page
    assert "other: not timed, not &lt;installed&gt;" in page


@pytest.mark.parametrize(
    "arguments, reason",
    [
        (["nowhere"], "nowhere"),
        (["smal"], "'small'"),
        (["small", "--text", "a film"], "--text has no effect without --teacher"),
        (["small", "--teacher", "nowhere"], "nowhere"),
        (["small", "--teacher", "small"], "small"),
        (["small", "--bench", "nowhere.json"], "nowhere.json"),
        (["small", "--bench", "small/config.json"], "small/config.json"),
        (["small", "small"], "twice"),
        (["small", "--output", "small"], "small"),
        (["small", "--output", "small/config.json"], "small/config.json"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_one_line(folder, tmp_path, monkeypatch, arguments, reason):
    monkeypatch.chdir(tmp_path)
    code, out, err = command("report", *arguments)
    assert (code, out) == (2, "")
    assert reason in err
    assert len(err.splitlines()) == 1
    assert not (folder / "report").exists()


@pytest.mark.parametrize("missing", ["matplotlib", "jinja2"])
def test_without_the_extra(folder, monkeypatch, missing):
    for name in [name for name in sys.modules if name.startswith("ternarybert.report")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    code, _, err = command("report", folder)
    assert (code, err) == (2, f"ternarybert: {missing} is missing: pip install 'ternarybert[report]'\n")


def test_no_torch_without_a_teacher(folder):
    code = (
        "import sys; from ternarybert.cli import app; "
        f"app(['report', {str(folder)!r}], standalone_mode=False); "
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False"
