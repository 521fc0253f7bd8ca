"""The commands as a user types them, on tiny models."""

import json
import shlex
import signal
import socket
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ternarybert import packed
from ternarybert.cli.options import IGNORED
from ternarybert.recipe import Recipe
from ternarybert.training import device
from tests import tiny
from tests.cli.conftest import COLUMNS, HEADER, MOODS, save_classifier, sentences, start, write_csv
from tests.processes import fork, fork_ranks

QUICK = ["--max-steps", "4", "--evaluations", "2", "--batch-size", "8"]


def table_rows(text, first):
    """The numbers of a printed table's row."""
    line = next(line for line in text.splitlines() if line.startswith(first))
    return [float(word) for word in line.removeprefix(first).split()]


def test_own_table_with_odd_columns_and_no_other_flag(run, encoder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").symlink_to(encoder)
    write_csv("mail.csv", HEADER, sentences(60))
    write_csv("test.csv", HEADER, sentences(21, seed=1))

    made = run("finetune", "tiny", "--train", "mail.csv", *COLUMNS)
    assert made.code == 0, made.err
    assert "train 54 rows, dev 6 rows" in made.err
    assert "The model is in tiny-mail." in made.out

    made = run("ternarize", "tiny-mail", "--train", "mail.csv", *COLUMNS)
    assert made.code == 0, made.err
    assert len(table_rows(made.out, "dev accuracy")) == 3  # teacher, best and last student
    assert len(table_rows(made.out, "dev agreement")) == 2
    assert all(sum(table_rows(made.out, mood)) == 2 for mood in MOODS)
    assert "times smaller than float32" in made.out
    assert "examples/s" in made.out
    assert packed.is_packed("tiny-mail-ternary")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "mail.csv",
        "test.csv",
        "tiny",
        "tiny-mail",
        "tiny-mail-ternary",
    ]

    judged = run("evaluate", "tiny-mail-ternary", "--eval", "test.csv", *COLUMNS, "--teacher", "tiny-mail")
    assert judged.code == 0, judged.err
    assert all(sum(table_rows(judged.out, mood)) == 7 for mood in MOODS)
    assert 0 <= table_rows(judged.out, "dev agreement")[0] <= 100


def test_a_run_is_planned_for_minutes(run, teacher, table, tmp_path):
    """It ends about then, with the last evaluation, and says nothing about how long it might take."""
    few = ["--train", table, *COLUMNS, "--batch-size", "4", "--evaluations", "2"]
    start = time.monotonic()
    made = run("ternarize", teacher, *few, "--minutes", "0.1", "--json", "--output", tmp_path / "out")
    assert made.code == 0, made.err
    assert 3 < json.loads(made.out)["seconds"] < time.monotonic() - start < 60
    assert json.loads(made.out)["steps"] > 4
    assert "to go" not in made.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--minutes", "0"], "--minutes must be greater than 0; got 0"),
        (["--minutes", "5", "--epochs", "2"], "--epochs has no effect with --minutes"),
        (["--minutes", "5", "--max-steps", "9"], "--max-steps has no effect with --minutes"),
    ],
)
def test_minutes_that_cannot_be_planned(run, teacher, table, tmp_path, flags, message):
    made = run("ternarize", teacher, "--train", table, *COLUMNS, *flags, "--output", tmp_path / "out")
    assert made.code == 2
    assert message in " ".join(made.err.split())


