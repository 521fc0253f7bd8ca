"""The C library from a folder to an answer: the same tokens, the same bits and the same refusals as in Python."""

import hashlib
import itertools
import json
import math
import random
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

from ternarybert import native, packed
from ternarybert.errors import PackedConfigError, TernaryBertError, UnsupportedModelError
from ternarybert.families import FAMILIES as RECORDS
from ternarybert.packed.bundle import read_bundle, write_bundle
from ternarybert.runtime import load
from ternarybert.runtime.load import network_of
from tests.native.c_library import DENSE, FIRST, MEAN, TextModelError, opened, refusal
from tests.native.texts import SENTENCES, random_text, real_texts, rich_tokenizer
from tests.packed.damage import edit_config
from tests.packed.refusals import STATUS_OF
from tests.runtime.folders import FAMILIES, save_student
from tests.tiny import WORDS

pytestmark = pytest.mark.filterwarnings("ignore::ternarybert.errors.TruncationWarning")

ROOT = Path(__file__).parent.parent.parent
TEXTS = [
    "the film was good",
    "",
    "Great! [SEP] zzz é \x00 日本 🙂",
    ("a movie", "very dull plot and awful acting"),
    ("the plot", ""),
    "not " * 100,
    ("bad " * 70, "fun " * 9),
    ("bad " * 9, "fun " * 70),
    ("bad " * 70, "fun " * 70),
]
SINGLE = [text for text in TEXTS if isinstance(text, str)]
LONG = ["the film was good and we liked it " * 30, "🙂 a  dull — plot ŵâs [SEP] " * 20, "x" * 70 + " fun" * 70]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_student(tmp_path_factory.mktemp("c") / "model", "ForSequenceClassification")


# --- tokens ----------------------------------------------------------------------------------------------------


