"""Folders that somebody made to do harm, or damaged without knowing: our own errors, in little memory."""

import copy
import json
import multiprocessing
import pickle
import resource
import shutil
import sys

import pytest

import ternarybert
from ternarybert.errors import InputError, PackedConfigError, PackedError, TernaryBertError, printable
from ternarybert.runtime.text import TextEncoder

LABELS = {"id2label": {0: "a", 1: "b", 2: "c"}}
TEXTS = ["good film", "bad", "the plot was dull"]


@pytest.fixture
def folder(folders, tmp_path):
    return shutil.copytree(folders(**LABELS), tmp_path / "model")


def change(folder, name, edit):
    path = folder / name
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def refused(folder, named, kind=TernaryBertError):
    with pytest.raises(kind) as caught:
        ternarybert.load(folder).predict(TEXTS)
    assert named in str(caught.value)


@pytest.mark.parametrize("number", [2**31 - 2, 2**31, 2**40, 200])
@pytest.mark.parametrize("where", ["vocabulary", "added"])
def test_token_ids_that_the_model_does_not_have(folder, where, number):
    """The tokenizers library makes a table up to the largest id: 8 GB for one near 2**31."""

    def edit(content):
        if where == "vocabulary":
            content["model"]["vocab"]["hostile"] = number
        else:
            content["added_tokens"].append(content["added_tokens"][0] | {"id": number, "content": "hostile"})

    change(folder, "tokenizer.json", edit)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(folder, str(number), PackedConfigError)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


def test_a_word_list_that_is_longer_than_the_vocabulary(folder):
    words = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    assert ternarybert.load(folder).predict("good")
    for more in (["hostile"], [*[next(iter(words))] * 5, "hostile"]):  # repeated words count, too
        (folder / "vocab.txt").write_text("\n".join([*list(words)[: len(words) - len(more) + 1], *more]) + "\n")
        with pytest.raises(PackedConfigError, match=rf"vocab\.txt gives token id {len(words)}"):
            ternarybert.load(folder)


@pytest.mark.parametrize(
    ("strategy", "multiple"), [({"Fixed": 10**7}, None), ("BatchLongest", 10**7)], ids=["fixed", "multiple"]
)
def test_padding_is_never_done(folder, strategy, multiple):
    """The answers are those of the same tokenizer without padding; 10**7 tokens of it would take a gigabyte."""
    expected = ternarybert.load(folder).predict(TEXTS)
    padding = {"strategy": strategy, "direction": "Right", "pad_to_multiple_of": multiple}
    padding |= {"pad_id": 0, "pad_type_id": 0, "pad_token": "[PAD]"}
    change(folder, "tokenizer.json", lambda content: content.update(padding=padding))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert ternarybert.load(folder).predict(TEXTS) == expected
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB


def test_ids_of_special_tokens_that_the_model_does_not_have(folder):
    change(folder, "tokenizer.json", lambda content: content["post_processor"].update(cls=["[CLS]", 5000]))
    refused(folder, "5000", PackedConfigError)


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("model_type", ["bert"], "bert"),
        ("hidden_act", ["gelu"], "gelu"),
        ("hidden_act", {"a": 1}, "'a'"),
        ("layer_norm_eps", "1e-12", "'1e-12'"),
        ("layer_norm_eps", None, "None"),
        ("layer_norm_eps", True, "True"),
        ("layer_norm_eps", 10**400, "layer_norm_eps"),
        ("layer_norm_eps", 1e300, "1e+300"),
        ("layer_norm_eps", -1, "-1"),
        ("problem_type", ["regression"], "regression"),
    ],
)
def test_configurations_of_the_wrong_type(folder, key, value, named):
    change(folder, "config.json", lambda config: config.update({key: value}))
    refused(folder, named)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"a":' * 100_000, "\x00", "[]", '"text"'])
@pytest.mark.parametrize("name", ["tokenizer_config.json", "tokenizer.json"])
def test_json_that_is_nested_deeply_or_no_object(folder, name, content):
    (folder / name).write_text(content)
    refused(folder, name, PackedConfigError)


def test_a_limit_of_infinity(folder):
    change(folder, "tokenizer_config.json", lambda settings: settings.update(model_max_length=float("inf")))
    assert ternarybert.load(folder).max_length == 64


