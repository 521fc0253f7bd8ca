"""`compare` and `reproduce` on tiny models: what they say, write and refuse, and that a kill loses nothing."""

import json
import os
import random
import signal
import time

import pytest

from tests import tiny

from .conftest import COLUMNS, start

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
    assert "5 of 5 are done already" in again.out
    assert "1 of" not in again.out

    more = run("compare", teacher, "--train", table, *COLUMNS, "--method", "minmax", *QUICK, "-o", out)
    assert "Q-BERT" not in more.out, "the screen shows what was asked for"
    whole = (out / "table.md").read_text()
    assert whole.index("post-training min-max") < whole.index("| Q-BERT | 4-8-8 |"), "the folder has all"


def test_a_killed_comparison_is_finished_by_the_same_command(run, teacher, table, out):
    command = ["compare", teacher, "--train", table, *COLUMNS, "--method", "q8bert", "--device", "cpu", "-o", out]
    command += ["--seed", "1", "--seed", "2", "--minutes-per-cell", "0.08"]
    command.append("--processor-time")  # other programs on the machine must not decide a test
    process = start("-m", "ternarybert", *command)
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
    assert "1 of 2 are done already" in result.out
    results = [json.loads(path.read_text()) for path in sorted((out / "cells").glob("*.json"))]
    assert len(results) == 2
    for each in results:
        assert each["seconds"] == pytest.approx(60 * 0.08, rel=0.1)
    assert not list((out / "cells").glob("*.work"))


def test_ctrl_c_says_how_to_go_on(teacher, table, out):
    process = start(
        "-m", "ternarybert", "compare", teacher, "--train", table, *COLUMNS, "--method", "q8bert", "-o", out
    )
    deadline = time.monotonic() + 120
    while not list(out.glob("cells/*.work")) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    try:
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "the same command goes on from here" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "options, said",
    [
        (["--method", "qbrt"], "did you mean 'qbert'"),
        (["--method", "gobo", "--bits", "2-8-8"], "gobo cannot have 2-8-8"),
        (["--preset", "granularty"], "did you mean 'granularity'"),
        (["--preset", "all", "--method", "gobo"], "--preset is a whole grid"),
        (["--bits", "2-8-8"], "--bits goes with --method"),
        (["--budget", "5", "--max-steps", "3"], "cannot go together"),
        (["--budget", "0"], "must be more than 0"),
        (["--source", "bert=x"], "--source takes"),
        (["--recipe", "papr"], "did you mean 'paper'"),
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
    assert "not BERT-base: this checks that the machinery works" in found["notes"][0]
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
    assert "1 of 2 are done already" in other.out, "the plain student is the same in both tables"


def test_a_teacher_of_another_model_is_not_taken_for_this_one(run, fails, encoder, glue, out, tmp_path):
    command = ["reproduce", "3bit", "--data", glue, "--task", "rte", "-o", out, *QUICK]
    first = run(*command, "--model", encoder)
    assert first.code == 0, first.err
    other = tmp_path / "other"
    tiny.bert(vocab_size=len(tiny.tokenizer()), seed=9).bert.save_pretrained(other)
    tiny.tokenizer().save_pretrained(other)
    assert "was made with another model" in fails(*command, "--model", other)
    assert "was made with another data" in fails(*command, "--model", encoder, "--rows", "20")
    taken = run(*command[:-2], "-o", tmp_path / "again", *QUICK, "--teacher", f"rte={out / 'rte' / 'teacher'}")
    assert taken.code == 0, taken.err
    assert "not BERT-base" in (tmp_path / "again" / "3bit.md").read_text(), "the teacher says what it is"
    assert "Every student took 4 steps" in (tmp_path / "again" / "3bit.md").read_text()


def test_mistakes_of_reproduce(fails, encoder, glue, out):
    assert "did you mean 'granularity'" in fails("reproduce", "granulrity", "--model", encoder)
    assert "unknown task 'rt'" in fails("reproduce", "main", "--model", encoder, "--task", "rt", "-o", out)
    assert "--teacher takes TASK=FOLDER" in fails("reproduce", "main", "--teacher", "x")
    assert "none of mnli could be read" in fails("reproduce", "granularity", "--model", encoder, "--data", glue)
    assert not os.path.exists(out)