def set_normalizer(folder, **changes):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for name, value in changes.items():
        setattr(tokenizer.normalizer, name, value)
    tokenizer.save(str(folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def rich(tmp_path_factory):
    """A model whose tokenizer makes fine distinctions; it is only asked for tokens."""
    folder = save_student(tmp_path_factory.mktemp("rich") / "model", "ForSequenceClassification", vocab_size=30_000)
    rich_tokenizer(folder)
    return folder


def byte_offsets(text, spans):
    starts = [0]
    for char in text:
        starts.append(starts[-1] + len(char.encode()))
    return [(starts[a], starts[b]) for a, b in spans]


def assert_same_tokens(model, tokenizer, text):
    wanted = tokenizer.encode(text) if isinstance(text, str) else tokenizer.encode(*text)
    found = model.tokenize(text)
    assert found["ids"] == wanted.ids, ascii(text)
    assert found["types"] == wanted.type_ids, ascii(text)
    assert found["words"] == [-1 if word is None else word for word in wanted.word_ids], ascii(text)
    assert found["truncated"] == bool(wanted.overflowing), ascii(text)
    parts = (text,) if isinstance(text, str) else text
    spans = list(zip(found["starts"], found["ends"], strict=True))
    for side, part in enumerate(parts):
        own = [i for i, sequence in enumerate(wanted.sequence_ids) if sequence == side]
        assert [spans[i] for i in own] == byte_offsets(part, [wanted.offsets[i] for i in own]), ascii(text)


def check_texts(folder, texts, max_length=0):
    tokenizer = load(folder, num_threads=1, max_length=max_length or None).text.tokenizer
    with opened(folder, max_length=max_length) as model:
        for text in texts:
            assert_same_tokens(model, tokenizer, text)


@pytest.mark.parametrize("max_length", [0, 8, 31])
def test_texts_and_pairs(folder, rich, max_length):
    check_texts(folder, TEXTS, max_length)
    check_texts(rich, [*TEXTS, *itertools.pairwise(SENTENCES)], max_length)


@pytest.mark.parametrize("seed", range(4))
def test_random_texts(rich, seed):
    source = random.Random(seed)
    check_texts(rich, [random_text(source) for _ in range(700)])


def test_random_pairs_are_truncated_alike(rich):
    source = random.Random(5)
    pairs = [(random_text(source), random_text(source)) for _ in range(400)]
    for max_length in (5, 6, 13, 40):
        check_texts(rich, pairs[:100], max_length)


def test_real_texts(rich):
    check_texts(rich, real_texts(random.Random(1), 1500))


@pytest.mark.slow
def test_100_000_real_and_100_000_random_texts(rich):
    source = random.Random(100)
    check_texts(rich, real_texts(source, 100_000))
    check_texts(rich, (random_text(source) for _ in range(80_000)))
    check_texts(rich, ((random_text(source), random_text(source)) for _ in range(20_000)), 30)


def test_every_code_point(rich):
    """Each alone, after a letter and before one, so that words, marks and case show."""
    chars = [chr(c) for c in range(sys.maxunicode + 1) if not 0xD800 <= c < 0xE000]
    # Twelve at a time: the limit on tokens is not reached. Above, there are only private and unassigned characters.
    check_texts(rich, ("".join(f"a{c}b " for c in chars[at : at + 12]) for at in range(0, 0x32000, 12)))
    check_texts(rich, ("".join(f"a{c}b " for c in chars[at : at + 12]) for at in range(0x32000, 0xDF000, 4800)))
    check_texts(rich, ("".join(f"a{c}b " for c in chars[at : at + 12]) for at in range(0xDF000, 0xEFFFF, 120)))
    check_texts(rich, ("".join(f"a{c}b " for c in chars[at : at + 12]) for at in range(0xEFFFF, len(chars), 1200)))


@pytest.mark.parametrize("changes", [
    {"lowercase": False},
    {"lowercase": False, "strip_accents": True},
    {"lowercase": True, "strip_accents": False},
    {"clean_text": False},
    {"handle_chinese_chars": False},
])  # fmt: skip
def test_every_setting_of_the_normalizer(rich, tmp_path, changes):
    shutil.copytree(rich, tmp_path / "m")
    set_normalizer(tmp_path / "m", **changes)
    source = random.Random(7)
    check_texts(tmp_path / "m", [*SENTENCES, *(random_text(source) for _ in range(300))])


def test_added_tokens(rich, tmp_path):
    shutil.copytree(rich, tmp_path / "m")
    path = tmp_path / "m" / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_special_tokens(["<e>", "<e><f>"])
    tokenizer.add_tokens(["Überfilm", "日本"])
    tokenizer.save(str(path))
    check_texts(tmp_path / "m", ["a<e><f>b<e>", "<e><e><f><f>", "der überfilm und ÜBERFILM", "日本日本語", "x<e"])


def test_a_word_list_alone(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "m")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "film", "##s", "!", "日", "e"]
    (tmp_path / "m" / "tokenizer.json").unlink()
    (tmp_path / "m" / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    check_texts(tmp_path / "m", ["Good films!", "good [MASK] film", "日日 Goods", "é É", ("film", "Good")])


def test_texts_cut_at_the_left(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "m")
    path = tmp_path / "m" / "tokenizer_config.json"
    path.write_text(path.read_text().replace("{", '{"truncation_side": "left", ', 1))
    check_texts(tmp_path / "m", TEXTS, 7)


@pytest.mark.parametrize(("change", "status", "named"), [
    (('"WordPiece"', '"BPE"'), "model", "BPE"),
    (('"BertNormalizer"', '"Lowercase"'), "model", "Lowercase"),
    (('"BertPreTokenizer"', '"Metaspace"'), "model", "Metaspace"),
    (('"BertProcessing"', '"RobertaProcessing"'), "model", "RobertaProcessing"),
    (('"lstrip": false', '"lstrip": true'), "model", "lstrip"),
    (('"[UNK]": 1', '"[UNC]": 1'), "config", "[UNK]"),
    (("{", "["), "config", "tokenizer.json"),
])  # fmt: skip
def test_tokenizers_that_are_refused(folder, tmp_path, change, status, named):
    shutil.copytree(folder, tmp_path / "m")
    path = tmp_path / "m" / "tokenizer.json"
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change, 1))
    found = refusal(tmp_path / "m")
    assert found[0] == status
    assert named in found[1]


