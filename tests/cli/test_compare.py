"""`compare` and `reproduce` on tiny models: what they say, write and refuse, and that a kill loses nothing."""

import json
import os
import random
import signal
import time
import zipfile

import pytest

from ternarybert.cli.console import STOPPED
from tests import tiny
from tests.processes import fork

from .conftest import COLUMNS

QUICK = ("--max-steps", "4", "--device", "cpu")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def test_a_comparison_is_a_table_and_a_figure(run, teacher, table, out):
    methods = [
        "--method",
        "ternarybert",
        "--method",
        "qbert",
        "--method",
        "gobo",
        "--bits",
        "2-2-8",
        "--bits",
        "2-2-32",
    ]
    result = run(
        "compare", teacher, "--train", table, *COLUMNS, *methods, "--bits", "4-8-8", *QUICK, "-o", out, "--json"
    )
    assert result.code == 0, result.err
    found = json.loads(result.out.splitlines()[-1])
    assert [(row["label"], row["bits"]) for row in found["rows"]] == [
        ("teacher", "32-32-32"),
        ("TernaryBERT", "2-2-8"),
        ("TernaryBERT", "2-2-32"),
        ("Q-BERT", "2-2-8"),
        ("Q-BERT", "4-8-8"),
        ("GOBO", "2-2-32"),
    ]
    assert all(row["failed"] is None and row["scores"]["accuracy"] >= 0 for row in found["rows"])
    written = (out / "table.md").read_text()
    assert "| TernaryBERT | 2-2-8 |" in written
    assert json.loads((out / "table.json").read_text())["metric"] == found["metric"]
    assert (out / "figure.svg").is_file() and (out / "figure.png").is_file()
    assert "1 of 5: TernaryBERT 2-2-8" in result.err

    again = run("compare", teacher, "--train", table, *COLUMNS, *methods, "--bits", "4-8-8", *QUICK, "-o", out)
    assert "5 of 5 are already done" in again.out
    assert "1 of" not in again.out

    more = run("compare", teacher, "--train", table, *COLUMNS, "--method", "minmax", *QUICK, "-o", out)
    assert "Q-BERT" not in more.out, "the screen shows what was asked for"
    whole = (out / "table.md").read_text()
    assert whole.index("post-training min-max") < whole.index("| Q-BERT | 4-8-8 |"), "the folder has all"


def test_a_killed_comparison_is_finished_by_the_same_command(run, teacher, table, out):
    command = ["compare", teacher, "--train", table, *COLUMNS, "--method", "q8bert", "--device", "cpu", "-o", out]
    command += ["--seed", "1", "--seed", "2", "--minutes-per-cell", "0.05"]
    command.append("--processor-time")  # other programs on the machine must not decide a test
    process = fork("-m", "ternarybert", *command)
    first = out / "cells" / "q8bert-8-8-8-seed-1.json"
    deadline = time.monotonic() + 300
    while not first.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert first.exists()
    before = first.stat().st_mtime_ns
    result = run(*command)
    assert result.code == 0, result.err
    assert first.stat().st_mtime_ns == before
    assert "1 of 2 are already done" in result.out
    results = [json.loads(path.read_text()) for path in sorted((out / "cells").glob("*.json"))]
    assert len(results) == 2
    for each in results:
        assert each["seconds"] == pytest.approx(60 * 0.05, abs=0.5)
    assert not list((out / "cells").glob("*.work"))


