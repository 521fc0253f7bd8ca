"""Loaded models: what they answer, in which form, and that nothing else changes it."""

import dataclasses
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

import ternarybert
from ternarybert.errors import (
    InputError,
    NotPackedError,
    OptionError,
    PackedConfigError,
    TruncationWarning,
    UnsupportedModelError,
)
from ternarybert.runtime import Answer, Classifier, Label, Labels, Number, Tagger, Tags, Word
from ternarybert.runtime.model import batches

from .folders import save_student

LABELS = {"id2label": {0: "joy", 1: "anger", 2: "so so"}, "label2id": {"joy": 0, "anger": 1, "so so": 2}}
TEXTS = ["the film was good", "awful", "", "i liked the plot and the acting " * 3, "very dull", "not fun"]


@pytest.fixture(params=["native", "oracle"])
def engine(request):
    return request.param


@pytest.fixture
def classifier(folders, engine):
    with ternarybert.load(folders(**LABELS), engine=engine) as model:
        yield model


def torch_logits(folder, texts):
    """One text at a time, as transformers does it."""
    model, tokenizer = ternarybert.load_torch(folder).eval(), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        pairs = [[[text]] if isinstance(text, str) else [[part] for part in text] for text in texts]
        inputs = [tokenizer(*pair, return_tensors="pt") for pair in pairs]
        return np.concatenate([model(**one).logits.numpy() for one in inputs])


@pytest.mark.parametrize("family", ["Bert", "Roberta", "XLMRoberta", "Camembert", "Electra", "DistilBert"])
def test_logits_are_the_students(folders, family, engine):
    folder = folders(family=family)
    texts = [*TEXTS, ("good film", "bad movie"), ("was it", "")]
    with ternarybert.load(folder, engine=engine) as model:
        np.testing.assert_allclose(model.logits(texts), torch_logits(folder, texts), rtol=0, atol=1e-5)


def test_classes(classifier):
    answer = classifier.predict("the film was good")
    logits = classifier.logits("the film was good").astype(np.float64)
    shares = np.exp(logits) / np.exp(logits).sum()
    assert isinstance(classifier, Classifier)
    assert isinstance(answer, Label)
    assert answer.label == ["joy", "anger", "so so"][logits.argmax()]
    assert answer.score == pytest.approx(shares.max())
    assert answer.scores == pytest.approx(dict(zip(["joy", "anger", "so so"], shares, strict=True)))
    assert json.loads(json.dumps(answer.as_dict()))["label"] == answer.label


def test_one_or_many(classifier):
    alone = [classifier.predict(text) for text in TEXTS]
    assert classifier.predict(TEXTS) == alone
    assert classifier.predict(tuple(TEXTS)) == alone
    assert list(classifier.stream(iter(TEXTS))) == alone
    assert classifier.predict(("good", "bad")) == classifier.predict([["good", "bad"]])[0]
    assert classifier.predict(("good", "bad")) != classifier.predict("good bad")


def test_nothing_gives_nothing(classifier):
    assert classifier.predict([]) == []
    assert classifier.logits([]).shape == (0, 3)
    assert classifier.encode([]).shape == (0, 32)
    assert classifier.encode([], pooling="tokens") == []


@pytest.mark.parametrize("wrong", [None, 3, ["a", None], [1.5], {"a": "b"}])
def test_what_is_no_text(classifier, wrong):
    for method in (classifier.predict, classifier.logits, classifier.encode):
        with pytest.raises(InputError):
            method(wrong)


def test_streams_are_looked_at_as_they_come(classifier):
    stream = classifier.stream(iter(["good"] * 40 + [None]))
    assert next(stream) == classifier.predict("good")
    with pytest.raises(InputError, match="input 40 is None"):
        list(stream)
    assert list(classifier.stream("good")) == [classifier.predict("good")]


def test_the_order_of_many_texts_is_kept(folders):
    texts = [" ".join(["good", "bad", "fun"][: i % 3 + 1] * (i % 17)) for i in range(300)]
    with ternarybert.load(folders(**LABELS), num_threads=2) as model:
        expected = [model.logits(text) for text in texts]
        assert model.logits(texts).tobytes() == np.stack(expected).tobytes()


def test_long_texts_are_cut_with_a_notice(classifier):
    long = "good " * 100
    with pytest.warns(TruncationWarning, match=r"2 of 3 .* 64 tokens"):
        answers = classifier.predict([long, "fun", long])
    assert answers[0] == classifier.predict("good " * 62)


