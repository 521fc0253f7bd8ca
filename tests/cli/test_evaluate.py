"""`evaluate --engine native`: the scores of torch, without it."""

import json
import subprocess
import sys
import zipfile

import pytest

from ternarybert.data import GLUE, load_table
from ternarybert.data.submission import TEST_SETS
from ternarybert.runtime.evaluate import evaluate as run
from tests.data.test_submission import HEADERS, write_mnli, write_test_file
from tests.runtime.folders import save_student

from .conftest import MOODS, sentences, write_csv
from .shell import command

LABELS = {"id2label": dict(enumerate(MOODS)), "label2id": {name: i for i, name in enumerate(MOODS)}}


@pytest.fixture(scope="session")
def student(tmp_path_factory):
    return save_student(tmp_path_factory.mktemp("packed") / "model", "ForSequenceClassification", **LABELS)


@pytest.fixture
def rows(tmp_path):
    return write_csv(tmp_path / "dev.csv", ["text", "mood"], sentences(60))


def evaluate(*arguments):
    code, out, err = command("evaluate", *arguments, "--json")
    assert code == 0, err
    return json.loads(out.splitlines()[-1])


def test_the_scores_of_torch(student, rows):
    arguments = [student, "--eval", rows, "--label", "mood", "--max-length", "9"]
    torch, native = evaluate(*arguments), evaluate(*arguments, "--engine", "native")
    for key in ("task", "metric", "scores", "sets", "confusion", "rows"):
        assert native[key] == torch[key]
    assert native.keys() == torch.keys()
    assert native["versions"]["kernel"] != "oracle"


@pytest.mark.parametrize("task", ["mrpc", "stsb", "sst2", "cola", "rte", "mnli"])
def test_both_engines_write_the_same_submission(tmp_path, task):
    """A row for each of the test file's, in its order, after the server's header."""
    if task == "mnli":
        write_mnli(tmp_path / "glue", "diagnostic/diagnostic.tsv")
    else:
        write_test_file(tmp_path / "glue" / HEADERS[task][0], HEADERS[task][1], rows=40)
    labels = GLUE[task].task.labels or ("similarity",)
    names = {"id2label": dict(enumerate(labels)), "label2id": {name: i for i, name in enumerate(labels)}}
    student = save_student(tmp_path / "model", "ForSequenceClassification", num_labels=len(labels), **names)
    written = {}
    for engine in ("torch", "native"):
        archive = tmp_path / f"{engine}.zip"
        flags = ["--task", task, "--data", tmp_path / "glue", "--engine", engine, "--submission", archive, "--json"]
        code, out, err = command("evaluate", student, *flags)
        assert code == 0, err
        assert set(json.loads(out.splitlines()[-1])["files"]) == {f"{stem}.tsv" for stem in TEST_SETS[task]}
        written[engine] = archive.read_bytes()
    assert written["torch"] == written["native"]
    for stem in TEST_SETS[task]:
        with zipfile.ZipFile(tmp_path / "native.zip") as archive:
            header, *lines = archive.read(f"{stem}.tsv").decode().splitlines()
        assert header == "index\tprediction"
        assert [line.split("\t")[0] for line in lines] == [str(i) for i in range(3 if task == "mnli" else 40)]


def test_how_far_it_is(student, rows, monkeypatch):
    """Told between parts of the rows, whose answers are put together again."""
    told = []
    data = load_table(None, rows, label="mood")
    whole = run(student, data)
    monkeypatch.setattr("ternarybert.runtime.evaluate._CHUNK", 25)
    assert run(student, data, status=told.append)["scores"] == whole["scores"]
    assert [line.split()[-1] for line in told] == ["42%", "83%", "100%"]


def test_a_packed_teacher(student, rows, tmp_path):
    report = evaluate(student, "--eval", rows, "--label", "mood", "--engine", "native", "--teacher", student)
    assert report["scores"]["agreement"] == 100


def test_without_labels_there_is_the_teacher(student, tmp_path):
    unlabeled = write_csv(tmp_path / "texts.csv", ["text"], [[text] for text, _ in sentences(20)])
    report = evaluate(student, "--eval", unlabeled, "--engine", "native", "--teacher", student)
    assert report["metric"] == "agreement"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--engine", "natve"], "'native'"),
        (["--engine", "native", "--teacher", "nowhere"], "--engine torch"),
        (["--engine", "native", "--text", "txet"], "'text'"),
        (["--engine", "native", "--device", "cuda"], "--device has no effect with --engine native"),
        (["--engine", "native", "--batch-size", "64"], "--batch-size has no effect with --engine native"),
        (["--engine", "oracle", "--threads", "2"], "--threads has no effect with --engine oracle"),
    ],
)
def test_mistakes(student, rows, arguments, reason):
    code, _, err = command("evaluate", student, "--eval", rows, "--label", "mood", *arguments)
    assert code == 2
    assert reason in err
    assert "Traceback" not in err


def test_a_tagger_needs_tags(tmp_path, rows):
    folder = save_student(tmp_path / "words", "ForTokenClassification")
    code, _, err = command("evaluate", folder, "--eval", rows, "--engine", "native")
    assert code == 2
    assert "have no labels" in err


def test_no_torch_is_needed(student, rows):
    """Neither torch nor datasets: what a base install has is enough."""
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['torch', 'transformers', 'datasets', 'pandas', 'pyarrow']))\n"
        "from ternarybert.cli import main; main()"
    )
    line = [sys.executable, "-c", code, "evaluate", student, "--eval", rows, "--label", "mood", "--engine", "native"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "accuracy" in done.stdout
