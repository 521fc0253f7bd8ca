"""Words from end to end: a teacher, its student, the same tags from both engines, long texts."""

import dataclasses

import pytest
import torch
from datasets import Dataset
from torch.nn import functional

import ternarybert
from ternarybert.data import TaskData, TokenClassificationTask
from ternarybert.data.tagged_sentences import Sentence
from ternarybert.errors import DataError
from ternarybert.recipe import PRESETS
from ternarybert.runtime.evaluate import evaluate as native_evaluate
from ternarybert.runtime.evaluate import predict_all as native_predictions
from ternarybert.training.batches import IGNORED, LENGTH, TOKEN_LABELS, Collator
from ternarybert.training.evaluate import predict_all
from ternarybert.training.heads import TokenClassificationHead
from ternarybert.training.losses import DistillationOutputs, distillation_losses, loss_labels_words, loss_pred_words
from ternarybert.training.options import TrainingOptions
from tests import tiny
from tests.training.test_question_answering import EAGER, STUDENT

QUICK = TrainingOptions(device="cpu", evaluations=2)
TASK = TokenClassificationTask("made", ("O", "B-x", "I-x", "B-y", "I-y"), max_length=24, batch_size=8, epochs=1)


def sentences(count: int, start: int = 0) -> list[Sentence]:
    """Adjectives are entities of two types; some sentences are longer than a window."""
    made = []
    for i in range(start, start + count):
        words, tags = ["the", "film", "was"] * (1 + i % 9), ["O", "O", "O"] * (1 + i % 9)
        words += ["very", ("good", "bad")[i % 2], "and", "zebra"]
        tags += ["B-x", "I-x", "O", "B-y"]
        made.append(Sentence.of_words(words, tags))
    return made


@pytest.fixture(scope="module")
def data():
    return TaskData(TASK, sentences(64), {"dev": sentences(20, start=100)})


