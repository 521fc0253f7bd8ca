"""What importing the plug-in does, and what happens to those who forget it."""

import importlib
import subprocess
import sys

import pytest
import torch
from transformers import pipeline

import ternarybert
import ternarybert.hf
from ternarybert.errors import MissingExtraError
from tests.processes import fork

from .students import outputs, random_student, write_student


def run(code, *arguments):
    """Run a program in a process that has imported transformers and nothing of ours; give its output and errors."""
    process = fork("-c", code, *arguments)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out.strip(), err


def test_the_trap(tmp_path):
    """Without the import transformers warns and goes on with random weights, other ones each time."""
    write_student(tmp_path / "p", random_student())
    out, warnings = run(
        "import sys; from transformers import AutoModelForSequenceClassification as Auto\n"
        "first, second = (Auto.from_pretrained(sys.argv[1]).bert.pooler.dense.weight for _ in range(2))\n"
        "print((first == second).any().item())",
        tmp_path / "p",
    )
    assert out == "False"
    assert "Unknown quantization type, got ternarybert" in warnings
    assert "newly initialized" in warnings


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