@pytest.mark.parametrize("change", [
    lambda file: file["model"]["vocab"].update(zzz=10**6),
    lambda file: file["added_tokens"].append({**file["added_tokens"][0], "content": "<new>", "id": 5000}),
    lambda file: file["post_processor"].update(sep=["[SEP]", 4000]),
])  # fmt: skip
def test_token_ids_that_the_model_does_not_have(folder, tmp_path, change):
    shutil.copytree(folder, tmp_path / "m")
    path = tmp_path / "m" / "tokenizer.json"
    file = json.loads(path.read_text())
    change(file)
    path.write_text(json.dumps(file))
    with pytest.raises(PackedConfigError, match="tokens"):
        load(tmp_path / "m", num_threads=1)
    status, message = refusal(tmp_path / "m")
    assert (status, "the token id" in message) == ("config", True)


@pytest.mark.parametrize("data", [b"\xff", b"a\xed\xa0\x80", b"\xc0\x80", b"ab\xe2\x82", b"\xf4\x90\x80\x80"])
def test_what_is_not_utf_8(folder, data):
    class Raw(str):
        def encode(self, *_):
            return data

    with opened(folder) as model, pytest.raises(TextModelError, match="UTF-8") as caught:
        model.tokenize(Raw("x"))
    assert caught.value.status == "input"


# --- bits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_vectors_of_every_family(tmp_path, family):
    folder = save_student(tmp_path / "m", "ForSequenceClassification", family)
    with opened(folder) as ours, load(folder, num_threads=1) as theirs:
        logits, scores = ours.classify(TEXTS)
        np.testing.assert_array_equal(logits, theirs.logits(TEXTS))
        assert scores.tolist() == [list(label.scores.values()) for label in theirs.predict(TEXTS)]
        assert ours.labels == list(theirs.labels)
        for output, pooling in ((MEAN, "mean"), (FIRST, "cls")):
            for normalize in (False, True):
                wanted = theirs.encode(TEXTS, pooling=pooling, normalize=normalize)
                np.testing.assert_array_equal(ours.embed(TEXTS, output, normalize), wanted)


def test_logits_that_the_native_tests_expect(tmp_path):
    """On other processors, too, native/tests/text_test.cc wants the bits that Python gives here."""
    source = (ROOT / "native" / "tests" / "text_test.cc").read_text()
    for name, data in read_bundle(ROOT / "native" / "fuzz" / "model.tbert").items():
        (tmp_path / name).write_bytes(data)
    with load(tmp_path, num_threads=1) as model:
        logits = model.logits(["the film was good", "", "Great! [SEP] zzz é 日本"])
    assert hashlib.sha256(logits.astype("<f4").tobytes()).hexdigest() in source


@pytest.mark.parametrize("recipe", ["default", "paper", "reference"])
@pytest.mark.parametrize("kernel", native.kernels())
def test_every_recipe_and_kernel(tmp_path, recipe, kernel):
    folder = save_student(tmp_path / "m", "Model", recipe=recipe)
    with opened(folder, kernel=kernel) as ours, load(folder, num_threads=1) as theirs:
        np.testing.assert_array_equal(ours.embed(TEXTS, DENSE), theirs.encode(TEXTS, pooling="pooler"))
        assert ours.info.task == 0


@pytest.mark.parametrize("problem", ["multi_label_classification", "regression"])
def test_other_problems(tmp_path, problem):
    folder = save_student(tmp_path / "m", "ForSequenceClassification", problem_type=problem)
    with opened(folder) as ours, load(folder, num_threads=1) as theirs:
        found = ours.classify(TEXTS)[1].tolist()
        wanted = theirs.predict(TEXTS)
        assert found == [list(one.values if problem == "regression" else one.scores.values()) for one in wanted]


@pytest.mark.parametrize("family", ["Bert", "Roberta", "DistilBert"])
def test_words_and_entities(tmp_path, family):
    folder = save_student(tmp_path / "m", "ForTokenClassification", family, id2label={0: "O", 1: "B-PER", 2: "I-PER"})
    check_tags(folder, [*SINGLE, *LONG])


@pytest.mark.parametrize("max_length", [5, 6, 8, 9, 17, 64])
def test_words_of_texts_longer_than_the_model(tmp_path, max_length):
    """Read in windows, as in Python."""
    names = {0: "O", 1: "B-PER", 2: "I-PER", 3: "E-PER", 4: "S-PER"}
    folder = save_student(tmp_path / "m", "ForTokenClassification", id2label=names)
    check_tags(folder, [*SINGLE, *LONG], max_length)