def test_several_processes_have_no_common_clock(run, teacher, table, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    made = run("ternarize", teacher, "--train", table, *COLUMNS, "--minutes", "1", "--output", tmp_path / "out")
    assert made.code == 2
    assert "--minutes" in made.err


def test_evaluating_says_what_training_said(run, teacher, table, tmp_path):
    """The packed folder scores as the best student did on the same rows, and a teacher agrees with itself."""
    out = tmp_path / "out"
    data = ["--eval", table, *COLUMNS]
    trained = run("ternarize", teacher, "--train", table, *data, *QUICK, "--learning-rate", "1e-2", "-o", out, "--json")
    metrics = json.loads(trained.out)
    judged = json.loads(run("evaluate", out, *data, "--teacher", teacher, "--json").out)
    assert judged["sets"] == metrics["student"]["best"]["sets"]
    assert judged["confusion"]["sets"]["dev"] == metrics["confusion"]["student"]
    assert metrics["size"]["bytes"] < (Path(teacher) / "model.safetensors").stat().st_size
    itself = json.loads(run("evaluate", teacher, *data, "--teacher", teacher, "--json").out)
    assert itself["scores"]["agreement"] == 100.0
    assert {k: v for k, v in itself["sets"]["dev"].items() if k != "agreement"} == metrics["teacher"]["dev"]


def test_json_is_one_object_and_alone_on_standard_output(run, encoder, teacher, table, tmp_path):
    for command in (["finetune", encoder], ["ternarize", teacher]):
        result = run(*command, "--train", table, *COLUMNS, *QUICK, "--json", "-o", tmp_path / command[0])
        assert json.loads(result.out)["steps"] == 4
        assert json.loads(result.out)["output"] == str(tmp_path / command[0])
        assert "dev accuracy" in result.err


def test_libraries_are_silent(run, teacher, table, tmp_path):
    result = run("ternarize", teacher, "--train", table, *COLUMNS, *QUICK, "-o", tmp_path / "out")
    first, *steps = result.err.splitlines()
    assert first.startswith("mail: train 58 rows")
    assert [line.split()[1] for line in steps] == ["2/4", "4/4"]


def test_unlabeled_text_is_enough(run, teacher, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(text for text, _ in sentences(32)), encoding="utf-8")
    result = run("ternarize", teacher, "--train", path, *QUICK, "-o", tmp_path / "out")
    assert result.code == 0, result.err
    assert "no labels" in result.err
    assert "dev agreement" in result.out
    assert "columns: prediction" not in result.out
    judged = run("evaluate", tmp_path / "out", "--eval", path, "--teacher", teacher)
    assert "dev agreement" in judged.out


def test_amounts_instead_of_classes(run, encoder, tmp_path):
    words = {"good": 4.5, "bad": 1.0, "dull": 2.25}
    rows = [(f"the film was {word} " + "very " * i, stars) for i in range(8) for word, stars in words.items()]
    table = write_csv(tmp_path / "stars.csv", ["text", "score"], rows)
    made = run("finetune", encoder, "--train", table, *QUICK, "-o", tmp_path / "teacher")
    assert "label 'score' (a number" in made.err
    made = run("ternarize", tmp_path / "teacher", "--train", table, *QUICK, "-o", tmp_path / "student")
    assert made.code == 0, made.err
    assert len(table_rows(made.out, "dev spearman")) == 3
    assert "columns: prediction" not in made.out


def test_whole_numbers_are_classes_unless_told(run, encoder, tmp_path):
    rows = [(f"the film was {word}", stars) for _ in range(8) for word, stars in (("bad", 1), ("dull", 3), ("fun", 5))]
    table = write_csv(tmp_path / "stars.csv", ["text", "rating"], rows)
    assert "accuracy" in run("finetune", encoder, "--train", table, *QUICK, "-o", tmp_path / "a").out
    assert "spearman" in run("finetune", encoder, "--train", table, *QUICK, "-o", tmp_path / "b", "--regression").out


def test_a_glue_task_from_its_folder(run, tmp_path):
    teacher = save_classifier(tmp_path / "teacher", ["positive", "negative"])  # not in the task's order
    folder = tmp_path / "glue" / "SST-2"
    folder.mkdir(parents=True)
    for part, count in (("train", 24), ("dev", 9)):
        lines = [f"{text}\t{int(mood == 'joy')}" for text, mood in sentences(count)]
        (folder / f"{part}.tsv").write_text("\n".join(["sentence\tlabel", *lines]), encoding="utf-8")
    data = ["--task", "SST-2", "--data", tmp_path / "glue"]
    made = run("ternarize", teacher, *data, *QUICK, "-o", tmp_path / "out")
    assert made.code == 0, made.err
    assert sum(table_rows(made.out, "positive")) == 3
    assert sum(table_rows(run("evaluate", tmp_path / "out", *data).out, "negative")) == 6


def test_a_recipe_and_changes_to_it(run, teacher, table, tmp_path):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(Recipe.load("paper").override({"name": "mine", "distill.hidden": 2}).to_yaml(), encoding="utf-8")
    arguments = ["--recipe", recipe, "--bits", "8-8-8", "--set", "distill.attention=0", "--set", "schedule.dropout=0"]
    made = run("ternarize", teacher, "--train", table, *COLUMNS, *QUICK, *arguments, "-o", tmp_path / "out")
    assert made.code == 0, made.err
    used = Recipe.load(tmp_path / "out" / "recipe.yaml")
    assert (used.name, str(used.bits), used.distill.hidden, used.distill.attention) == ("mine", "8-8-8", 2.0, 0.0)
    assert (used.schedule.dropout, used.schedule.batch_size) == (0.0, 8)
    assert packed.read(tmp_path / "out").bits == "8-8-8"


def test_a_shallower_student(run, table, tmp_path):
    deep = save_classifier(tmp_path / "deep", list(MOODS), num_hidden_layers=4)
    shallow = save_classifier(tmp_path / "shallow", list(MOODS))
    command = ["ternarize", deep, "--train", table, *COLUMNS, *QUICK, "--student", shallow, "-o", tmp_path / "out"]
    assert "distill.layer_map=uniform" in run(*command).err
    assert run(*command, "--set", "distill.layer_map=uniform", "--accumulate", "2").code == 0
    assert packed.read(tmp_path / "out").config["num_hidden_layers"] == 2


@pytest.mark.parametrize("command", ["finetune", "ternarize"])
def test_only_force_replaces_a_model(run, fails, encoder, teacher, table, tmp_path, command):
    out = tmp_path / "out"
    model = {"finetune": encoder, "ternarize": teacher}[command]
    whole = [command, model, "--train", table, *COLUMNS, *QUICK, "-o", out]
    assert run(*whole, "--keep-checkpoints").code == 0
    assert (tmp_path / "out.work" / "checkpoint-4").is_dir()
    weights = out / {"finetune": "model.safetensors", "ternarize": "ternarybert.safetensors"}[command]
    before = weights.read_bytes()
    assert str(out) in fails(*whole, "--seed", "1")
    assert "--force --resume" in fails(*whole)
    assert weights.read_bytes() == before
    resumed = run(*whole, "--force", "--resume", "--keep-checkpoints")
    assert "resumed at step 4 of 4" in resumed.err
    assert weights.read_bytes() == before
    assert run(*whole, "--seed", "1", "--force", "--learning-rate", "0.01").code == 0
    assert weights.read_bytes() != before
    assert not (tmp_path / "out.work").exists()
    assert "resume" in fails(*whole, "--resume")


def test_the_result_of_the_folder_one_is_in_lies_beside_it(run, table, tmp_path, monkeypatch):
    save_classifier(tmp_path / "moody", list(MOODS))
    monkeypatch.chdir(tmp_path / "moody")
    before = sorted((tmp_path / "moody").iterdir())
    made = run("ternarize", ".", "--train", table, *COLUMNS, *QUICK)
    assert made.code == 0, made.err
    assert packed.is_packed(tmp_path / "moody-ternary")
    assert sorted((tmp_path / "moody").iterdir()) == before


def interrupt(command, checkpoint, kill):
    """Start a command, stop it once it has written a checkpoint, and give its exit code and errors."""
    process = fork("-m", "ternarybert", *command)
    while not (checkpoint / "trainer_state.json").exists() and process.poll() is None:
        time.sleep(0.02)
    process.send_signal(kill)
    _, err = process.communicate()
    assert "Traceback" not in err
    return process.returncode, err


def test_interrupted_and_resumed_equals_uninterrupted(run, fails, teacher, table, tmp_path):
    """Killed in the third epoch, resumed, stopped with Ctrl-C in the sixth, resumed: the same bytes as in one go."""
    flags = [
        "--max-steps",
        "64",
        "--evaluations",
        "8",
        "--batch-size",
        "8",
        "--learning-rate",
        "1e-3",
        "--threads",
        "1",
    ]
    command = ["ternarize", teacher, "--train", table, *COLUMNS, *flags, "--keep-checkpoints", "-o"]
    whole, part, work = tmp_path / "whole", tmp_path / "part", tmp_path / "part.work"
    assert run(*command, whole).code == 0

    assert interrupt([*command, part], work / "checkpoint-16", signal.SIGKILL)[0] == -signal.SIGKILL
    assert "--resume" in fails(*command, part)
    assert "seed" in fails(*command, part, "--seed", "7", "--resume")
    code, err = interrupt([*command, part, "--resume"], work / "checkpoint-40", signal.SIGINT)
    assert code == 130
    last = err.splitlines()[-1]
    assert last.startswith("ternarybert: stopped; resume from the last checkpoint with: ternarybert ternarize ")
    assert last.endswith("--resume")
    assert not part.exists()

    resumed = run(*command, part, "--resume")
    assert resumed.code == 0, resumed.err
    assert "resumed at step " in resumed.err
    for name in ("{}/ternarybert.safetensors", "{}/config.json", "{}.work/checkpoint-64/model.safetensors"):
        assert (tmp_path / name.format("part")).read_bytes() == (tmp_path / name.format("whole")).read_bytes(), name
    one, other = (json.loads((folder / "metrics.json").read_text()) for folder in (whole, part))
    assert one["evaluations"] == other["evaluations"]


def test_a_checkpoint_that_was_cut_short_is_passed_over(run, teacher, table, tmp_path):
    """As a kill in the middle of saving leaves it: weights, but not yet the state that is written last."""
    command = ["ternarize", teacher, "--train", table, *COLUMNS, *QUICK, "-o", tmp_path / "out"]
    assert run(*command, "--keep-checkpoints").code == 0
    (tmp_path / "out").rename(tmp_path / "whole")
    (tmp_path / "out.work" / "checkpoint-5").mkdir()
    (tmp_path / "out.work" / "checkpoint-5" / "model.safetensors").write_bytes(b"half of it")
    resumed = run(*command, "--resume")
    assert "resumed at step 4 of 4" in resumed.err
    assert resumed.code == 0
    assert (tmp_path / "out" / "ternarybert.safetensors").read_bytes() == (
        tmp_path / "whole" / "ternarybert.safetensors"
    ).read_bytes()


def torchrun(count, *command):
    return start("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count, *command)


@pytest.mark.parametrize("launch", [fork_ranks, pytest.param(torchrun, marks=pytest.mark.slow)])
def test_two_processes_speak_with_one_voice(teacher, table, tmp_path, launch):
    flags = ["--train", table, *COLUMNS, "--max-steps", "3", "--evaluations", "1", "--batch-size", "4", "--json"]
    process = launch(2, "-m", "ternarybert", "ternarize", teacher, *flags, "-o", tmp_path / "out")
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert json.loads(out)["steps"] == 3
    assert err.count("train 58 rows") == 1
    assert err.count("step 3/3") == 1
    assert packed.is_packed(tmp_path / "out")
    assert not (tmp_path / "out.work").exists()


@pytest.mark.slow
def test_two_nodes_on_loopback_train_as_one(teacher, table, tmp_path):
    """The commands of docs/how-to/distributed.md: two launchers that find each other by an address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    flags = ["--train", table, *COLUMNS, "--max-steps", "3", "--evaluations", "1", "--json", "-o"]
    nodes = [
        start(
            *("-m", "torch.distributed.run", "--nnodes", 2, "--node-rank", rank, "--nproc-per-node", 1),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", address, "--local-addr", "127.0.0.1"),
            *("-m", "ternarybert", "ternarize", teacher, "--batch-size", "4", *flags, tmp_path / "nodes"),
        )
        for rank in (0, 1)
    ]
    texts = [node.communicate() for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], texts
    (printed,) = [out for out, _ in texts if out.strip()]  # one of them speaks
    assert json.loads(printed)["steps"] == 3
    alone = start("-m", "ternarybert", "ternarize", teacher, "--batch-size", "8", *flags, tmp_path / "alone")
    assert alone.communicate() and alone.returncode == 0
    together, one = (packed.read(tmp_path / name).tensors for name in ("nodes", "alone"))
    assert together.keys() == one.keys()
    for name, tensor in one.items():
        if isinstance(tensor, np.ndarray):
            assert np.allclose(together[name], tensor, atol=1e-4), name


def test_help_is_quick_and_shows_an_example():
    code = """
import sys
from ternarybert.cli import main
try:
    main()
except SystemExit:
    pass
import ternarybert
assert {"finetune", "ternarize", "evaluate"} <= set(dir(ternarybert))
heavy = {"torch", "transformers", "datasets", "numpy"} & set(sys.modules)
assert not heavy, heavy
"""
    for command in ("finetune", "ternarize", "evaluate"):
        process = start("-c", code, command, "--help")
        out, err = process.communicate()
        assert process.returncode == 0, err
        assert f"Example: ternarybert {command}" in out
        assert "--text-pair" in out


def test_a_new_head_where_the_number_of_classes_changes(run, tmp_path, table):
    other = tiny.save(tmp_path / "binary", num_labels=2)
    made = run("finetune", other, "--train", table, *COLUMNS, *QUICK, "-o", tmp_path / "out")
    assert made.code == 0, made.err
    assert all(sum(table_rows(made.out, mood)) == 2 for mood in MOODS)


NO_EFFECT = {
    "finetune": ["enc", "--epochs", "2", "--max-steps", "3"],
    "ternarize": ["teacher", "--epochs", "2", "--max-steps", "3"],
    "predict": [
        ["model", "a", "--force"],
        ["model", "a", "--strict"],
        ["model", "a", "--bad-rows", "x.csv"],
        ["model", "a", "--context", "b", "--pair"],
        ["model", "a", "--engine", "oracle", "--kernel", "portable"],
    ],
    "evaluate": [
        ["model", "--eval", "x.csv", "--engine", "native", "--batch-size", "64"],
        ["model", "--eval", "x.csv", "--engine", "native", "--device", "cuda"],
        ["model", "--eval", "x.csv", "--engine", "oracle", "--threads", "2"],
    ],
    "compare": ["teacher", "--max-steps", "3", "--processor-time"],
    "reproduce": ["main", "--processor-time"],
    "report": [["model", "--text", "a"], ["model", "--texts", "a.txt"]],
}


@pytest.mark.parametrize("command", IGNORED)
def test_options_without_effect_are_refused(fails, command):
    """Before anything is read: none of these files exists."""
    lines = NO_EFFECT[command]
    for line in lines if isinstance(lines[0], list) else [lines]:
        assert "has no effect" in fails(command, *line)


def test_columns_of_a_known_task_are_refused(fails, teacher, tmp_path):
    assert "--text has no effect with --task mrpc" in fails("evaluate", teacher, "--task", "mrpc", "--text", "foo")
    said = fails("finetune", teacher, "--task", "mrpc", "--no-regression", "-o", tmp_path / "x")
    assert "--no-regression has no effect" in said


def test_the_next_command_can_be_run_as_it_is(run, teacher, table, tmp_path, monkeypatch):
    """Also where no evaluation file was given."""
    monkeypatch.chdir(tmp_path)
    done = run("ternarize", teacher, "--train", table, *COLUMNS, "--max-steps", "2", "--evaluations", "1", "-o", "out")
    line = next(line for line in done.out.splitlines() if line.startswith("Next: "))
    following = shlex.split(line.removeprefix("Next: ternarybert "))
    assert "FILE" not in following
    assert run(*following).code == 0


def test_a_missing_tracker_is_an_error_before_anything_is_read(run, encoder, monkeypatch, tmp_path):
    monkeypatch.setattr(device, "get_available_trackers", list)
    for command in ("finetune", "ternarize"):
        done = run(command, encoder, "--train", tmp_path / "no.csv", "--report-to", "tensorboard", "-o", tmp_path / "x")
        assert done.code == 2
        assert "tensorboard" in done.err and "no.csv" not in done.err


def test_evaluate_without_torch_names_the_other_engine(fails, teacher, table, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    said = fails("evaluate", teacher, "--eval", table, *COLUMNS)
    assert "ternarybert[train]" in said and "--engine native" in said