@pytest.fixture(scope="module")
def made(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("taggers")
    start = tiny.save(folder / "start", make=tiny.tagger, hidden_dropout_prob=0.0)
    report = ternarybert.finetune(start, data, folder / "teacher", EAGER, QUICK)
    unlabelled = TaskData(
        dataclasses.replace(TASK, labels=None),
        [dataclasses.replace(sentence, tags=None) for sentence in data.train],
        data.evals,
    )
    student = ternarybert.ternarize(folder / "teacher", unlabelled, folder / "student", STUDENT, QUICK)
    return folder, report, student


def test_a_teacher_and_its_student_without_tags(made):
    folder, report, student = made
    assert report.metric == student.metric == "f1"
    assert report.best.scores["f1"] > 95
    assert student.best.scores["agreement"] > 90
    assert student.labels == ("O", "x", "y")
    assert student.confusion is not None
    card = (folder / "student" / "README.md").read_text(encoding="utf-8")
    assert "AutoModelForTokenClassification" in card
    assert "| dev | f1 x |" in card


def test_both_engines_give_the_same_tags(made, data):
    folder, _, student = made
    torch_report = ternarybert.evaluate(folder / "student", data, teacher=folder / "teacher")
    native_report = native_evaluate(folder / "student", data)
    assert torch_report["sets"]["dev"]["f1"] == native_report["sets"]["dev"]["f1"] == student.best.scores["f1"]
    assert predict_all(folder / "student", data)[1] == native_predictions(folder / "student", data)[1]


def test_a_text_of_ten_thousand_words_is_not_cut(made):
    folder, _, _ = made
    text = "the film was very good and zebra " * 1430
    with ternarybert.load(folder / "student", num_threads=1) as model:
        tags = model.predict(text)
        assert len(tags.words) == 10_010
        assert tags.words[-1].end == len(text) - 1
        kinds = [entity.label for entity in tags.entities]
        assert kinds.count("y") > 1300
        rows = model.logits(text)
        assert len(rows) == 1430 * 11 + 2


def test_a_short_text_beside_a_long_one(made):
    folder, _, _ = made
    long = "the film was very good " * 40
    with ternarybert.load(folder / "student", num_threads=1) as model:
        assert model.predict(["very good", long, "zebra"]) == [model.predict(t) for t in ("very good", long, "zebra")]


def test_fine_tuning_needs_tags(made, data, tmp_path):
    bare = TaskData(TASK, [dataclasses.replace(one, tags=None) for one in data.train], data.evals)
    with pytest.raises(DataError, match="needs training sentences with tags"):
        ternarybert.finetune(made[0] / "start", bare, tmp_path / "out", EAGER, QUICK)


def test_a_weight_for_labels_needs_tags(made, data, tmp_path):
    bare = TaskData(TASK, [dataclasses.replace(one, tags=None) for one in data.train], data.evals)
    recipe = PRESETS["default"].override({"distill.labels": "1"})
    with pytest.raises(DataError, match="the data have no tags"):
        ternarybert.ternarize(made[0] / "teacher", bare, tmp_path / "out", recipe, QUICK)


def test_labels_are_padded():
    rows = [
        {"input_ids": [2, 7, 3], "attention_mask": [1, 1, 1], TOKEN_LABELS: [IGNORED, 1, IGNORED], LENGTH: 3},
        {"input_ids": [2, 3], "attention_mask": [1, 1], TOKEN_LABELS: [IGNORED, IGNORED], LENGTH: 2},
    ]
    batch = Collator(tiny.tokenizer())([dict(row) for row in Dataset.from_list(rows)])
    assert batch["labels"].tolist() == [[IGNORED, 1, IGNORED], [IGNORED] * 3]


def test_no_recipe_counts_padding_as_words():
    head = TokenClassificationHead(TASK)
    student, teacher = (DistillationOutputs(torch.randn(2, 5, 7), [], []) for _ in range(2))
    mask, labels = torch.ones(2, 7), torch.full((2, 7), IGNORED)
    labels[:, 1:3] = 1
    weights = {"hidden": 0, "attention": 0, "logits": 1}
    found = [
        distillation_losses(head, student, teacher, mask, PRESETS[name].distill, weights, [], labels=labels)["logits"]
        for name in ("default", "reference")
    ]
    torch.testing.assert_close(found[0], loss_pred_words(student.logits, teacher.logits, labels != IGNORED))
    torch.testing.assert_close(found[1], found[0] / 5)  # which divides by the number of classes


@pytest.mark.parametrize(("tags", "marks"), [(("B-x", "O"), [1, 2, 2, 2, 0]), (None, [-1] * 5)])
def test_training_masks_no_word_that_the_engine_tags(tags, marks):
    sentence = Sentence.of_words(["u.s.", "film"], tags)
    head = TokenClassificationHead(TASK)
    data = TaskData(TASK, [sentence], {})
    rows = head.tokenize(data, tiny.tokenizer(), tiny.tagger()).train
    assert [label for label in rows[0][TOKEN_LABELS] if label != IGNORED] == marks


def test_losses_of_words():
    """Against torch's own, word by word; a row without words counts as 0."""
    torch.manual_seed(0)
    student, teacher = torch.randn(3, 5, 7), torch.randn(3, 5, 7)
    labels = torch.full((3, 7), IGNORED)
    labels[0, [1, 3]], labels[1, 2] = torch.tensor([2, 0]), 4
    own = [functional.cross_entropy(student[0, :, [1, 3]].T, labels[0, [1, 3]])]
    own.append(functional.cross_entropy(student[1, :, 2:3].T, labels[1, 2:3]))
    torch.testing.assert_close(loss_labels_words(student, labels, IGNORED), (own[0] + own[1]) / 3)
    soft = [functional.cross_entropy(student[0, :, [1, 3]].T, teacher[0, :, [1, 3]].T.softmax(-1))]
    soft.append(functional.cross_entropy(student[1, :, 2:3].T, teacher[1, :, 2:3].T.softmax(-1)))
    found = loss_pred_words(student, teacher, labels != IGNORED)
    torch.testing.assert_close(found, (soft[0] + soft[1]) / 3)
    every = functional.cross_entropy(student, teacher.softmax(1))
    torch.testing.assert_close(loss_pred_words(student, teacher, None), every)
    torch.testing.assert_close(loss_pred_words(student, teacher, None, "element"), every / 5)
