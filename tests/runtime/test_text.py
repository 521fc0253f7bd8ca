"""Texts become the ids that transformers makes of them, and bad inputs are named."""

import json

import pytest
from transformers import AutoTokenizer, BertTokenizer

from ternarybert.errors import InputError, OptionError, PackedConfigError
from ternarybert.runtime.text import TextEncoder, as_texts

from .folders import save_tokenizer

TEXTS = [
    "the film was good",
    "",
    "   ",
    "Great! [SEP] zzz é \x00 日本 🙂",
    ("a movie", "very dull plot and awful acting"),
    ("the plot", ""),
    "not " * 100,
    ("bad " * 70, "fun " * 9),
    ("bad " * 9, "fun " * 70),
    ("bad " * 70, "fun " * 70),
]


@pytest.fixture
def folder(tmp_path):
    save_tokenizer(tmp_path, types=True)
    return tmp_path


def expected(tokenizer, text, limit):
    """What transformers makes of a row of a table; a lone pair with an empty second text would be a text to it."""
    parts = [[text]] if isinstance(text, str) else [[part] for part in text]
    return {name: rows[0] for name, rows in tokenizer(*parts, truncation=True, max_length=limit).items()}


@pytest.mark.parametrize("limit", [8, 30, 64])
@pytest.mark.parametrize("parallel", [False, True])
def test_the_ids_of_transformers(folder, limit, parallel):
    theirs = AutoTokenizer.from_pretrained(folder)
    ours = TextEncoder(folder, 64, has_types=True, max_length=limit)
    for text, encoding in zip(TEXTS, ours.encode(TEXTS, parallel=parallel), strict=True):
        wanted = expected(theirs, text, limit)
        assert encoding.ids == wanted["input_ids"]
        assert encoding.type_ids == wanted["token_type_ids"]
        assert ours.was_truncated(encoding) == (len(expected(theirs, text, 1000)["input_ids"]) > limit)


@pytest.mark.parametrize("lower", [True, False])
def test_a_word_list_alone(tmp_path, lower):
    """What older folders hold instead of tokenizer.json."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "Good", "film", "##s", "!", "日", "e", "é"]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower, "model_max_length": 512}))
    theirs = BertTokenizer(str(tmp_path / "vocab.txt"), do_lower_case=lower)
    ours = TextEncoder(tmp_path, 64, has_types=True)
    texts = ["Good films!", "good [MASK] film", "日日 Goods", "é É", ("film", "Good")]
    for text, encoding in zip(texts, ours.encode(texts), strict=True):
        wanted = expected(theirs, text, 64)
        assert encoding.ids == wanted["input_ids"], text
        assert encoding.type_ids == wanted["token_type_ids"]


def test_the_shortest_of_all_limits_counts(folder):
    assert TextEncoder(folder, 64, has_types=True).max_length == 64
    assert TextEncoder(folder, 40, has_types=True).max_length == 40
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 20}))
    assert TextEncoder(folder, 64, has_types=True).max_length == 20
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 10**30}))
    assert TextEncoder(folder, 64, has_types=True).max_length == 64


@pytest.mark.parametrize("length", [0, 4, 65, -1])
def test_lengths_that_cannot_be(folder, length):
    with pytest.raises(OptionError, match="5 to 64"):
        TextEncoder(folder, 64, has_types=True, max_length=length)


def test_texts_can_be_cut_at_the_left(folder):
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"truncation_side": "left"}))
    ours = TextEncoder(folder, 64, has_types=True, max_length=5)
    theirs = AutoTokenizer.from_pretrained(folder)
    assert ours.encode(["the film was good"])[0].ids == expected(theirs, "the film was good", 5)["input_ids"]


@pytest.mark.parametrize(
    ("changes", "given"),
    [
        ({}, True),
        ({"model_input_names": ["input_ids", "attention_mask"]}, False),
        ({"model_input_names": None, "tokenizer_class": "BertTokenizer"}, True),
        ({"model_input_names": None, "tokenizer_class": "PreTrainedTokenizerFast"}, False),
    ],
)
def test_types_are_used_where_transformers_gives_them(folder, changes, given):
    settings = json.loads((folder / "tokenizer_config.json").read_text()) | changes
    settings = {name: value for name, value in settings.items() if value is not None}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert TextEncoder(folder, 64, has_types=True).has_types == given
    assert ("token_type_ids" in AutoTokenizer.from_pretrained(folder)("a", "b")) == given
    assert not TextEncoder(folder, 64, has_types=False).has_types


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("tokenizer.json", "{", "tokenizer"),
        ("tokenizer_config.json", "{", "tokenizer_config.json is not JSON"),
        ("tokenizer_config.json", "[]", "tokenizer_config.json is not a JSON object"),
    ],
)
def test_damaged_files(folder, name, content, reason):
    (folder / name).write_text(content)
    with pytest.raises(PackedConfigError, match=reason):
        TextEncoder(folder, 64, has_types=True)


def test_no_tokenizer_at_all(tmp_path):
    with pytest.raises(PackedConfigError, match=r"tokenizer\.json"):
        TextEncoder(tmp_path, 64, has_types=True)


@pytest.mark.parametrize(
    ("given", "texts", "single"),
    [
        ("a", ["a"], True),
        (("a", "b"), [("a", "b")], True),
        (["a", "b"], ["a", "b"], False),
        ([("a", "b"), ["c", "d"], "e"], [("a", "b"), ("c", "d"), "e"], False),
        ([], [], False),
        ((), [], False),
        (("a", "b", "c"), ["a", "b", "c"], False),
        (iter(["a"]), ["a"], False),
    ],
)
def test_what_counts_as_texts(given, texts, single):
    assert as_texts(given) == (texts, single)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (None, "not None"),
        (3, r"not 3 \(int\)"),
        (b"bytes", r"\(bytes\)"),
        ({"text": "a"}, r"\(dict\)"),
        (["a", None], "input 1 is None"),
        (["a", 2.5], r"input 1 is 2\.5 \(float\)"),
        ([("a",)], "input 0 is"),
        ([("a", "b", "c")], "input 0 is"),
        ([("a", None)], "input 0 is"),
    ],
)
def test_what_does_not(given, reason):
    with pytest.raises(InputError, match=reason):
        as_texts(given)


def test_a_lone_surrogate(folder):
    with pytest.raises(InputError, match=r"'\\ud83d'"):
        TextEncoder(folder, 64, has_types=True).encode(["good", "\ud83d"])
