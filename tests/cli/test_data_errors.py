"""What users get wrong and machines run out of: one line says what was seen and what to do, and nothing is lost."""

import errno
import shutil
from pathlib import Path

import pytest
import torch

from ternarybert.packed import folder as packed_file
from tests import tiny
from tests.cli.conftest import COLUMNS, HEADER, MOODS, save_classifier, sentences, write_csv

QUICK = ["--max-steps", "4", "--evaluations", "2", "--batch-size", "8"]


def rows_with(label):
    return [*sentences(30), ("the film was good", label)]


DATA_ERRORS = {
    "no file": (["--train", "nowhere.csv"], "nowhere.csv does not exist"),
    "an empty file": (["--train", "empty.csv"], "empty.csv is empty"),
    "a header alone": (["--train", "header.csv", *COLUMNS], "header.csv holds no rows"),
    "a missing text column": (["--train", "mail.csv", "--text", "What they sad"], "did you mean 'What they said'?"),
    "a missing label column": (["--train", "mail.csv", "--label", "mood"], "has no column 'mood'"),
    "no hint which column": (["--train", "mail.csv"], "which column of mail.csv is the text?"),
    "an unknown label": (["--train", "unknown.csv", *COLUMNS], "does not know 'envy'; its labels are 'joy', 'anger'"),
    "a missing label": (["--train", "missing.csv", *COLUMNS], "line 32: no label"),
    "an empty text": (["--train", "blank.csv", *COLUMNS], "line 32: 'What they said' is empty"),
    "a text that is no string": (["--train", "numbers.jsonl", "--text", "t"], "'t' is 7 (int), not a text"),
    "an unknown kind of file": (["--train", "mail.docx"], "unknown kind of file '.docx'"),
    "no data": ([], "no data: name your own file"),
    "two kinds of data": (["--task", "sst2", "--train", "mail.csv"], "cannot go together"),
    "a folder without a task": (["--data", "."], "--data is the folder of a GLUE or SQuAD task and needs --task"),
    "an unknown task": (["--task", "sst3", "--data", "."], "unknown task 'sst3'; did you mean 'sst2'?"),
    "a task that is not there": (["--task", "sst2", "--data", "."], "holds no SST-2: expected train.tsv or dev.tsv"),
}


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with every kind of bad file."""
    monkeypatch.chdir(tmp_path)
    write_csv("mail.csv", HEADER, sentences(64))
    Path("empty.csv").touch()
    write_csv("header.csv", HEADER, [])
    write_csv("unknown.csv", HEADER, rows_with("envy"))
    write_csv("missing.csv", HEADER, rows_with(""))
    write_csv("blank.csv", HEADER, [*sentences(30), ("", "joy")])
    write_csv("one.csv", HEADER, [(text, "joy") for text, _ in sentences(30)])
    write_csv("many.csv", HEADER, [(text, f"id {i}") for i, (text, _) in enumerate(sentences(30))])
    Path("numbers.jsonl").write_text('{"t": "fun"}\n{"t": 7}\n', encoding="utf-8")
    Path("mail.docx").touch()
    return tmp_path


@pytest.mark.parametrize("case", DATA_ERRORS)
def test_bad_data(fails, files, teacher, case):
    arguments, message = DATA_ERRORS[case]
    before = sorted(files.iterdir())
    assert message in fails("ternarize", teacher, *arguments, "-o", "out")
    assert sorted(files.iterdir()) == before  # no trace of an attempt


def test_bad_data_to_learn_from(fails, files, encoder):
    train = ["finetune", encoder, *COLUMNS, "-o", "out", "--train"]
    assert "every label in one.csv is 'joy'" in fails(*train, "one.csv")
    assert "30 different labels in 30 rows" in fails(*train, "many.csv")
    unlabelled = fails("finetune", encoder, "--train", "mail.csv", "--text", HEADER[0])
    assert unlabelled.endswith(f"is the label? Name it (label=..., --label); columns: {', '.join(HEADER)}")
    Path("lines.txt").write_text("good\nbad\n")
    assert "lines.txt holds texts without labels" in fails("finetune", encoder, "--train", "lines.txt")


def test_bad_data_to_judge_by(fails, files, teacher):
    assert "have no labels" in fails("evaluate", teacher, "--eval", "mail.csv", "--text", HEADER[0])
    assert "does not know 'envy'" in fails("evaluate", teacher, "--eval", "unknown.csv", *COLUMNS)
    other = save_classifier("other", ["anger", "joy", "so so"])
    assert "not the model's" in fails("evaluate", teacher, "--eval", "mail.csv", *COLUMNS, "--teacher", other)


def test_models_that_cannot_teach(fails, files, encoder, teacher):
    data = ["--train", "mail.csv", *COLUMNS, *QUICK, "-o", "out"]
    assert "has no classification head (it is a BertModel)" in fails("ternarize", encoder, *data)
    two = save_classifier("two", ["joy", "anger"])
    assert "does not know 'so so'" in fails("ternarize", two, *data)
    nameless = tiny.save("nameless", num_labels=3)
    assert "labels have no names ('LABEL_0'" in fails("ternarize", nameless, *data)
    amount = tiny.save("amount", num_labels=1)
    assert "is not a number, and the task is regression" in fails("ternarize", amount, *data)
    shutil.copytree(teacher, "dumb")
    for path in Path("dumb").glob("tokenizer*"):
        path.unlink()
    assert "'dumb' has no tokenizer" in fails("ternarize", "dumb", *data)
    shutil.copytree(teacher, "cut")
    Path("cut/model.safetensors").write_bytes(b"short")
    assert "cannot load 'cut'" in fails("ternarize", "cut", *data)
    for other, message in (({"vocab_size": 99}, "vocab_size"), ({"num_labels": 2}, "num_labels")):
        model = tiny.bert(**({"vocab_size": len(tiny.tokenizer()), "num_labels": 3} | other))
        model.save_pretrained("odd")
        assert f"differ in {message}" in fails("ternarize", teacher, *data, "--student", "odd")
    assert not Path("out.work").exists()


def test_models_that_are_not_there(fails, files, teacher):
    Path("empty").mkdir()
    assert "the folder 'empty' has no config.json" in fails("evaluate", "empty", "--eval", "mail.csv")
    shutil.copytree(teacher, "my-teacher")
    for command in (["evaluate", "--eval"], ["ternarize", "--train"], ["finetune", "--train"]):
        data = [command[1], "mail.csv", *COLUMNS]
        line = fails(command[0], "my-techer", *data)
        assert "no folder 'my-techer'; did you mean 'my-teacher'? " in line
        assert "no folder './my-techer'; did you mean 'my-teacher'?" in fails(command[0], "./my-techer", *data)


def test_the_hub_is_not_asked_in_silence(run, files):
    assert "there is no folder 'org/name' here; asking the hub" in run("evaluate", "org/name", "--eval", "mail.csv").err


def test_a_packed_model_is_not_trained_again(run, fails, files, teacher):
    data = ["--train", "mail.csv", *COLUMNS, *QUICK]
    assert run("ternarize", teacher, *data, "-o", "small").code == 0
    assert "is a packed model" in fails("ternarize", "small", *data)
    assert "is a packed model" in fails("finetune", "small", *data)


RECIPE_ERRORS = {
    "an unknown recipe": (["--recipe", "papr"], "did you mean 'paper'?"),
    "a recipe that is none": (["--recipe", "mail.csv"], "recipe must be a mapping"),
    "an unknown field": (["--set", "distill.atention=0"], "did you mean 'attention'?"),
    "a field without value": (["--set", "distill.attention"], "--set takes FIELD=VALUE"),
    "a bad value": (["--set", "schedule.warmup=2"], "warmup lies in [0, 1)"),
    "impossible bits": (["--bits", "9-2-8"], "W cannot have 9 bits; allowed: 2, 3, 4, 8, 32"),
    "bits of another form": (["--bits", "2/2/8"], "bits are written W-E-A, such as 2-2-8"),
    "no epochs": (["--epochs", "0"], "epochs"),
    "a batch that does not divide": (["--batch-size", "8", "--accumulate", "3"], "does not divide into 3"),
}


@pytest.mark.parametrize("case", RECIPE_ERRORS)
def test_bad_recipes(fails, files, teacher, case):
    arguments, message = RECIPE_ERRORS[case]
    assert message in fails("ternarize", teacher, "--train", "mail.csv", *COLUMNS, "-o", "out", *arguments)


@pytest.mark.parametrize("arguments", [["--device", "tpu"], ["--device", "cuda"], ["--report-to", "diary"]])
def test_what_this_machine_has_not(run, files, teacher, monkeypatch, arguments):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = run("ternarize", teacher, "--train", "mail.csv", *COLUMNS, "-o", "out", *arguments)
    assert result.code == 2
    assert f"Invalid value for {arguments[0]}" in result.err
    assert not Path("out.work").exists()


def test_places_that_are_taken(fails, files, teacher):
    command = ["ternarize", teacher, "--train", "mail.csv", *COLUMNS, *QUICK, "-o", "thesis"]
    Path("thesis").mkdir()
    Path("thesis/chapter1.txt").write_text("years of work")
    for flags in ([], ["--force"], ["--resume"]):
        said = fails(*command, *flags)
        assert "not a model of ours" in said and "--force" not in said  # what would be refused is not advised
    assert Path("thesis/chapter1.txt").read_text() == "years of work"
    assert "mail.csv is a file" in fails(*command[:-1], "mail.csv")
    Path("new.work").mkdir()
    Path("new.work/notes.txt").write_text("mine")
    assert "new.work would be the work folder and holds something else" in fails(*command[:-1], "new", "--force")
    assert Path("new.work/notes.txt").read_text() == "mine"


def test_places_without_a_name(fails, files, teacher):
    before = sorted(files.iterdir())
    command = ["ternarize", teacher, "--train", "mail.csv", *COLUMNS, *QUICK, "-o"]
    assert "/ is the root" in fails(*command, "/")
    for place in (".", "..", files):
        assert "is or holds the folder you are in" in fails(*command, place, "--force")
    assert sorted(files.iterdir()) == before


@pytest.fixture
def interrupted(run, files, teacher):
    """An unfinished run with a checkpoint at step 4, and the command that resumes it."""
    command = ["ternarize", teacher, "--train", "mail.csv", *COLUMNS, *QUICK, "-o", "out"]
    assert run(*command, "--keep-checkpoints").code == 0
    shutil.rmtree("out")
    return [*command, "--resume"]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "random_state_0.pt"])
def test_a_broken_checkpoint(fails, interrupted, name):
    path = Path("out.work/checkpoint-4") / name
    path.write_bytes(path.read_bytes()[:100])
    line = fails(*interrupted)
    assert "cannot resume from out.work/checkpoint-4 (" in line
    assert "remove that folder, or --force to start anew" in line
    path.unlink()
    assert f"checkpoint-4 lacks {name}" in fails(*interrupted)


def test_a_broken_history(fails, interrupted):
    Path("out.work/history.json").write_text('{"metric": "accu')
    assert "history.json is damaged" in fails(*interrupted)


def test_a_run_without_a_checkpoint_is_no_run(run, files, teacher):
    """What failed before its first checkpoint is in nobody's way."""
    Path("out.work").mkdir()
    Path("out.work/run.json").write_text("{}")
    command = ["ternarize", teacher, "--train", "mail.csv", *COLUMNS, *QUICK, "-o", "out"]
    assert run(*command).code == 0


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device", "somewhere")


