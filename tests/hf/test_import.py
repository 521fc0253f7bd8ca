"""What importing the plug-in does, and what happens to those who forget it."""

import copy
import importlib
import json
import pickle
import shutil
import subprocess
import sys

import pytest
import torch
from transformers import pipeline

import ternarybert
import ternarybert.hf
from ternarybert import packed
from ternarybert.errors import MissingExtraError
from tests.processes import fork

from .students import outputs, random_student, write_student


def run(code, *arguments):
    """Run a program in a process that has imported transformers and nothing of ours; give its output and errors."""
    process = fork("-c", code, *arguments)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out.strip(), err


LOAD = """
import sys
from transformers import AutoModelForSequenceClassification as Auto
try:
    Auto.from_pretrained(sys.argv[1])
except OSError as error:
    print("refused", error)
"""


def test_without_the_import_transformers_refuses(tmp_path):
    """It finds no weights; with those of format version 1 it warned and went on with random ones."""
    write_student(tmp_path / "p", random_student())
    out, _ = run(LOAD, tmp_path / "p")
    assert out.startswith("refused")
    assert "model.safetensors" in out


def test_without_the_import_transformers_refuses_what_save_pretrained_wrote(tmp_path):
    """Its weights have the name that transformers looks for, but config.json names another one."""
    write_student(tmp_path / "p", random_student())
    model = ternarybert.load_torch(tmp_path / "p")
    for name, saved in (("saved", model), ("copied", copy.deepcopy(model))):
        saved.save_pretrained(tmp_path / name)
        out, _ = run(LOAD, tmp_path / name)
        assert out.startswith("refused")
        assert "import-ternarybert.hf-first" in out
        again = ternarybert.load_torch(tmp_path / name)
        assert all(torch.equal(a, b) for a, b in zip(again.parameters(), model.parameters(), strict=True))
        assert not hasattr(again.config, "transformers_weights")
        assert "transformers_weights" not in packed.read(tmp_path / name).config
    copied = pickle.loads(pickle.dumps(model))
    copied.save_pretrained(tmp_path / "pickled")
    assert packed.is_packed(tmp_path / "pickled")


def test_what_is_pushed_refuses_too(tmp_path, monkeypatch):
    """`push_to_hub=True` of `save_pretrained` uploads what was saved, with its config.json as it is on the disk."""
    write_student(tmp_path / "p", random_student())
    model = ternarybert.load_torch(tmp_path / "p")
    pushed = []
    monkeypatch.setattr(type(model), "push_to_hub", lambda self, name, **options: pushed.append((name, options)))
    model.save_pretrained(tmp_path / "q", push_to_hub=True, repo_id="me/q", private=True, token="t")
    assert pushed == [("me/q", {"private": True, "token": "t"})]


def test_with_the_import_transformers_loads_both_versions(tmp_path):
    write_student(tmp_path / "p", random_student())
    shutil.copytree(tmp_path / "p", tmp_path / "old")
    (tmp_path / "old" / "ternarybert.safetensors").rename(tmp_path / "old" / "model.safetensors")
    config = json.loads((tmp_path / "old" / "config.json").read_text())
    config["quantization_config"]["format_version"] = 1
    (tmp_path / "old" / "config.json").write_text(json.dumps(config))
    out, _ = run(
        "import sys, ternarybert.hf; from transformers import AutoModelForSequenceClassification as Auto\n"
        "first, second = (Auto.from_pretrained(folder) for folder in sys.argv[1:])\n"
        "print(all((a == b).all().item() for a, b in zip(first.parameters(), second.parameters(), strict=True)))\n"
        "print(hasattr(first.config, 'transformers_weights'))",
        tmp_path / "p",
        tmp_path / "old",
    )
    assert out.split() == ["True", "False"]


def test_the_way_out_of_it(tmp_path):
    write_student(tmp_path / "p", random_student())
    expected = ternarybert.load_torch(tmp_path / "p").bert.pooler.dense.weight.flatten().tolist()
    out, warnings = run(
        "import sys, ternarybert; model = ternarybert.load_torch(sys.argv[1])\n"
        "print(model.bert.pooler.dense.weight.flatten().tolist())",
        tmp_path / "p",
    )
    assert out == str(expected)
    assert "Unknown" not in warnings


def test_the_package_itself_imports_nothing_heavy():
    code = "import sys, ternarybert; print('load_torch' in dir(ternarybert), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"
    with pytest.raises(AttributeError, match="no attribute 'lead_torch'"):
        _ = ternarybert.lead_torch


def test_importing_again_is_harmless():
    importlib.reload(ternarybert.hf)


def test_without_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers.quantizers", None)
    monkeypatch.delitem(sys.modules, "ternarybert.hf")
    with pytest.raises(MissingExtraError, match=r"pip install 'ternarybert\[train\]'"):
        importlib.import_module("ternarybert.hf")


@pytest.mark.parametrize(
    ("task", "head"),
    [("text-classification", "ForSequenceClassification"), ("token-classification", "ForTokenClassification")],
)
def test_pipelines(tmp_path, tokenizer, task, head):
    student = random_student(head=head)
    write_student(tmp_path / "p", student)
    tokenizer.save_pretrained(tmp_path / "p")
    classify = pipeline(task, model=str(tmp_path / "p"), device="cpu")
    text = "good film"
    answer = classify(text)
    best = outputs(student, **tokenizer(text, return_tensors="pt")).view(-1, 3).softmax(-1).max(-1).values
    scores = torch.tensor([found["score"] for found in answer])
    torch.testing.assert_close(scores, best if len(best) == 1 else best[1:-1], rtol=0, atol=1e-6)
