"""`ternarize --augment` as a user types it, on tiny models."""

import json
from itertools import chain

import pytest

from tests.cli.conftest import COLUMNS, FILLERS, MOODS, save_classifier, sentences
from tests.data.conftest import write_glue
from tests.processes import fork_ranks

QUICK = ["--max-steps", "4", "--evaluations", "2", "--batch-size", "8"]


@pytest.fixture
def command(teacher, table, tmp_path):
    data = ["--train", table, *COLUMNS, "--augment", "--augment-cache", tmp_path / "cache"]
    return ["ternarize", teacher, *data, "-o", tmp_path / "out"]


def test_own_table_with_the_teachers_words(run, command, tmp_path):
    made = run(*command, "--evaluations", "1", "--batch-size", "64", "--json")
    assert made.code == 0, made.err
    assert f"up to 20 variants per row, kept in {tmp_path / 'cache'}" in made.err
    assert "the teacher's own embeddings" in made.err
    assert f"58 rows became {json.loads(made.out)['train_rows']:,}" in made.err
    metrics = json.loads(made.out)
    assert metrics["train_rows"] > 300
    assert metrics["steps"] == -(-metrics["train_rows"] // 64)  # one epoch
    assert metrics["augmentation"]["rows_before"] == 58
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".arrow"]


def test_with_glove_and_a_number_of_variants(run, command, tmp_path):
    glove = tmp_path / "glove.txt"
    glove.write_text("".join(f"{word} {i} 1\n" for i, word in enumerate(sum(MOODS.values(), ["film", "plot"]))))
    made = run(*command, *QUICK, "--glove", glove, "--variants", "2", "--json")
    assert "up to 2 variants per row" in made.err
    assert "teacher's own" not in made.err
    assert "no --masked-model" in made.err
    assert "glove.txt" in json.loads(made.out)["augmentation"]["source"]


def test_a_glue_task_has_its_own_number_and_three_are_not_augmented(run, fails, tmp_path):
    lines = [f"gj04\t{int(mood == 'joy')}\t\t{text}" for text, mood in sentences(24)]
    for part in ("train", "dev"):
        write_glue(tmp_path, "CoLA", part, lines)
    teacher = save_classifier(tmp_path / "teacher", ["unacceptable", "acceptable"])
    command = ["ternarize", teacher, "--augment", "--augment-cache", tmp_path / "cache", "-o", tmp_path / "out"]
    made = run(*command, "--task", "cola", "--data", tmp_path, *QUICK)
    assert made.code == 0, made.err
    assert "up to 30 variants per row" in made.err
    write_glue(tmp_path, "STS-B", "train", ["0\tg\tf\t2012\t1\tn\tn\ta film.\ta plot\t4.750"])
    assert "stsb" in fails(*command, "--task", "stsb", "--data", tmp_path, "--force")


def test_words_of_ones_own_stay(run, command, tmp_path):
    (tmp_path / "stop.txt").write_text("\n".join(chain(FILLERS, *MOODS.values())))
    made = run(*command, *QUICK, "--stop-words", tmp_path / "stop.txt")
    assert made.code == 0, made.err
    assert "58 rows became 58\nno row got a variant" in made.err


def test_stopped_while_augmenting(run, command, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("ternarybert.augment.training_data._convert", interrupt)
        stopped = run(*command, *QUICK)
    assert stopped.code == 130
    last = stopped.err.splitlines()[-1]
    assert last.startswith("ternarybert: stopped while augmenting")
    assert run(*command, *QUICK).code == 0


def interrupt(*_):
    raise KeyboardInterrupt


def test_masks_without_a_model_to_ask(fails, command):
    assert "--masks has no effect without --masked-model" in fails(*command, "--masks", "3")


OPTIONS = ["--glove", "--masked-model", "--variants", "--masks", "--stop-words", "--augment-cache"]


@pytest.mark.parametrize("option", OPTIONS)
def test_how_to_augment_without_augmenting_is_a_mistake(fails, command, option):
    command.remove("--augment")
    wrong = [part for part in command if "cache" not in str(part)]
    assert f"{option} has no effect without --augment" in fails(*wrong, option, "3")


def test_no_variants_are_no_augmentation(fails, command):
    assert "--variants 0" in fails(*command, "--variants", "0")


def test_a_source_that_is_not_there(fails, command, tmp_path):
    assert "./missing" in fails(*command, "--masked-model", "./missing")
    assert "missing.txt" in fails(*command, "--glove", tmp_path / "missing.txt")
    assert not (tmp_path / "out.work").exists()


def test_two_processes_augment_once(command, tmp_path):
    few = ["--max-steps", "2", "--evaluations", "1", "--batch-size", "4", "--json"]
    process = fork_ranks(2, "-m", "ternarybert", *command, *few)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert json.loads(out)["steps"] == 2
    assert err.count("augmenting with") == 1
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".arrow"]