def test_a_length_to_cut_at(folders):
    with ternarybert.load(folders(**LABELS), max_length=6) as model, pytest.warns(TruncationWarning, match="6 tokens"):
        assert model.max_length == 6
        assert model.predict("the film was good fun") == model.predict("the film was good")


def test_regression(folders, engine):
    with ternarybert.load(folders(num_labels=1), engine=engine) as model:
        answer = model.predict("good")
        assert isinstance(answer, Number)
        assert answer.value == model.logits("good")[0]
        assert answer.as_dict() == {"value": answer.value}


def test_several_numbers(folders):
    with ternarybert.load(folders(num_labels=2, problem_type="regression")) as model:
        answer = model.predict("good")
        assert answer.values == tuple(model.logits("good").tolist())
        assert answer.as_dict() == {"value": answer.values[0], "values": list(answer.values)}


def test_several_labels_at_once(folders):
    with ternarybert.load(folders(problem_type="multi_label_classification", **LABELS)) as model:
        answer, logits = model.predict("good"), model.logits("good")
        assert isinstance(answer, Labels)
        assert answer.labels == tuple(name for name, x in zip(model.labels, logits, strict=True) if x >= 0)
        assert answer.scores["joy"] == pytest.approx(1 / (1 + np.exp(-logits[0])))
        assert answer.as_dict()["labels"] == list(answer.labels)


