"""Words with tags as a task: labels, windows, scores."""

import pytest

from ternarybert.data import TokenClassificationTask, load_tags
from ternarybert.data.tagged_sentences import Sentence
from ternarybert.data.token_classification import cut_sentences
from ternarybert.errors import LabelError
from tests import tiny
from tests.data.test_tagged_sentences import write

LABELS = ("O", "B-x", "I-x", "B-y", "I-y")


def test_labels_of_the_training_file(tmp_path):
    train = write(tmp_path / "a.conll", "a B-y\nb O\n\nc B-x\n")
    data = load_tags(train, train)
    assert data.task.labels == LABELS  # I- that happen not to occur, too
    assert data.task.class_names == ("O", "x", "y")
    assert data.task.describe(data) == "BIO entities: x, y"


def test_some_are_held_out(tmp_path):
    data = load_tags(write(tmp_path / "a.conll", "a B-x\nb O\n\n" * 40))
    assert (len(data.train), len(data.evals["dev"])) == (36, 4)


def test_an_unknown_tag_of_the_evaluation_file(tmp_path):
    train, dev = write(tmp_path / "a.conll", "a B-x\nb O\n"), write(tmp_path / "b.conll", "a O\nb B-z\n")
    with pytest.raises(LabelError, match=r"b\.conll, line 2: the training file does not know the tag 'B-z'"):
        load_tags(train, dev)


def test_one_tag_only(tmp_path):
    with pytest.raises(LabelError, match="every tag is 'O'"):
        load_tags(write(tmp_path / "a.conll", "a O\nb O\n"))


def test_the_order_of_the_model(tmp_path, caplog):
    data = load_tags(None, write(tmp_path / "a.conll", "a B-x\nb O\n"))
    names = {"0": "B-z", "1": "O", "2": "B-x", "3": "I-x"}
    fitted = data.task.fit(data, {"id2label": names})
    assert fitted.task.labels == ("B-z", "O", "B-x", "I-x")
    assert "2 tags of the model never occur in the data: 'B-z', 'I-x'" in caplog.text
    with pytest.raises(LabelError, match="line 1: the model does not know the tag 'B-x'"):
        data.task.fit(data, {"id2label": {0: "O", 1: "B-y"}})
    generic = data.task.fit(data, {"id2label": {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}})
    assert generic.task.labels == ("O", "B-x", "I-x")


def test_every_word_has_one_label_in_one_window():
    words = ["zebra", "film"] * 100
    sentence = Sentence.of_words(words)
    (cut,) = cut_sentences([sentence], tiny.tokenizer().backend_tokenizer, 20)
    seen = [
        label
        for window in cut.windows
        for label in cut.labels(window, [[i] for i in range(200)], -100)
        if label != -100
    ]
    assert seen == list(range(200))
    assert len(cut.windows) > 50


def test_scores():
    task = TokenClassificationTask("made", LABELS)
    sentences = [Sentence.of_words(["a", "b", "c"], ["B-x", "I-x", "O"]), Sentence.of_words(["d"], ["B-y"])]
    right = [list(sentence.tags) for sentence in sentences]
    assert set(task.scores(sentences, right).values()) == {100.0}
    scores = task.scores(sentences, [["I-x", "I-x", "O"], ["O"]], right)
    assert (scores["precision"], scores["recall"], scores["strict_f1"]) == (100.0, 50.0, 0.0)
    assert scores["f1"] == scores["agreement"] == pytest.approx(200 / 3)
    assert (scores["f1 x"], scores["f1 y"], scores["word_agreement"]) == (100.0, 0.0, 50.0)
    assert task.main_metric(scores) == "f1"
    assert task.confusion(sentences, right) == [[1, 0, 0], [0, 2, 0], [0, 0, 1]]


def test_two_models_that_find_nothing_agree():
    task, sentences = TokenClassificationTask("made", LABELS), [Sentence.of_words(["a"])]
    scores = task.scores(sentences, [["O"]], [["O"]])
    assert scores == {"agreement": 100.0, "word_agreement": 100.0}
    assert task.main_metric(scores) == "agreement"


def test_plain_tags(tmp_path):
    data = load_tags(None, write(tmp_path / "a.conll", "a NOUN\nb VERB\nc VERB\n"))
    assert data.task.metrics[0] == "accuracy"
    scores = data.task.scores(data.evals["dev"], [["NOUN", "VERB", "NOUN"]])
    assert scores["accuracy"] == pytest.approx(200 / 3)
    assert scores["macro_f1"] == scores["f1 NOUN"] == pytest.approx(200 / 3)