def test_ctrl_c_says_how_to_go_on(teacher, table, out):
    process = fork("-m", "ternarybert", "compare", teacher, "--train", table, *COLUMNS, "--method", "q8bert", "-o", out)
    deadline = time.monotonic() + 120
    while not list(out.glob("cells/*.work")) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert STOPPED in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "options, said",
    [
        (["--method", "qbrt"], "'qbert'"),
        (["--method", "gobo", "--bits", "2-8-8"], "2-8-8"),
        (["--preset", "granularty"], "'granularity'"),
        (["--preset", "all", "--method", "gobo"], "--preset all"),
        (["--bits", "2-8-8"], "--bits 2-8-8"),
        (["--budget", "5", "--max-steps", "3"], "--budget and --max-steps"),
        (["--budget", "0"], "--budget"),
        (["--source", "bert=x"], "'bert'"),
        (["--source", "x"], "--source"),
        (["--task", "rte"], "--task rte"),
        (["--recipe", "papr"], "'paper'"),
    ],
)
def test_mistakes(fails, teacher, table, out, options, said):
    assert said in fails("compare", teacher, "--train", table, *COLUMNS, *options, "-o", out)
    assert not out.exists()


def test_another_comparison_in_the_folder_is_not_lost(run, fails, teacher, table, out):
    command = ["compare", teacher, "--train", table, *COLUMNS, "--method", "gobo", "--device", "cpu", "-o", out]
    assert run(*command).code == 0
    assert "minutes per cell" in fails(*command, "--minutes-per-cell", "3")
    assert run(*command, "--minutes-per-cell", "3", "--force").code == 0


@pytest.fixture
def glue(tmp_path):
    """RTE in its original layout, of a few dozen made pairs."""
    rng, folder = random.Random(0), tmp_path / "glue" / "RTE"
    folder.mkdir(parents=True)
    for name, count in (("train", 40), ("dev", 16)):
        lines = ["index\tsentence1\tsentence2\tlabel"]
        for i in range(count):
            one, two = (" ".join(rng.choices(tiny.WORDS, k=4)) for _ in range(2))
            lines.append(f"{i}\t{one}\t{two}\t{('entailment', 'not_entailment')[i % 2]}")
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return folder.parent


def test_an_experiment_of_the_paper_beside_ours(run, encoder, glue, out):
    command = ["reproduce", "distillation", "--model", encoder, "--data", glue, "-o", out, *QUICK]
    result = run(*command, "--json")
    assert result.code == 0, result.err
    assert "cola is left out" in result.err
    found = json.loads(result.out.splitlines()[-1])
    assert "not BERT-base" in found["notes"][0]
    full, trm, labels = found["rows"]
    for row, printed in ((full, 72.9), (trm, 69.0), (labels, 56.3)):
        ours = row["tasks"]["rte"]
        assert ours["printed"] == [printed]
        assert ours["differences"] == pytest.approx([ours["ours"][0] - printed])
        assert row["tasks"]["cola"]["ours"] is None
    text = (out / "distillation.md").read_text()
    assert "| -Trm-logits | 2-2-8 |" in text and "Table 6" in text

    other = run("reproduce", "init", "--model", encoder, "--data", glue, "--task", "rte", "-o", out, *QUICK)
    assert other.code == 0, other.err
    assert "with data augmentation: ternarybert ternarize --augment" in other.out
    assert "fine-tuning the teacher" not in other.out, "the teacher is there"
    assert "1 of 2 are already done" in other.out, "the plain student is the same in both tables"


def test_a_teacher_of_another_model_is_not_taken_for_this_one(run, fails, encoder, glue, out, tmp_path):
    command = ["reproduce", "3bit", "--data", glue, "--task", "rte", "-o", out, *QUICK]
    first = run(*command, "--model", encoder)
    assert first.code == 0, first.err
    other = tmp_path / "other"
    tiny.bert(vocab_size=len(tiny.tokenizer()), seed=9).bert.save_pretrained(other)
    tiny.tokenizer().save_pretrained(other)
    assert "different model" in fails(*command, "--model", other)
    assert "different data" in fails(*command, "--model", encoder, "--rows", "20")
    taken = run(*command[:-2], "-o", tmp_path / "again", *QUICK, "--teacher", f"rte={out / 'rte' / 'teacher'}")
    assert taken.code == 0, taken.err
    assert "not BERT-base" in (tmp_path / "again" / "3bit.md").read_text(), "the teacher says what it is"
    assert "4 steps" in (tmp_path / "again" / "3bit.md").read_text()


