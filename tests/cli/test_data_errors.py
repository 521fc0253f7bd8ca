"""What users get wrong and machines run out of: one line says what was seen and what to do, and nothing is lost."""

import errno
import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from ternarybert.packed import folder as packed_file
from tests import tiny
from tests.cli.conftest import COLUMNS, HEADER, MOODS, save_classifier, sentences, write_csv

QUICK = ["--max-steps", "4", "--evaluations", "2", "--batch-size", "8"]


def rows_with(label):
    return [*sentences(30), ("the film was good", label)]


DATA_ERRORS = {
    "no file": (["--train", "nowhere.csv"], "nowhere.csv"),
    "an empty file": (["--train", "empty.csv"], "empty.csv"),
    "a header alone": (["--train", "header.csv", *COLUMNS], "header.csv"),
    "a missing text column": (["--train", "mail.csv", "--text", "What they sad"], "'What they said'"),
    "a missing label column": (["--train", "mail.csv", "--label", "mood"], "'mood'"),
    "no hint which column": (["--train", "mail.csv"], "mail.csv"),
    "an unknown label": (["--train", "unknown.csv", *COLUMNS], "'envy'"),
    "a missing label": (["--train", "missing.csv", *COLUMNS], "line 32"),
    "an empty text": (["--train", "blank.csv", *COLUMNS], "line 32"),
    "a text that is no string": (["--train", "numbers.jsonl", "--text", "t"], "'t' is 7 (int)"),
    "an unknown kind of file": (["--train", "mail.docx"], "'.docx'"),
    "no data": ([], "--task"),
    "two kinds of data": (["--task", "sst2", "--train", "mail.csv"], "--task sst2 and mail.csv"),
    "a folder without a task": (["--data", "."], "--data ."),
    "an unknown task": (["--task", "sst3", "--data", "."], "'sst3'"),
    "a task that is not there": (["--task", "sst2", "--data", "."], "SST-2"),
    "a column of a known task": (["--task", "sst2", "--text", "foo"], "--text has no effect with --task sst2"),
    "a label of a known task": (["--task", "mrpc", "--label", "bar"], "--label has no effect with --task mrpc"),
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
    assert "'joy'" in fails(*train, "one.csv")
    assert "30 different labels" in fails(*train, "many.csv")
    unlabeled = fails("finetune", encoder, "--train", "mail.csv", "--text", HEADER[0])
    assert "--label" in unlabeled and ", ".join(HEADER) in unlabeled
    Path("lines.txt").write_text("good\nbad\n")
    assert "lines.txt" in fails("finetune", encoder, "--train", "lines.txt")
    task = ["finetune", encoder, "--task", "sst2", "--data", "."]
    assert "--regression has no effect with --task sst2" in fails(*task, "--regression")


def test_bad_data_to_judge_by(fails, files, teacher):
    assert "labels" in fails("evaluate", teacher, "--eval", "mail.csv", "--text", HEADER[0])
    assert "'envy'" in fails("evaluate", teacher, "--eval", "unknown.csv", *COLUMNS)
    other = save_classifier("other", ["anger", "joy", "so so"])
    assert "labels" in fails("evaluate", teacher, "--eval", "mail.csv", *COLUMNS, "--teacher", other)


def test_models_that_cannot_teach(fails, files, encoder, teacher):
    data = ["--train", "mail.csv", *COLUMNS, *QUICK, "-o", "out"]
    assert "BertModel" in fails("ternarize", encoder, *data)
    two = save_classifier("two", ["joy", "anger"])
    assert "'so so'" in fails("ternarize", two, *data)
    nameless = tiny.save("nameless", num_labels=3)
    assert "'LABEL_0'" in fails("ternarize", nameless, *data)
    amount = tiny.save("amount", num_labels=1)
    assert "regression" in fails("ternarize", amount, *data)
    shutil.copytree(teacher, "dumb")
    for path in Path("dumb").glob("tokenizer*"):
        path.unlink()
    assert "'dumb'" in fails("ternarize", "dumb", *data)
    shutil.copytree(teacher, "cut")
    Path("cut/model.safetensors").write_bytes(b"short")
    assert "'cut'" in fails("ternarize", "cut", *data)
    for other, message in (({"vocab_size": 99}, "vocab_size"), ({"num_labels": 2}, "num_labels")):
        model = tiny.bert(**({"vocab_size": len(tiny.tokenizer()), "num_labels": 3} | other))
        model.save_pretrained("odd")
        assert message in fails("ternarize", teacher, *data, "--student", "odd")
    assert not Path("out.work").exists()


def test_models_that_are_not_there(fails, files, teacher):
    Path("empty").mkdir()
    assert "config.json" in fails("evaluate", "empty", "--eval", "mail.csv")
    shutil.copytree(teacher, "my-teacher")
    for command in (["evaluate", "--eval"], ["ternarize", "--train"], ["finetune", "--train"]):
        data = [command[1], "mail.csv", *COLUMNS]
        line = fails(command[0], "my-techer", *data)
        assert "'my-techer'" in line and "'my-teacher'" in line
        line = fails(command[0], "./my-techer", *data)
        assert "'./my-techer'" in line and "'my-teacher'" in line


def test_the_hub_is_not_asked_in_silence(run, files):
    assert "no local folder 'org/name'" in run("evaluate", "org/name", "--eval", "mail.csv").err


def test_a_packed_model_is_not_trained_again(run, fails, files, teacher):
    data = ["--train", "mail.csv", *COLUMNS, *QUICK]
    assert run("ternarize", teacher, *data, "-o", "small").code == 0
    assert "'small'" in fails("ternarize", "small", *data)
    assert "'small'" in fails("finetune", "small", *data)


RECIPE_ERRORS = {
    "an unknown recipe": (["--recipe", "papr"], "'paper'"),
    "a recipe that is none": (["--recipe", "mail.csv"], "What they said"),
    "an unknown field": (["--set", "distill.atention=0"], "'attention'"),
    "a field without value": (["--set", "distill.attention"], "--set"),
    "a bad value": (["--set", "schedule.warmup=2"], "warmup"),
    "impossible bits": (["--bits", "9-2-8"], "9"),
    "bits of another form": (["--bits", "2/2/8"], "W-E-A"),
    "no epochs": (["--epochs", "0"], "epochs"),
    "a batch that does not divide": (["--batch-size", "8", "--accumulate", "3"], "3"),
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
        assert "thesis" in said and "--force" not in said  # what would be refused is not advised
    assert Path("thesis/chapter1.txt").read_text() == "years of work"
    assert "mail.csv" in fails(*command[:-1], "mail.csv")
    Path("new.work").mkdir()
    Path("new.work/notes.txt").write_text("mine")
    assert "new.work" in fails(*command[:-1], "new", "--force")
    assert Path("new.work/notes.txt").read_text() == "mine"


def test_places_without_a_name(fails, files, teacher):
    before = sorted(files.iterdir())
    command = ["ternarize", teacher, "--train", "mail.csv", *COLUMNS, *QUICK, "-o"]
    assert "--output" in fails(*command, "/")
    for place in (".", "..", files):
        assert str(Path(place).resolve()) in fails(*command, place, "--force")
    assert sorted(files.iterdir()) == before


@pytest.fixture
def interrupted(run, files, teacher):
    """An unfinished run with a checkpoint at step 4, and the command that resumes it."""
    command = ["ternarize", teacher, "--train", "mail.csv", *COLUMNS, *QUICK, "-o", "out"]
    assert run(*command, "--keep-checkpoints").code == 0
    shutil.rmtree("out")
    return [*command, "--resume"]


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "process_0.pt"])
def test_a_broken_checkpoint(fails, interrupted, name):
    path = Path("out.work/checkpoint-4") / name
    path.write_bytes(path.read_bytes()[:100])
    line = fails(*interrupted)
    assert "out.work/checkpoint-4" in line and "--force" in line
    path.unlink()
    assert name in fails(*interrupted)


