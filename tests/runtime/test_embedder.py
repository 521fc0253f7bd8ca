"""Vectors without torch equal those of sentence-transformers from the same folder, whatever the modules."""

import json

import numpy as np
import pytest
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.util import quantize_embeddings

import ternarybert.hf
from ternarybert.errors import (
    InputError,
    NotPackedError,
    PackedConfigError,
    PackedError,
    PackedTensorError,
    UnsafeFileError,
    UnsupportedModelError,
)
from ternarybert.native import kernels
from ternarybert.packed.embedder_modules import has_modules, read_modules
from ternarybert.runtime import Embedder, installed, load
from ternarybert.runtime.vectors import calibration_ranges, quantize_vectors, similarities
from tests.embedders import NEW, PROMPTS, TEXTS, add_modules, packed_embedder, write_json
from tests.runtime.folders import save_student

CLOSE = {"rtol": 0, "atol": 1e-6}  # torch and NumPy pool and project in another order of additions


def library(folder):
    return SentenceTransformer(str(folder), device="cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    settings = {"prompts": PROMPTS, "similarity_fn_name": "cosine"}
    return packed_embedder(tmp_path_factory.mktemp("embedder") / "model", settings=settings)


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("more", [{}, {"dense": 20}, {"normalize": False}, {"dense": 40, "normalize": False}])
def test_vectors_equal_sentence_transformers(tmp_path, pooling, more):
    made = packed_embedder(tmp_path / "model", pooling=pooling, **more)
    with pytest.warns(ternarybert.errors.TruncationWarning), load(made) as model:
        ours = model.encode(TEXTS)
    assert isinstance(model, Embedder) and ours.dtype == np.float32 and ours.shape == (len(TEXTS), model.width)
    np.testing.assert_allclose(ours, library(made).encode(TEXTS), **CLOSE)


@pytest.mark.parametrize("family", ["Roberta", "DistilBert", "Electra"])
def test_families_equal_sentence_transformers(tmp_path, family):
    made = packed_embedder(tmp_path / "model", family, max_length=32)
    with load(made) as model:
        np.testing.assert_allclose(model.encode(TEXTS), library(made).encode(TEXTS), **CLOSE)


def test_a_student_without_pooler_loads_in_sentence_transformers(tmp_path):
    made = save_student(tmp_path / "model", "Model")
    content = ternarybert.packed.read(made).in_memory()
    tensors = {name: tensor for name, tensor in content.tensors.items() if "pooler" not in name}
    smaller = ternarybert.packed.PackedModel(content.config, tensors, content.bits, content.recipe)
    ternarybert.packed.write(made, smaller, extra_files=ternarybert.packed.hf_folder.tokenizer_files(made), force=True)
    add_modules(made, max_length=32)
    student = library(made)
    assert student[0].auto_model.pooler is None
    with load(made) as model:
        np.testing.assert_allclose(model.encode(TEXTS), student.encode(TEXTS), **CLOSE)


def test_what_the_library_saves_is_read(tmp_path, folder):
    """The newest layout: other module names, `pooling_mode`."""
    student = library(folder)
    student.save(str(tmp_path / "saved"))
    listed = json.loads((tmp_path / "saved" / "modules.json").read_text())
    assert any(module["type"].startswith(NEW) for module in listed)
    with load(tmp_path / "saved") as model, load(folder) as before:
        np.testing.assert_array_equal(model.encode(TEXTS[:3]), before.encode(TEXTS[:3]))
        assert model.modules.prompts == PROMPTS and model.max_length == 16


def test_a_vector_does_not_depend_on_batch_threads_kernel_or_engine(tmp_path):
    made = packed_embedder(tmp_path / "model", dense=24, max_length=48)
    with load(made) as model:
        whole = model.encode(TEXTS * 9)
        np.testing.assert_array_equal(whole[: len(TEXTS)], np.stack([model.encode(text) for text in TEXTS]))
    for options in ({"num_threads": 1}, {"engine": "oracle"}, *({"kernel": name} for name in kernels())):
        with load(made, **options) as model:
            np.testing.assert_array_equal(model.encode(TEXTS), whole[: len(TEXTS)])


def test_prompts(folder):
    student = library(folder)
    with load(folder) as model:
        for options in ({"prompt_name": "query"}, {"prompt": "very dull: "}, {"prompt_name": "document"}):
            expected = student.encode(TEXTS[:3], **options)
            np.testing.assert_allclose(model.encode(TEXTS[:3], **options), expected, **CLOSE)
        np.testing.assert_array_equal(model.encode_query("fun"), model.encode("the film: fun"))
        np.testing.assert_array_equal(model.encode_document("fun"), model.encode("fun"))
        with pytest.raises(InputError, match=r"'queries'.*did you mean 'query'"):
            model.encode("fun", prompt_name="queries")


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_a_default_prompt_whose_tokens_are_not_pooled(tmp_path, pooling):
    settings = {"prompts": PROMPTS, "default_prompt_name": "query"}
    made = packed_embedder(tmp_path / "model", pooling=pooling, include_prompt=False, settings=settings, max_length=32)
    with load(made) as model:
        np.testing.assert_allclose(model.encode(TEXTS[:3]), library(made).encode(TEXTS[:3]), **CLOSE)


def test_options_of_encode(folder):
    student = library(folder)
    with load(folder) as model:
        for options in ({"truncate_dim": 8}, {"precision": "ubinary"}, {"precision": "binary", "truncate_dim": 12}):
            got, expected = model.encode(TEXTS[:3], **options), student.encode(TEXTS[:3], **options)
            assert got.dtype == expected.dtype
            np.testing.assert_allclose(got, expected, **CLOSE)
        short = model.encode(TEXTS[:3], truncate_dim=8, normalize=True)
        expected = student.encode(TEXTS[:3], truncate_dim=8, normalize_embeddings=True)
        np.testing.assert_allclose(short, expected, **CLOSE)
        with pytest.raises(InputError, match=r"33.*32"):
            model.encode("fun", truncate_dim=33)
        assert model.encode([]).shape == (0, 32)
        assert np.isfinite(model.encode("")).all()


def test_explicit_pooling_is_that_of_a_plain_encoder(tmp_path, folder):
    plain = save_student(tmp_path / "plain", "Model")
    with load(folder) as model, load(plain) as encoder:
        for pooling in ("mean", "cls", "pooler"):
            ours = model.encode(TEXTS[:3], pooling=pooling, normalize=True)
            np.testing.assert_allclose(ours, encoder.encode(TEXTS[:3], pooling=pooling, normalize=True), **CLOSE)
        assert [len(rows) for rows in model.encode(TEXTS[:2], pooling="tokens")] == [5, 10]
        states = model.encode(TEXTS[0], pooling="tokens")
        np.testing.assert_array_equal(model.encode(TEXTS[0], pooling="max"), states.max(0))
        with pytest.raises(InputError, match="'men'"):
            model.encode("fun", pooling="men")


@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary", "float32"])
def test_precisions_are_those_of_the_library(precision):
    vectors = np.random.default_rng(0).normal(size=(200, 24)).astype(np.float32)
    ranges = calibration_ranges(vectors[:150])
    ours = quantize_vectors(vectors, precision, ranges)
    expected = quantize_embeddings(vectors, precision, ranges=ranges)
    assert ours.dtype == expected.dtype
    np.testing.assert_array_equal(ours, expected)
    assert quantize_vectors(vectors[:0], precision, ranges).shape == ours[:0].shape


def test_8_bits_need_ranges(folder):
    with load(folder) as model:
        with pytest.raises(InputError, match=r"'int8'.*ranges"):
            model.encode("fun", precision="int8")
        ranges = calibration_ranges(model.encode(TEXTS[:3]))
        one = model.encode("fun", precision="int8", ranges=ranges)
        np.testing.assert_array_equal(one, model.encode(["fun", TEXTS[0]], precision="int8", ranges=ranges)[0])
        with pytest.raises(InputError, match=r"\(2, 3\).*\(2, 32\)"):
            model.encode("fun", precision="int8", ranges=np.zeros((2, 3)))
        with pytest.raises(InputError, match="'int7'"):
            model.encode("fun", precision="int7")


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarities_are_those_of_the_library(folder, name):
    student = library(folder)
    student.similarity_fn_name = name
    a, b = np.random.default_rng(1).normal(size=(2, 5, 32)).astype(np.float32)
    np.testing.assert_allclose(similarities(a, b[:3], name), student.similarity(a, b[:3]), rtol=1e-4, atol=1e-5)


def test_similarity_of_a_model(folder):
    with load(folder) as model:
        vectors = model.encode(TEXTS[:3])
        table = model.similarity(vectors, vectors)
        np.testing.assert_allclose(np.diag(table), 1, atol=1e-6)
        assert model.similarity(vectors[0], vectors).shape == (1, 3)
        with pytest.raises(InputError, match=r"\(3, 32\).*\(3, 31\)"):
            model.similarity(vectors, vectors[:, :31])


def test_rank_equals_the_cross_encoder_of_the_library(tmp_path):
    made = save_student(tmp_path / "model", "ForSequenceClassification", num_labels=1, id2label={0: "LABEL_0"})
    texts = [*TEXTS[:3], "the movie was fun and great"]
    expected = CrossEncoder(str(made), device="cpu").rank("was it fun", texts)
    with load(made) as model:
        ranked = model.rank("was it fun", texts)
        assert [each.index for each in ranked] == [each["corpus_id"] for each in expected]
        np.testing.assert_allclose([each.score for each in ranked], [each["score"] for each in expected], atol=1e-5)
        assert [each.text for each in ranked] == [texts[each.index] for each in ranked]
        assert model.rank("was it fun", texts, top_k=2) == ranked[:2]


def test_rank_needs_one_output(folders):
    with load(folders()) as model, pytest.raises(UnsupportedModelError, match="3"):
        model.rank("was it fun", ["a film"])


def change_list(change):
    """Change modules.json."""

    def apply(folder):
        modules = json.loads((folder / "modules.json").read_text())
        change(modules)
        write_json(folder / "modules.json", modules)

    return apply


def settings(**values):
    return lambda folder: write_json(folder / "config_sentence_transformers.json", values)


DAMAGE = {
    "pooling": lambda folder: add_modules(folder, pooling="lasttoken"),
    "module": change_list(lambda modules: modules[2].update(type="sentence_transformers.models.LSTM")),
    "no pooling": change_list(lambda modules: modules.pop(1)),
    "outside": change_list(lambda modules: modules[1].update(path="../1_Pooling")),
    "inner folder": change_list(lambda modules: modules[0].update(path="0_Transformer")),
    "dense width": lambda folder: add_modules(folder, dense=8, width=30),
    "dense activation": lambda folder: add_modules(folder, dense=8, activation="torch.nn.modules.activation.Mish"),
    "dense weights": lambda folder: (add_modules(folder, dense=8) / "2_Dense" / "model.safetensors").unlink(),
    "dense shape": lambda folder: write_json(
        add_modules(folder, dense=8) / "2_Dense" / "config.json", {"in_features": 32, "out_features": 9}
    ),
    "length": lambda folder: write_json(folder / "sentence_bert_config.json", {"max_seq_length": "long"}),
    "lower case": lambda folder: write_json(folder / "sentence_bert_config.json", {"do_lower_case": True}),
    "prompts": settings(prompts=["query"]),
    "default prompt": settings(default_prompt_name="query"),
    "similarity": settings(similarity_fn_name="hamming"),
    "not JSON": lambda folder: (folder / "1_Pooling" / "config.json").write_text("{"),
}


@pytest.mark.parametrize(
    ("how", "error", "named"),
    [
        ("pooling", UnsupportedModelError, "lasttoken"),
        ("module", UnsupportedModelError, "LSTM"),
        ("no pooling", UnsupportedModelError, "Transformer, Normalize"),
        ("outside", UnsafeFileError, "../1_Pooling"),
        ("inner folder", UnsupportedModelError, "0_Transformer"),
        ("dense width", PackedConfigError, "30.*32"),
        ("dense activation", UnsupportedModelError, "Mish"),
        ("dense weights", UnsafeFileError, "2_Dense"),
        ("dense shape", PackedTensorError, r"\(8, 32\).*\(9, 32\)"),
        ("length", PackedConfigError, "long"),
        ("lower case", UnsupportedModelError, "do_lower_case"),
        ("prompts", PackedConfigError, "query"),
        ("default prompt", PackedConfigError, "query"),
        ("similarity", UnsupportedModelError, "hamming"),
        ("not JSON", PackedConfigError, "1_Pooling/config.json"),
    ],
)
def test_modules_that_cannot_be_used_are_named(tmp_path, how, error, named):
    made = packed_embedder(tmp_path / "model")
    DAMAGE[how](made)
    with pytest.raises(error, match=named):
        load(made)


def test_a_folder_without_modules_has_none(tmp_path):
    assert not has_modules(tmp_path)
    with pytest.raises(PackedError, match=r"modules\.json"):
        read_modules(tmp_path)


def test_an_unknown_model_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(installed, "entry_points", lambda group: [])  # the development environment has a model
    with pytest.raises(NotPackedError, match="pip install ternarybert-minilm"):
        load("minilm")
    with pytest.raises(NotPackedError, match=r"'minilm'"):
        load("./minilm")
