"""Words and tags from every kind of file, and what is said about bad ones."""

import json

import pytest
from datasets import ClassLabel, Dataset, Features, Sequence, Value

from ternarybert.data.tagged_sentences import holds_tags, read_sentences, split_words
from ternarybert.errors import DataError
from tests import tiny


def write(path, content):
    rows = content if isinstance(content, str) else "\n".join(map(json.dumps, content))
    path.write_text(rows, encoding="utf-8")
    return path


def words(sentence):
    return [sentence.text[start:end] for start, end in sentence.words]


def test_columns(tmp_path):
    text = "-DOCSTART- -X- O\n\nNew NNP B-place\nYork NNP I-place\n\n \nis VB O\n"
    first, second = read_sentences(write(tmp_path / "a.conll", text))
    assert (words(first), first.tags) == (["New", "York"], ("B-place", "I-place"))
    assert (words(second), second.tags, second.place()) == (["is"], ("O",), f"{tmp_path / 'a.conll'}, line 7")


def test_columns_with_tabs_may_have_blanks_in_words(tmp_path):
    (one,) = read_sentences(write(tmp_path / "a.conll", "New York\tB-place\r\nis\tO\r\n"))
    assert words(one) == ["New York", "is"]


def test_lists(tmp_path):
    rows = [{"tokens": ["Ada", "sleeps"], "tags": ["S-person", "O"]}]
    path = write(tmp_path / "a.jsonl", rows)
    assert holds_tags(path)
    (one,) = read_sentences(path)
    assert (one.text, one.tags) == ("Ada sleeps", ("S-person", "O"))


def test_spans(tmp_path):
    text = "Dr. Ada Lovelace's film, London"
    spans = [{"start": 4, "end": 16, "label": "person"}, [25, 31, "place"]]
    path = write(tmp_path / "a.jsonl", [{"text": text, "spans": spans}, {"text": "none", "spans": []}])
    assert holds_tags(path)
    one, none = read_sentences(path)
    assert dict(zip(words(one), one.tags, strict=True))["Lovelace"] == "I-person"
    assert [tag for tag in one.tags if tag != "O"] == ["B-person", "I-person", "B-place"]
    assert none.tags == ("O",)


def test_ideographs_are_words():
    assert [("北京 is大x"[a:b]) for a, b in split_words("北京 is大x")] == ["北", "京", "is", "大", "x"]
    encoding = tiny.tokenizer().backend_tokenizer.pre_tokenizer.pre_tokenize_str("a_b don't 12")
    assert [span for _, span in encoding] == split_words("a_b don't 12")


def test_entities_inside_a_word_are_widened_and_that_is_said(tmp_path, caplog):
    rows = [{"text": "many Londoners", "spans": [[5, 11, "place"]]}, {"text": "it is", "spans": [[0, 2, "x"]]}]
    first, second = read_sentences(write(tmp_path / "a.jsonl", rows))
    assert (first.tags, second.tags) == (("O", "B-place"), ("B-x", "O"))
    assert "1 entities begin or end inside a word" in caplog.text
    assert "a.jsonl, line 1, 'London'" in caplog.text


def test_neighbors_of_one_type_stay_two(tmp_path):
    spans = [[0, 3, "x"], [4, 7, "x"]]
    (one,) = read_sentences(write(tmp_path / "a.jsonl", [{"text": "Ada Eve", "entities": spans}]))
    assert one.tags == ("B-x", "B-x")


def test_plain_texts_have_no_tags(tmp_path):
    path = write(tmp_path / "a.txt", "Don't stop.\nok\n")
    assert not holds_tags(path)
    first, _ = read_sentences(path)
    assert words(first) == ["Don", "'", "t", "stop", "."]
    assert first.tags is None


def test_numbers_of_a_hub_data_set(tmp_path):
    names = ["O", "B-x", "I-x"]
    features = Features({"tokens": Sequence(Value("string")), "ner_tags": Sequence(ClassLabel(names=names))})
    rows = {"tokens": [["Ada", "Eve"]], "ner_tags": [[1, 0]]}
    Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "a.parquet")
    assert holds_tags(tmp_path / "a.parquet")
    (one,) = read_sentences(tmp_path / "a.parquet")
    assert one.tags == ("B-x", "O")


def test_the_old_iob_becomes_bio(tmp_path, caplog):
    text = "a I-x\nb I-x\nc B-x\nd O\ne I-y\n"
    (one,) = read_sentences(write(tmp_path / "a.conll", text))
    assert one.tags == ("B-x", "I-x", "B-x", "O", "B-y")
    assert "old IOB" in caplog.text


CONLL_MISTAKES = {
    "a I-x\nb O\n": "line 1: 'I-x' follows no 'B-x'",
    "a B-x\nb I-y\n": "line 2: 'I-y' follows no 'B-y'",
    "a B-x\n\nb x\n": "line 3: the tag 'x' has no B- or I-",
    "a O\nb\n": "line 2: 1 columns, the lines before have 2",
    "a\tO\n\tO\n": "line 2: there is a tag but no word",
    "a\tO\nb\t\n": "line 2: the word 'b' has no tag",
    "\n \n": "holds no sentences",
}


@pytest.mark.parametrize(("text", "message"), CONLL_MISTAKES.items())
def test_mistakes_in_columns(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        read_sentences(write(tmp_path / "a.conll", text))


LIST_MISTAKES = [
    ({"tokens": ["a"], "tags": ["O", "O"]}, "line 2: 1 words but 2 tags"),
    ({"tokens": [], "tags": []}, "line 2: the sentence has no words"),
    ({"tokens": "['a', 'b']", "tags": ["O", "O"]}, "line 2: 'tokens' is the string .* write a list"),
    ({"tokens": ["a"], "tags": "O"}, "line 2: 'tags' is the string 'O'"),
    ({"tokens": ["a", " "], "tags": ["O", "O"]}, "line 2: item 2 of 'tokens' is ' ', not a word"),
    ({"tokens": ["a"], "tags": [3]}, "line 2: 'tags' are numbers"),
    ({"tokens": ["a"], "tags": ["I-x"]}, "line 2: 'I-x' follows no 'B-x'"),
]


@pytest.mark.parametrize(("row", "message"), LIST_MISTAKES)
def test_mistakes_in_lists(tmp_path, row, message):
    path = write(tmp_path / "a.jsonl", [{"tokens": ["a"], "tags": ["B-x"]}, row])
    with pytest.raises(DataError, match=message):
        read_sentences(path)


SPAN_MISTAKES = [
    ([[0, 9, "x"]], "not within the 4 characters"),
    ([[0, 3, "x"], [2, 4, "x"]], "two entities overlap at character 2"),
    ([[0, 3]], "needs start, end and label"),
    ("[]", "'spans' is the string"),
    ([[0, 3, ""]], "has no label"),
    ([[0, 2, "x"], [2, 4, "y"]], "two entities are in one word, at characters 0 to 4"),
    ([[4, 5, "x"]], "there is no word in the entity at characters 4 to 5"),
]


@pytest.mark.parametrize(("spans", "message"), SPAN_MISTAKES)
def test_mistakes_in_spans(tmp_path, spans, message):
    text = "good   " if "no word" in message else "good"
    path = write(tmp_path / "a.jsonl", [{"text": "good", "spans": []}, {"text": text, "spans": spans}])
    with pytest.raises(DataError, match=f"line 2: .*{message}"):
        read_sentences(path)


def test_a_sentence_without_tags_among_others(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"tokens": ["a"], "tags": ["O"]}, {"tokens": ["a"]}])
    with pytest.raises(DataError, match="line 2: 'tags' is None"):
        read_sentences(path)