def test_a_broken_history(fails, interrupted):
    Path("out.work/history.json").write_text('{"metric": "accu')
    assert "history.json" in fails(*interrupted)


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
        (SafetensorError("Error while serializing: IoError(Os { code: 28, kind: StorageFull })"), "the disk is full"),
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


@pytest.mark.parametrize(
    "bug",
    [
        RuntimeError("shapes do not match"),
        TypeError("forward() got some unexpected positional arguments"),
        FileNotFoundError(errno.ENOENT, "No such file or directory", "a file of ours"),
        ModuleNotFoundError("No module named 'ternarybert.gone'", name="ternarybert.gone"),
    ],
    ids=lambda bug: type(bug).__name__,
)
def test_a_bug_is_not_hidden(run, files, teacher, monkeypatch, bug):
    def trip(*_, **__):
        raise bug

    monkeypatch.setattr("ternarybert.training.trainer.Trainer.batch_loss", trip)
    with pytest.raises(type(bug)):
        run("ternarize", teacher, "--train", "mail.csv", *COLUMNS, *QUICK, "-o", "out")


def test_a_loss_that_is_not_a_number(fails, files):
    broken = tiny.bert(vocab_size=len(tiny.tokenizer()), num_labels=3, id2label=dict(enumerate(MOODS)))
    with torch.no_grad():
        broken.classifier.bias.fill_(float("nan"))
    broken.save_pretrained("broken")
    tiny.tokenizer().save_pretrained("broken")
    line = fails("ternarize", "broken", "--train", "mail.csv", *COLUMNS, *QUICK, "-o", "out")
    assert "nan" in line and "step 1" in line


def test_labels_that_no_model_may_have(fails, files, encoder):
    """Refused before the first step, as the model could not be loaded."""
    good, bad = "+1 (good)", "-1 (bad)"
    names = ["good", "bad"] * 15
    write_csv("signs.csv", ["text", "label"], [(f"a {name} film", good if name == "good" else bad) for name in names])
    tags = [{"tokens": ["a", name], "tags": ["O", f"B-{name}"]} for name in ["good", "b\x1bad"] * 15]
    several = [{"text": f"a {name} film", "labels": [good] if name == "good" else [bad, "b"]} for name in names]
    Path("tags.jsonl").write_text("\n".join(map(json.dumps, tags)), encoding="utf-8")
    Path("several.jsonl").write_text("\n".join(map(json.dumps, several)), encoding="utf-8")
    for table, label in (("signs.csv", good), ("tags.jsonl", "B-b\\x1bad"), ("several.jsonl", good)):
        assert f"the label '{label}'" in fails("finetune", encoder, "--train", table, *QUICK, "-o", "out")
    signed = save_classifier("signed", [bad, good])
    for command in ("ternarize", "compare"):
        assert f"the label '{bad}'" in fails(command, signed, "--train", "signs.csv", *QUICK[:2], "-o", "out")
    assert not Path("out").exists() and not Path("out.work").exists()


def test_labels_that_are_numbers_with_a_sign(run, files, encoder):
    write_csv("signs.csv", ["text", "label"], [("a good film", "+1 good"), ("a bad film", "-1")] * 15)
    assert run("finetune", encoder, "--train", "signs.csv", *QUICK, "-o", "signed").code == 0
    assert run("ternarize", "signed", "--train", "signs.csv", *QUICK, "-o", "out").code == 0
    assert run("predict", "out", "a good film").out.split("\t")[0] in ("+1 good", "-1")
