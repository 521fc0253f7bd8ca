"""Several labels from end to end: a teacher, its student, thresholds in the folder, both engines."""

import json

import pytest
import torch
from datasets import Dataset
from torch.nn import functional

import ternarybert
from ternarybert.data import MultiLabelTask, TaskData
from ternarybert.runtime.evaluate import evaluate as native_evaluate
from ternarybert.training.heads import MultiLabelHead
from ternarybert.training.options import TrainingOptions
from tests import tiny
from tests.training.test_question_answering import EAGER, STUDENT

# Longer than for questions: with 8 epochs it depends on the CPU's roundings whether the teacher has learned the words.
LONGER = EAGER.override({"schedule.epochs": "32"})
QUICK = TrainingOptions(device="cpu", evaluations=2)
TASK = MultiLabelTask("made", ("text",), ("good", "bad", "fun"), max_length=32, batch_size=8, epochs=1)


def rows(count: int, start: int = 0) -> Dataset:
    """Words are their own labels; some rows have none."""
    labels = [[float(i >> bit & 1) for bit in range(3)] for i in range(start, start + count)]
    words = [[word for word, on in zip(TASK.labels, each, strict=True) if on] for each in labels]
    texts = [" ".join(["the film was", *each, *["and the plot"] * (i % 4)]) for i, each in enumerate(words)]
    return Dataset.from_dict({"text": texts, "label": labels})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    data = TaskData(TASK, rows(160), {"dev": rows(24, start=100)})
    start = tiny.save(folder / "start", hidden_dropout_prob=0.0)
    teacher = ternarybert.finetune(start, data, folder / "teacher", LONGER, QUICK)
    bare = TaskData(TASK, data.train.remove_columns("label"), data.evals)
    student = ternarybert.ternarize(folder / "teacher", bare, folder / "student", STUDENT, QUICK)
    return folder, data, teacher, student


def test_a_teacher_and_its_student(made):
    folder, _, teacher, student = made
    assert teacher.metric == student.metric == "micro_f1"
    assert teacher.best.scores["micro_f1"] > 95
    assert student.best.scores["agreement"] > 85
    config = json.loads((folder / "student" / "config.json").read_text(encoding="utf-8"))
    assert config["problem_type"] == "multi_label_classification"
    assert set(config["multi_label"]["thresholds"]) == set(TASK.labels)


def test_both_engines_use_the_thresholds(made):
    folder, data, _, student = made
    by_torch = ternarybert.evaluate(folder / "student", data)["sets"]["dev"]
    native = native_evaluate(folder / "student", data)["sets"]["dev"]
    for name in ("micro_f1", "macro_f1"):
        assert by_torch[name] == native[name] == student.best.scores[name]


def test_a_prediction_uses_its_own_threshold(made):
    folder, _, _, _ = made
    with ternarybert.load(folder / "student", num_threads=1) as model:
        text = "the film was good"
        score = model.predict(text).scores["bad"]
        model.thresholds = (1.0, score, 1.0)
        assert model.predict(text).labels == ("bad",)


def test_losses():
    torch.manual_seed(0)
    student, teacher = torch.randn(4, 3), torch.randn(4, 3)
    head = MultiLabelHead(TASK)
    each = functional.binary_cross_entropy(student.sigmoid(), teacher.sigmoid(), reduction="none")
    torch.testing.assert_close(head.loss_pred(student, teacher, None, "example"), each.sum(1).mean())
    torch.testing.assert_close(head.loss_pred(student, teacher, None, "element"), each.mean())