def test_labels_without_names(folders):
    with ternarybert.load(folders()) as model:
        assert model.labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def damaged(folder, tmp_path, **changes):
    """A copy of a folder with another config."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    config = json.loads((copy / "config.json").read_text()) | changes
    (copy / "config.json").write_text(json.dumps(config))
    return copy


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id2label": {"0": "a", "1": "b"}}, "classifier.weight"),
        ({"id2label": {"1": "a", "2": "b", "3": "c"}}, "3 labels"),
        ({"problem_type": "regresion"}, "did you mean 'regression'"),
    ],
)
def test_configs_that_do_not_fit_the_head(folders, tmp_path, changes, reason):
    with pytest.raises(PackedConfigError, match=reason):
        ternarybert.load(damaged(folders(), tmp_path, **changes))


@pytest.mark.parametrize("pooling", ["mean", "cls", "pooler", "tokens"])
def test_vectors(folders, engine, pooling):
    folder = folders("Model")
    tokenizer, theirs = AutoTokenizer.from_pretrained(folder), ternarybert.load_torch(folder).eval()
    with ternarybert.load(folder, engine=engine) as model:
        found = model.encode(TEXTS, pooling=pooling)
        for text, ours in zip(TEXTS, found, strict=True):
            with torch.no_grad():
                result = theirs(**tokenizer(text, return_tensors="pt"))
            hidden = result.last_hidden_state[0].numpy()
            expected = {"mean": hidden.mean(0), "cls": hidden[0], "tokens": hidden}.get(
                pooling, result.pooler_output[0].numpy()
            )
            np.testing.assert_allclose(ours, expected, rtol=0, atol=2e-6)
        assert np.array_equal(model.encode(TEXTS[0], pooling=pooling), found[0])


def test_vectors_of_length_one(classifier):
    assert np.linalg.norm(classifier.encode(TEXTS, normalize=True), axis=1) == pytest.approx(1)
    assert classifier.encode("good", normalize=True).dtype == np.float32


def test_an_unknown_pooling(classifier):
    with pytest.raises(InputError, match="did you mean 'mean'"):
        classifier.encode("a", pooling="means")


def test_vectors_of_a_pooler_that_is_not_there(folders):
    with ternarybert.load(folders("Model", "DistilBert")) as model:
        with pytest.raises(UnsupportedModelError, match="no pooler"):
            model.encode("good", pooling="pooler")
        assert model.encode("good").shape == (32,)


def test_an_encoder_has_no_answers(folders):
    with ternarybert.load(folders("Model")) as model:
        for method in (model.predict, model.logits):
            with pytest.raises(UnsupportedModelError, match=r"BertModel.*encode\(\)"):
                method("good")


def test_words(folders, engine):
    labels = {"id2label": {0: "O", 1: "B-PER", 2: "I-PER"}, "label2id": {"O": 0, "B-PER": 1, "I-PER": 2}}
    text = "The  film, zebra was good"
    with ternarybert.load(folders("ForTokenClassification", **labels), engine=engine) as model:
        tags, logits = model.predict(text), model.logits(text)
        assert isinstance(model, Tagger)
        assert isinstance(tags, Tags)
        assert [word.text for word in tags.words] == ["The", "film", ",", "zebra", "was", "good"]
        assert all(text[word.start : word.end] == word.text for word in tags.words)
        encoding = model.text.encode([text], offsets=True)[0]
        first = encoding.word_ids.index(3)  # zebra has five pieces; the first one speaks for it
        assert tags.words[3].label == model.labels[logits[first].argmax()]
        assert encoding.word_ids.count(3) == 5
        assert model.predict([text, ""]) == [tags, Tags("", ())]
        assert json.dumps(tags.as_dict())
        with pytest.raises(InputError, match="pair"):
            model.predict(("a", "b"))


def test_words_that_belong_together():
    text = "New York and Ada Lovelace of London Paris x"
    named = [("B-LOC", 3), ("I-LOC", 8), ("O", 12), ("B-PER", 16), ("I-PER", 25), ("O", 28), ("B-LOC", 35)]
    named += [("B-LOC", 41), ("MISC", 43)]
    words, start = [], 0
    for label, end in named:
        words.append(Word(text[start:end], label, 0.5, start, end))
        start = end + 1
    entities = Tags(text, tuple(words)).entities
    assert [(one.text, one.label) for one in entities] == [
        ("New York", "LOC"),
        ("Ada Lovelace", "PER"),
        ("London", "LOC"),
        ("Paris", "LOC"),
        ("x", "MISC"),
    ]
    assert entities[0].score == 0.5


def test_many_threads_use_one_model(folders):
    with ternarybert.load(folders(**LABELS), num_threads=2) as model, ThreadPoolExecutor(8) as pool:
        expected = [model.predict(text) for text in TEXTS]
        for found in pool.map(lambda _: model.predict(TEXTS), range(100)):
            assert found == expected


@pytest.mark.linux_only("os.fork is safe for a process with threads only there")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # the fork of threads is what is tested
def test_a_forked_process_answers(folders):
    with ternarybert.load(folders(**LABELS), num_threads=1) as model:
        expected = model.predict(TEXTS)
        child = os.fork()
        if not child:
            code = 1
            try:
                code = 0 if model.predict(TEXTS) == expected else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_closed_model(folders):
    model = ternarybert.load(folders(**LABELS))
    with model:
        model.predict("good")
    with pytest.raises(InputError, match="closed"):
        model.predict("good")


def test_folders_that_are_not_there(folders, tmp_path):
    (tmp_path / "my-model").mkdir()
    with pytest.raises(NotPackedError, match=r"did you mean '.*my-model'"):
        ternarybert.load(tmp_path / "my-modle")
    with pytest.raises(NotPackedError):
        ternarybert.load(tmp_path / "my-model")
    with pytest.raises(OptionError, match="did you mean 'native'"):
        ternarybert.load(folders(), engine="natve")


def test_a_model_runs_where_the_kernel_says(folders):
    with ternarybert.load(folders(), kernel="portable", num_threads=1) as model:
        assert (model.kernel, model.num_threads) == ("portable", 1)
    with ternarybert.load(folders(), engine="oracle") as model:
        assert model.kernel == "oracle"


@pytest.mark.parametrize("tokens", [1, 10, 64, 10_000])
def test_batches(tokens):
    lengths = [5, 70, 1, 1, 9, 64, 30, 2]
    made = list(batches(lengths, tokens))
    assert sorted(place for batch in made for place in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or sum(lengths[i] for i in batch) <= tokens for batch in made)
    flat = [lengths[place] for batch in made for place in batch]
    assert flat == sorted(flat)


def test_answers_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Answer("x", 1.0, 0, 1).text = "y"


def test_nothing_heavy_is_imported(tmp_path):
    folder = save_student(tmp_path / "m", "ForQuestionAnswering")
    code = (
        "import sys, ternarybert; m = ternarybert.load(sys.argv[1]); m.predict(('who was good', 'the film was good')); "
        "m.encode('good'); heavy = {'torch', 'transformers', 'datasets', 'pandas', 'pyarrow', 'scipy', 'sklearn'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