def check_tags(folder, texts, max_length=0):
    with opened(folder, max_length=max_length) as ours, load(folder, num_threads=1, max_length=max_length or None) as m:
        for text in texts:
            wanted = m.predict(text)
            for found, words in ((ours.tag(text), wanted.words), (ours.tag(text, True), wanted.entities)):
                assert [one[:2] for one in found] == [(word.text, word.label) for word in words]
                np.testing.assert_allclose([one[2] for one in found], [word.score for word in words], rtol=1e-13)


@pytest.mark.parametrize("labels", [
    ["O", "B-X", "I-X", "E-X", "S-X"], ["S-X", "I-X"], ["E-X", "I-X", "B-X"], ["I-X", "I-Y", "O"], ["E-", "X", "S"],
])  # fmt: skip
def test_entities_are_joined_as_in_python(tmp_path, labels):
    """With few words in the vocabulary, labels of neighbors are often equal: every kind of border occurs."""
    folder = save_student(tmp_path / "m", "ForTokenClassification", id2label=dict(enumerate(labels)))
    source = random.Random(len(labels))
    check_tags(folder, [" ".join(source.choices(WORDS, k=30)) for _ in range(30)])


@pytest.mark.parametrize("labels", [
    ["good", "bad"],
    ["a\x1b[31m", "b"], ["a\x7f", "b"], ["a\x9b", "b"], ["\n", "b"], ["", "b"], ["a\xa0b", "b"],
    ["=1+(2)", "b"], [" +cmd|' /C", "b"], ["\u3000@x!", "b"], ["-(", "b"], ["=1", "b"], ["x=(1)", "b"], ["日本", "ö(+"],
    [None, True], [1, 2], [False, "b"], ["a", "a"],
])  # fmt: skip
def test_labels_are_accepted_and_refused_as_in_python(folder, tmp_path, labels):
    shutil.copytree(folder, tmp_path / "m")
    names = [*labels, "c"]
    edit_config(tmp_path / "m", lambda config: config.update(id2label={str(i): n for i, n in enumerate(names)}))
    try:
        with load(tmp_path / "m", num_threads=1) as model:
            wanted = list(model.labels)
    except TernaryBertError as error:
        assert refusal(tmp_path / "m")[0] == STATUS_OF[type(error)]
    else:
        with opened(tmp_path / "m") as model:
            assert model.labels == wanted


@pytest.mark.parametrize("thresholds", [
    {"LABEL_0": 0, "LABEL_1": 1.0, "LABEL_2": 0.25},
    {"LABEL_0": 0.5, "LABEL_1": 0.5}, {"LABEL_0": 0.5, "LABEL_1": 0.5, "other": 0.5}, [0.5, 0.5, 0.5],
    {"LABEL_0": True, "LABEL_1": 0.5, "LABEL_2": 0.5}, {"LABEL_0": -0.1, "LABEL_1": 0.5, "LABEL_2": 0.5},
    {"LABEL_0": 0.1, "LABEL_1": 1.5, "LABEL_2": 0.5}, {"LABEL_0": 0.1, "LABEL_1": "0.5", "LABEL_2": 0.5},
])  # fmt: skip
def test_thresholds_of_several_labels(tmp_path, thresholds):
    folder = save_student(tmp_path / "m", "ForSequenceClassification", problem_type="multi_label_classification")
    with opened(folder) as model:
        assert [model.threshold(i) for i in range(3)] == [0.5] * 3
        assert math.isnan(model.threshold(3))
    edit_config(folder, lambda config: config.update(multi_label={"thresholds": thresholds}))
    try:
        with load(folder, num_threads=1) as model:
            wanted = list(model.thresholds)
    except TernaryBertError as error:
        assert refusal(folder)[0] == STATUS_OF[type(error)]
    else:
        with opened(folder) as model:
            assert [model.threshold(i) for i in range(3)] == wanted