def test_a_missing_unknown_token(folder):
    change(folder, "tokenizer.json", lambda content: content["model"]["vocab"].pop("[UNK]"))
    change(folder, "tokenizer.json", lambda content: content["added_tokens"].pop(1))
    refused(folder, "[UNK]", PackedConfigError)


def test_a_panic_of_the_tokenizers_library(folder, monkeypatch):
    """It derives from BaseException, so that `except Exception` does not catch it."""

    class PanicException(BaseException):
        pass

    class Panicking:
        def encode(self, *_):
            raise PanicException("index out of bounds")

    encoder = TextEncoder(folder, 64, has_types=True)
    monkeypatch.setattr(encoder, "tokenizer", Panicking())
    with pytest.raises(PackedConfigError, match="index out of bounds"):
        encoder.encode(["x"])


def test_interrupts_stay_interrupts(folder, monkeypatch):
    class Interrupted:
        def encode(self, *_):
            raise KeyboardInterrupt

    encoder = TextEncoder(folder, 64, has_types=True)
    monkeypatch.setattr(encoder, "tokenizer", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        encoder.encode(["x"])


def test_a_tokenizer_that_cannot_be_read(folder):
    (folder / "tokenizer_config.json").unlink()
    (folder / "tokenizer_config.json").mkdir()
    refused(folder, "tokenizer_config.json", PackedError)


@pytest.mark.parametrize(
    "label", ["\x1b[31mred", "a\nb", "a\x07", "\x9b1m", "\ud800", "=HYPERLINK(1)", "@SUM(1)", "+cmd|'x'!A0", " -f(1)"]
)
def test_labels_that_act_where_they_are_shown(folder, label):
    change(folder, "config.json", lambda config: config["id2label"].update({"0": label}))
    refused(folder, ascii(label)[1:-1][:8].replace("\\\\", "\\"), PackedConfigError)


@pytest.mark.parametrize("label", ["-1", "+", "=", "@user", "日本", "a (b)", "très bien", "5 stars!"])
def test_labels_that_are_only_names(folder, label):
    change(folder, "config.json", lambda config: config["id2label"].update({"0": label}))
    assert ternarybert.load(folder).labels[0] == label


def test_messages_can_be_printed():
    assert printable("a\ud800b\x1b[31m\x9b\nc\td é 日本") == "a\\ud800b\\x1b[31m\\x9b\nc\td é 日本"


# --- copies ----------------------------------------------------------------------------------------------------


def answer(model):
    return model.predict(TEXTS), model.max_length, model.kernel, model.num_threads


@pytest.mark.parametrize("way", [copy.deepcopy, copy.copy, lambda model: pickle.loads(pickle.dumps(model))])
@pytest.mark.parametrize(
    "options", [{}, {"kernel": "portable", "num_threads": 1, "max_length": 7}, {"engine": "oracle"}]
)
def test_copies_of_a_model_answer_the_same(folder, way, options, monkeypatch):
    monkeypatch.chdir(folder.parent)
    model = ternarybert.load(folder.name, **options)
    monkeypatch.chdir("/")  # a relative path means the folder that it meant when the model was loaded
    assert answer(way(model)) == answer(model)


def test_a_changed_limit_is_copied(folder):
    model = ternarybert.load(folder)
    model.text.limit(5)
    assert copy.deepcopy(model).max_length == 5


def test_a_model_is_passed_to_a_started_process(folder):
    model = ternarybert.load(folder, num_threads=1)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(answer, (model,)) == answer(model)


def test_a_model_without_a_folder_cannot_be_copied(folder):
    model = ternarybert.load(folder)
    model.folder = None
    with pytest.raises(InputError, match=r"ternarybert\.load"):
        pickle.dumps(model)


def test_the_library_is_not_searched_in_the_current_folder(tmp_path, monkeypatch):
    from ternarybert import native

    (tmp_path / "ternarybert").mkdir()
    (tmp_path / "ternarybert" / native._FILE_NAME).write_bytes(b"not a library")
    monkeypatch.setattr(sys, "path", [str(tmp_path), "", *sys.path])
    monkeypatch.setattr(native, "__file__", str(tmp_path / "elsewhere" / "native.py"))
    monkeypatch.chdir(tmp_path)
    assert tmp_path not in native.library_path().parents
