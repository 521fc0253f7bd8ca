import errno
import json
import subprocess
import sys

import pytest

from ternarybert.cli import main
from ternarybert.cli.console import STOPPED
from tests.augment import language
from tests.augment.conftest import masked_folder, model, tokenizer  # noqa: F401
from tests.data.conftest import write_glue


@pytest.fixture
def run(monkeypatch, capsys):
    """The command in this process: exit code, standard output, standard error."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["ternarybert", "augment", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return (ended.value.code or 0, *capsys.readouterr())

    return call


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text("text,label\nmi animala animalx,1\nka colorb,0\n\nzo toola toolb,1\n")
    return path


@pytest.fixture
def glove(tmp_path):
    path = tmp_path / "glove.txt"
    path.write_text("".join(f"{word} {i} 1\n" for i, word in enumerate(["animalx", "animaly", "animalz"])))
    return path


@pytest.fixture
def stop_words(tmp_path):
    path = tmp_path / "stop.txt"
    path.write_text("\n".join(language.MARKERS))
    return path


def test_a_table_with_a_model_and_glove(run, table, glove, stop_words, masked_folder, tmp_path):  # noqa: F811
    outputs = {}
    for batch in (1, 64):
        out = tmp_path / f"out{batch}.csv"
        words = ("--masked-model", masked_folder, "--glove", glove, "--stop-words", stop_words)
        code, stdout, stderr = run(out, "--train", table, *words, "--batch-size", batch, "--threads", 1, "--json")
        assert code == 0, stderr
        outputs[batch] = out.read_bytes()
        report = json.loads(stdout)
        assert report["rows"] == 3
        assert report["written"] == len(out.read_text().splitlines()) - 1 > 20
        assert report["resumed"] == 0
        assert masked_folder.name in report["source"] and "glove.txt" in report["source"]
    assert outputs[1] == outputs[64]
    assert "3 rows, texts 'text', up to 20 variants each" in stderr
    assert "no --masked-model" not in stderr and "no --glove" not in stderr
    assert b"animaly" in outputs[1]


def test_what_is_missing_is_said(run, table, glove, masked_folder, tmp_path):  # noqa: F811
    _, _, stderr = run(tmp_path / "a.csv", "--train", table, "--embeddings", masked_folder)
    assert "no --masked-model" in stderr
    assert "no --glove" in stderr
    _, _, stderr = run(tmp_path / "b.csv", "--train", table, "--masked-model", masked_folder)
    assert "no --masked-model" not in stderr
    assert "no --glove" in stderr


def test_a_glue_task(run, glove, tmp_path):
    folder = write_glue(tmp_path, "STS-B", "train", ["0\tg\tf\t2012\t1\tn\tn\tanimalx.\tanimaly animalz\t4.750"])
    out = tmp_path / "out" / "train.tsv"
    code, _, stderr = run(out, "--task", "STS-B", "--data", folder, "--glove", glove)
    assert code == 0, stderr
    assert "up to 30 variants each" in stderr
    assert "the paper does not augment stsb" in stderr
    assert len(out.read_text().splitlines()) > 5


def test_an_existing_file_is_kept_unless_forced(run, table, glove, tmp_path):
    out = tmp_path / "out.csv"
    out.write_text("precious")
    code, _, stderr = run(out, "--train", table, "--glove", glove)
    assert code == 2
    assert str(out) in stderr.splitlines()[-1] and "--force" in stderr.splitlines()[-1]
    assert out.read_text() == "precious"
    assert run(out, "--train", table, "--glove", glove, "--force")[0] == 0


def test_interrupted_and_continued(run, table, glove, tmp_path, monkeypatch):
    out = tmp_path / "out.csv"
    with monkeypatch.context() as patch:
        patch.setattr("ternarybert.augment.variants._CHUNK_WORDS", 1)
        patch.setattr("ternarybert.storage.ResumableFile.finish", lambda self: interrupt())
        code, _, stderr = run(out, "--train", table, "--glove", glove)
    assert code == 130
    assert f"ternarybert: {STOPPED}" in stderr
    assert not out.exists()
    code, _, stderr = run(out, "--train", table, "--glove", glove)
    assert "3 rows (3 of them by an earlier run)" in stderr
    whole = tmp_path / "whole.csv"
    run(whole, "--train", table, "--glove", glove)
    assert out.read_bytes() == whole.read_bytes()


def interrupt():
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "--train"),
        (("--train", "TABLE", "--task", "rte"), "--train"),
        (("--train", "TABLE", "--data", "x"), "--data x"),
        (("--task", "rte", "--text", "a"), "--text has no effect"),
        (("--task", "rte", "--label", "a"), "--label has no effect"),
        (("--train", "TABLE", "--glove", "GLOVE", "--masks", "1"), "--masks has no effect"),
        (("--train", "TABLE", "--glove", "GLOVE", "--device", "cpu"), "--device has no effect"),
        (("--train", "TABLE", "--glove", "GLOVE", "--threads", "2"), "--threads has no effect"),
        (("--train", "TABLE", "--glove", "GLOVE", "--batch-size", "3"), "--batch-size has no effect"),
        (("--train", "TABLE", "--glove", "GLOVE", "--max-length", "9"), "--max-length has no effect"),
        (("--train", "TABLE"), "masked"),
        (("--train", "missing.csv", "--glove", "GLOVE"), "missing.csv"),
        (("--train", "TABLE", "--glove", "missing.txt"), "missing.txt"),
        (("--train", "TABLE", "--glove", "TABLE"), "train.csv"),
        (("--train", "TABLE", "--glove", "GLOVE", "--text", "txet"), "'text'"),
        (("--train", "TABLE", "--masked-model", "./missing"), "./missing"),
        (("--train", "TABLE", "--embeddings", "./missing"), "missing"),
        (("--train", "TABLE", "--glove", "GLOVE", "--stop-words", "missing"), "missing"),
        (("--task", "ret", "--glove", "GLOVE"), "'ret'"),
    ],
)
def test_a_mistake_is_one_line(run, table, glove, tmp_path, arguments, message):
    given = [{"TABLE": table, "GLOVE": glove}.get(argument, argument) for argument in arguments]
    code, stdout, stderr = run(tmp_path / "out.csv", *given)
    assert code == 2
    assert stdout == ""
    assert message in stderr
    assert stderr.startswith("ternarybert: ")
    assert len(stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out.csv").exists()


def test_a_mistake_is_said_before_the_model_is_loaded(run, table, tmp_path):
    (tmp_path / "out.csv").write_text("precious")
    assert "out.csv" in run(tmp_path / "out.csv", "--train", table, "--masked-model", "./none")[2]
    assert "'.parquet'" in run(tmp_path / "out.parquet", "--train", table, "--masked-model", "./none")[2]


def test_the_hub_is_not_asked_in_silence(run, table, tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for option in ("--masked-model", "--embeddings"):
        _, _, stderr = run(tmp_path / "out.csv", "--train", table, option, "no/such")
        assert stderr.startswith("no local folder 'no/such'; looking on the Hugging Face Hub\nternarybert: ")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "the disk is full"),
        (OSError(errno.EIO, "Input/output error"), "Input/output error"),
        (RuntimeError("CUDA out of memory. Tried to"), "out of memory; try a smaller --batch-size"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "torch is missing: pip install 'ternarybert[tr"),
    ],
)
def test_a_failure_of_the_machine_is_one_line(run, table, glove, tmp_path, monkeypatch, error, message):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr("ternarybert.storage.ResumableFile.append", fail)
    code, _, stderr = run(tmp_path / "out.csv", "--train", table, "--glove", glove)
    assert code == 2
    assert stderr.splitlines()[-1].startswith(f"ternarybert: {message}")


def test_a_masked_language_model_without_torch(run, table, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    code, _, stderr = run(tmp_path / "out.csv", "--train", table, "--masked-model", tmp_path)
    assert code == 2
    assert stderr.count("\n") == 1 and "pip install 'ternarybert[train]'" in stderr


def test_rows_to_evaluate_on_are_asked_for(run, table, glove, tmp_path):
    stderr = run(tmp_path / "out.csv", "--train", table, "--glove", glove)[2]
    assert "--eval" in stderr.splitlines()[-1]
    folder = write_glue(tmp_path, "CoLA", "train", ["gj04\t1\t\tanimalx animaly"])
    assert "--eval" not in run(tmp_path / "out.tsv", "--task", "cola", "--data", folder, "--glove", glove)[2]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["我喜欢这部电影"] * 30, "no row got a variant"),
        ([*["nobody knows"] * 50, "animalx"], "51 rows got 2 variants"),
        (["animalx animaly"], None),
    ],
)
def test_nothing_to_replace_is_said(run, glove, tmp_path, rows, said):
    (tmp_path / "a.txt").write_text("\n".join(rows), encoding="utf-8")
    stderr = run(tmp_path / "b.txt", "--train", tmp_path / "a.txt", "--glove", glove)[2]
    assert said in stderr if said else "variant:" not in stderr
    (tmp_path / "b.txt").unlink()
    as_asked = run(tmp_path / "b.txt", "--train", tmp_path / "a.txt", "--glove", glove, "--variants", 0)[2]
    assert "variant:" not in as_asked and "variants:" not in as_asked


def test_a_log_gets_a_line_now_and_then(run, glove, tmp_path, monkeypatch):
    monkeypatch.setattr("ternarybert.augment.variants._CHUNK_WORDS", 1)
    monkeypatch.setattr("ternarybert.cli.console._LOG_INTERVAL", 0.0)  # seconds
    (tmp_path / "a.txt").write_text("animalx\n" * 40)
    stderr = run(tmp_path / "b.txt", "--train", tmp_path / "a.txt", "--glove", glove)[2]
    shown = [line.split()[1] for line in stderr.splitlines() if line.startswith("row ")]
    assert shown[-1] == "40/40" and len(shown) >= 40


def test_a_kind_of_file_that_cannot_be_written(run, table, glove, tmp_path):
    code, _, stderr = run(tmp_path / "out.parquet", "--train", table, "--glove", glove)
    assert code == 2
    assert "'.parquet'" in stderr


def test_help_does_not_import_torch():
    script = (
        "import sys; sys.argv = ['ternarybert', 'augment', '--help']\n"
        "from ternarybert.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "assert not {'torch', 'transformers', 'datasets', 'numpy'} & set(sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert "--masked-model" in shown
