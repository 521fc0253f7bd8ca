"""Hidden values and attention of teacher and student are those of the models themselves."""

import re

import numpy as np
import pytest
import safetensors.torch
import scipy.stats
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModel

import ternarybert
from ternarybert.errors import DataError, UnsupportedModelError
from ternarybert.packed import write
from ternarybert.recipe import Recipe
from ternarybert.report import activations as activations_module
from ternarybert.report.activations import TextAttention, activation_parts, measure_activations, read_texts
from ternarybert.student import make_student
from ternarybert.training.export import packed_model
from tests import tiny
from tests.report.test_charts import words

TEXTS = [("the film was very good",), ("a dull plot", "we liked it")]


def save_student(folder, **changes):
    """A student of `tiny.bert`, packed."""
    recipe = Recipe.load("default")
    known = tiny.tokenizer()
    write(folder, packed_model(make_student(tiny.bert(vocab_size=len(known), **changes), recipe), recipe))
    known.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("models")
    tiny.save(place / "teacher")
    return save_student(place / "student"), place / "teacher"


@pytest.fixture(scope="module")
def activations(folders):
    return measure_activations(*folders, TEXTS)


def outputs(model, text):
    batch = tiny.tokenizer()(*text, return_tensors="pt")
    with torch.no_grad():
        return model(**batch, output_hidden_states=True, output_attentions=True)


def test_the_teachers_values_are_its_own(folders, activations):
    teacher = AutoModel.from_pretrained(folders[1], attn_implementation="eager").eval()
    found = [outputs(teacher, text) for text in TEXTS]
    for layer in range(3):
        expected = np.concatenate([each.hidden_states[layer].numpy().reshape(-1) for each in found])
        np.testing.assert_allclose(activations.teacher[layer], expected, atol=1e-5)
    for text, each in zip(activations.attention, found, strict=True):
        np.testing.assert_allclose(text.teacher, torch.stack(each.attentions)[:, 0].numpy(), atol=1e-5)


def test_the_students_values_are_its_own(folders, activations):
    student = ternarybert.load_torch(folders[0]).base_model.eval()
    found = [outputs(student, text) for text in TEXTS]
    for layer in range(3):
        expected = np.concatenate([each.hidden_states[layer].numpy().reshape(-1) for each in found])
        np.testing.assert_array_equal(activations.student[layer], expected)
    assert not np.array_equal(activations.student[1], activations.teacher[1])


def test_tokens_and_rows(activations):
    first, second = activations.attention
    assert first.tokens == ("[CLS]", "the", "film", "was", "very", "good", "[SEP]")
    assert second.tokens.count("[SEP]") == 2
    for text in activations.attention:
        for side in (text.teacher, text.student):
            assert side.shape == (2, 4, len(text.tokens), len(text.tokens))
            np.testing.assert_allclose(side.sum(-1), 1, atol=1e-5)


def test_a_shallow_student_is_compared_with_the_layers_it_learned_from(folders, tmp_path):
    tiny.save(tmp_path / "deep", num_hidden_layers=4)
    deep = AutoModel.from_pretrained(tmp_path / "deep").eval()
    activations = measure_activations(folders[0], tmp_path / "deep", TEXTS[:1])
    assert activations.layers == (0, 2, 4)
    expected = outputs(deep, TEXTS[0]).hidden_states
    for place, layer in enumerate(activations.layers):
        np.testing.assert_allclose(activations.teacher[place], expected[layer].numpy().reshape(-1), atol=1e-5)


def test_a_teacher_in_half_precision(folders, tmp_path):
    tiny.save(tmp_path / "half", dtype=torch.bfloat16)
    whole, half = (measure_activations(folders[0], teacher, TEXTS) for teacher in (folders[1], tmp_path / "half"))
    assert half.teacher[2].dtype == np.float32
    np.testing.assert_allclose(half.teacher[2], whole.teacher[2], atol=0.2)