@pytest.mark.parametrize("settings", [
    {},
    {"max_length": 24, "stride": 5, "n_best": 3, "max_answer": 4},
    {"max_length": 40, "stride": 9, "null_threshold": 0.0},
    {"null_threshold": -100.0},
])  # fmt: skip
@pytest.mark.parametrize("family", ["Bert", "Roberta"])
def test_answers(tmp_path, family, settings):
    folder = save_student(tmp_path / "m", "ForQuestionAnswering", family)
    edit_config(folder, lambda config: config.update(question_answering=settings))
    contexts = ["the film was good and we liked it " * n for n in (1, 2, 7, 20)]
    contexts += ["a  dull — plot ŵâs  ", "é́ àc̃ting", "", "\x00", "great"]
    with opened(folder) as ours, load(folder, num_threads=1) as theirs:
        for context in contexts:
            for question in ("was it fun", "", "not " * 90):
                wanted = theirs.predict((question, context))
                text, score = ours.answer(question, context)
                assert text == wanted.text
                np.testing.assert_allclose(score, wanted.score, rtol=1e-13)


def test_a_task_that_the_model_does_not_have(folder):
    with opened(folder) as model:
        with pytest.raises(TextModelError, match="label words"):
            model.tag("a")
        with pytest.raises(TextModelError, match="answer questions"):
            model.answer("a", "b")


@pytest.mark.parametrize("max_length", [4, 65, -1])
def test_lengths_that_cannot_be(folder, max_length):
    with pytest.raises(TextModelError, match=f"max_length is {max_length}; this model supports 5 to 64"):
        opened(folder, max_length=max_length).__enter__()


# --- folders and bundles ---------------------------------------------------------------------------------------


def test_the_records_of_families_are_those_of_python():
    text = (ROOT / "native" / "src" / "packed" / "families.cc").read_text()
    known = set(re.findall(r'\.model_type = "([a-z-]+)"', text)) | set(re.findall(r'roberta\("([a-z-]+)"', text))
    assert known == set(RECORDS)


def test_a_bundle_is_the_folder(folder, tmp_path):
    write_bundle(folder, tmp_path / "m.tbert")
    data = (tmp_path / "m.tbert").read_bytes()
    with opened(folder) as one, opened(tmp_path / "m.tbert") as two, opened(data) as three:
        wanted = one.classify(TEXTS)[0]
        np.testing.assert_array_equal(two.classify(TEXTS)[0], wanted)
        np.testing.assert_array_equal(three.classify(TEXTS)[0], wanted)


def test_bundles_that_are_damaged(folder, tmp_path):
    write_bundle(folder, tmp_path / "m.tbert")
    data = (tmp_path / "m.tbert").read_bytes()
    for cut in (40, 47, 48, 100, len(data) // 2, len(data) - 1):
        assert refusal(data[:cut])[0] == "container"
    assert refusal(data + b"\0")[0] == "container"
    assert refusal(b"")[0] == refusal(b"TBERT")[0] == refusal(b"PK\3\4" + data)[0] == "not packed"
    assert refusal(data[:7] + b"\2" + data[8:])[0] == "version"
    for at in range(8, len(data), max(1, len(data) // 50)):
        assert refusal(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])[0] == "container"


def python_refusal(folder):
    """How Python refuses a folder without a tokenizer, as a status of the C library."""
    try:
        network_of(packed.read(folder))
    except UnsupportedModelError:
        return "model"
    except TernaryBertError as error:
        return STATUS_OF[type(error)]
    return None


def test_random_damage_is_refused_alike(folder, tmp_path):
    """One byte of a file changed, without the hash to find it: both readers say the same."""
    source = random.Random(3)
    place = tmp_path / "m"
    shutil.copytree(folder, place)

    def change(config):
        config["quantization_config"].pop("sha256")
        recipe = config["quantization_config"]["recipe"]  # the C library reads no more of it
        config["quantization_config"]["recipe"] = {name: recipe[name] for name in ("bits", "activation", "pooler")}

    edit_config(place, change)
    header = 8 + int.from_bytes((place / "ternarybert.safetensors").read_bytes()[:8], "little")
    seen = set()
    for name, size in (("config.json", None), ("ternarybert.safetensors", header), ("ternarybert.safetensors", None)):
        data = (place / name).read_bytes()
        for _ in range(120):
            at = source.randrange(size or len(data))
            byte = source.choice([data[at] ^ 1 << source.randrange(8), source.choice(b'0129"{}[],:a')])
            (place / name).write_bytes(data[:at] + bytes([byte]) + data[at + 1 :])
            found, wanted = refusal(place), python_refusal(place)
            assert (found[0] if found else None) == wanted, (name, at, byte, found)
            seen.add(wanted)
        (place / name).write_bytes(data)
    assert {"config", "container", "tensor", None} <= seen