def test_the_papers_test_sets_become_archives(run, fails, encoder, glue, out, tmp_path):
    """For teacher and students; the native engine writes the same bytes as torch, and nothing is made twice."""
    texts = [f"{i}\tthe film {i}\twas it {'good' if i % 2 else 'dull'}" for i in range(9)]
    (glue / "RTE" / "test.tsv").write_text("\n".join(["index\tsentence1\tsentence2", *texts]) + "\n")
    command = ["reproduce", "test", "--model", encoder, "--data", glue, "-o", out, *QUICK]
    result = run(*command, "--json")
    assert result.code == 0, result.err
    assert "sst2 is left out" in result.err
    found = json.loads(result.out.splitlines()[-1])
    assert set(found["archives"]) == {"bert", "ternarybert-2-2-32", "ternarybert-2-2-8", "bert-8-8-8"}
    assert "RTE.tsv" not in found["missing"] and "AX.tsv" in found["missing"]
    for path in found["archives"].values():
        with zipfile.ZipFile(path) as archive:
            assert archive.namelist() == ["RTE.tsv", "WNLI.tsv"]
            lines = archive.read("RTE.tsv").decode().splitlines()
            assert lines[0] == "index\tprediction"
            assert [line.split("\t")[0] for line in lines[1:]] == [str(i) for i in range(9)]
            assert {line.split("\t")[1] for line in lines[1:]} <= {"entailment", "not_entailment"}
            assert len(archive.read("WNLI.tsv").splitlines()) == 147

    alone = {}
    for engine in ("torch", "native"):
        alone[engine] = tmp_path / f"{engine}.zip"
        flags = ["--task", "rte", "--data", glue, "--engine", engine, "--submission", alone[engine]]
        made = run("evaluate", out / "rte" / "ternarybert-2-2-8", *flags)
        assert made.code == 0, made.err
        assert "RTE.tsv" in made.out and "WNLI.tsv" in made.out
    assert alone["torch"].read_bytes() == alone["native"].read_bytes()
    with zipfile.ZipFile(alone["native"]) as archive, zipfile.ZipFile(out / "ternarybert-2-2-8.zip") as other:
        assert archive.read("RTE.tsv") == other.read("RTE.tsv")

    before = (out / "rte" / "ternarybert-2-2-8" / "ternarybert.safetensors").stat().st_mtime_ns
    assert run(*command).code == 0
    assert (out / "rte" / "ternarybert-2-2-8" / "ternarybert.safetensors").stat().st_mtime_ns == before
    assert "'rt'" in fails("reproduce", "test", "--task", "rt", "-o", out)


def test_submissions_that_cannot_be_written(fails, teacher, glue, tmp_path):
    archive = tmp_path / "out.zip"
    assert "--task" in fails("evaluate", teacher, "--submission", archive)
    assert "test.tsv" in fails("evaluate", teacher, "--task", "rte", "--data", glue, "--submission", archive)
    assert ".zip" in fails("evaluate", teacher, "--task", "rte", "--data", glue, "--submission", tmp_path / "out.tsv")
    flags = ["--task", "rte", "--data", glue, "--submission", archive]
    assert "--teacher" in fails("evaluate", teacher, *flags, "--teacher", teacher)
    assert not archive.exists()


def test_mistakes_of_reproduce(fails, encoder, glue, out):
    assert "'granularity'" in fails("reproduce", "granulrity", "--model", encoder)
    assert "'rt'" in fails("reproduce", "main", "--model", encoder, "--task", "rt", "-o", out)
    assert "TASK=FOLDER" in fails("reproduce", "main", "--teacher", "x")
    assert "--glove" in fails("reproduce", "main", "--no-augment", "--glove", "x")
    assert "--augment" in fails("reproduce", "3bit", "--augment")
    assert "'mrp'" in fails("reproduce", "main", "--teacher", "mrp=x")
    assert "mnli" in fails("reproduce", "granularity", "--model", encoder, "--data", glue)
    assert not os.path.exists(out)