def test_a_teacher_that_lacks_weights(folders, tmp_path):
    tiny.save(tmp_path / "part")
    path = tmp_path / "part" / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    del tensors["bert.encoder.layer.1.output.dense.weight"]
    safetensors.torch.save_file(tensors, path, {"format": "pt"})
    with pytest.raises(UnsupportedModelError, match=r"encoder\.layer\.1\.output\.dense\.weight"):
        measure_activations(folders[0], tmp_path / "part", TEXTS)


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"num_attention_heads": 2}, r"num_attention_heads.*\b2\b.*\b4\b"),
        ({"num_hidden_layers": 3}, r"\b3 layers"),
    ],
)
def test_a_model_that_cannot_be_the_teacher(folders, tmp_path, changes, reason):
    tiny.save(tmp_path / "other", **changes)
    with pytest.raises(UnsupportedModelError, match=reason):
        measure_activations(folders[0], tmp_path / "other", TEXTS)


def test_a_long_text_is_cut(folders):
    activations = measure_activations(*folders, [("the film " * 100,)])
    assert len(activations.attention[0].tokens) == 64
    picture = activations_module.attention_maps(activations.attention[0], 0, "map", "Text")
    assert f"{activations_module.MAX_TOKENS} of 64 tokens" in picture.caption


@given(st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=50))
def test_quantiles_are_numpys(values):
    array = np.array(values, np.float32)
    found = activations_module.quantiles(array)
    assert found == tuple(np.quantile(array, [0, 0.01, 0.25, 0.5, 0.75, 0.99, 1]))
    assert found[0] == array.min() and found[-1] == array.max()


def test_skewness_is_scipys():
    values = np.random.default_rng(0).exponential(size=1000).astype(np.float32)
    assert activations_module.skewness(values) == pytest.approx(scipy.stats.skew(values.astype(np.float64)))
    assert activations_module.skewness(np.ones(5, np.float32)) == 0


def test_how_far_heads_differ():
    """One layer, two heads, two tokens: the first head is the same, the second looks the other way from one token."""
    same = np.full((2, 2), 0.5)
    turned = np.array([[1.0, 0.0], [0.5, 0.5]]), np.array([[0.0, 1.0], [0.5, 0.5]])
    text = TextAttention(("a", "b"), np.stack([same, turned[0]])[None], np.stack([same, turned[1]])[None])
    np.testing.assert_allclose(activations_module.head_differences([text]), [[0, 0.5]])
    np.testing.assert_allclose(activations_module.head_differences([text, text]), [[0, 0.5]])
    assert {"0", "50"} <= set(words(activations_module.head_map([text], "heads")))


@pytest.mark.parametrize("layers, shown", [(1, [0]), (2, [0, 1]), (6, [0, 2, 3, 5]), (12, [0, 4, 7, 11])])
def test_layers_to_show(layers, shown):
    assert activations_module.shown_layers(layers) == shown


def test_the_parts_of_the_page(folders, activations):
    first, *maps = activation_parts(*folders, TEXTS, "1-")
    assert [picture.name for picture in first.pictures] == ["1-hidden", "1-heads"]
    assert re.search(r"\b16 tokens of 2 texts", first.text[0])
    [table] = first.long_tables
    assert [row[0] for row in table.rows][:3] == ["embedding, teacher", "embedding, student", "layer 1, teacher"]
    assert table.rows[3][1:8] == [f"{value:.2f}" for value in activations_module.quantiles(activations.student[1])]
    assert [part.text for part in maps] == [["“the film was very good”"], ["“a dull plot” and “we liked it”"]]
    assert [picture.name for picture in maps[1].pictures] == ["1-attention-2-layer-1", "1-attention-2-layer-2"]
    assert {"teacher", "student", "film", "good"} <= set(words(maps[0].pictures[0]))


def test_of_many_texts_the_first_count(folders, monkeypatch):
    monkeypatch.setattr(activations_module, "MAX_TEXTS", 5)
    first, *maps = activation_parts(*folders, [("a film",)] * 7, "")
    assert re.search(r"\b20 tokens of the first 5 of 7 texts", first.text[0])
    assert len(maps) == 4


def test_texts_of_a_file(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("one\n\ntwo\tpair\n")
    assert read_texts(path) == [("one",), ("two", "pair")]
    path.write_text("\n \n")
    with pytest.raises(DataError, match=r"texts\.txt"):
        read_texts(path)
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(DataError, match=r"texts\.txt"):
        read_texts(path)