def fill_the_disk(patch, command):
    """Fill it up at the very end, when the new model is to take the place of the old one."""
    if command == "finetune":
        patch.setattr(shutil, "copytree", full)
        return
    write = packed_file.write_container
    patch.setattr(packed_file, "write_container", lambda path, *a: (write if ".work" in str(path) else full)(path, *a))


@pytest.mark.parametrize("command", ["finetune", "ternarize"])
def test_a_full_disk_costs_nothing_that_was_there(run, fails, files, encoder, teacher, monkeypatch, command):
    model = {"finetune": encoder, "ternarize": teacher}[command]
    whole = [command, model, "--train", "mail.csv", *COLUMNS, *QUICK, "-o", "out"]
    assert run(*whole).code == 0
    before = {path.name: path.read_bytes() for path in Path("out").iterdir()}
    with monkeypatch.context() as patch:
        fill_the_disk(patch, command)
        message = {"finetune": "the disk is full", "ternarize": "No space left on device"}[command]
        assert message in fails(*whole, "--force", "--seed", "1")
    assert {path.name: path.read_bytes() for path in Path("out").iterdir()} == before
    assert [path.name for path in files.iterdir() if path.name.startswith(".out")] == []
    resumed = run(*whole, "--force", "--seed", "1", "--resume")
    assert resumed.code == 0, resumed.err
    assert "resumed at step 4 of 4" in resumed.err


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.EACCES, "Permission denied", "here"), "Permission denied: here"),
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"), "the disk is full"),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 MiB"), "try --accumulate 2"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ..."), "try --accumulate 2"),
        (MemoryError(), "out of memory"),
        (ModuleNotFoundError("No module named 'torch'", name="torch"), "pip install 'ternarybert[train]'"),
    ],
)
def test_what_machines_run_out_of(fails, files, teacher, monkeypatch, error, message):
    def trip(*_, **__):
        raise error

    monkeypatch.setattr("ternarybert.training.trainer.Trainer.batch_loss", trip)
    assert message in fails("ternarize", teacher, "--train", "mail.csv", *COLUMNS, *QUICK, "-o", "out")


def test_a_mistake_of_ours_is_not_hidden(run, files, teacher, monkeypatch):
    def trip(*_, **__):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr("ternarybert.training.trainer.Trainer.batch_loss", trip)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        run("ternarize", teacher, "--train", "mail.csv", *COLUMNS, *QUICK, "-o", "out")


def test_a_loss_that_is_not_a_number(fails, files):
    broken = tiny.bert(vocab_size=len(tiny.tokenizer()), num_labels=3, id2label=dict(enumerate(MOODS)))
    with torch.no_grad():
        broken.classifier.bias.fill_(float("nan"))
    broken.save_pretrained("broken")
    tiny.tokenizer().save_pretrained("broken")
    line = fails("ternarize", "broken", "--train", "mail.csv", *COLUMNS, *QUICK, "-o", "out")
    assert "the loss is nan at step 1, in a batch of 8 that begins with '" in line
