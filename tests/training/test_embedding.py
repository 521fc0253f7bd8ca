"""Embedders are distilled without labels, and the packed folder is one of sentence-transformers."""

import json

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import BertForMaskedLM

import ternarybert
from ternarybert.data import load_texts
from ternarybert.errors import DataError, UnsupportedModelError
from ternarybert.recipe import PRESETS
from ternarybert.training.heads import EmbeddingHead
from ternarybert.training.heads.embedding import loss_similarities, loss_vectors, pool, training_prompts
from ternarybert.training.models import load_any, load_trained
from ternarybert.training.options import TrainingOptions
from ternarybert.training.ternarize import ternarize
from tests import tiny
from tests.embedders import PROMPTS, TEXTS, add_modules, float_embedder
from tests.training.conftest import rows

CLOSE = {"rtol": 0, "atol": 1e-6}
RECIPE = PRESETS["default"].override({"schedule.learning_rate": "1e-3", "schedule.batch_size": 8})
QUICK = TrainingOptions(device="cpu", evaluations=1, max_steps=6)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "texts.txt"
    path.write_text("\n".join(rows(64)["text"]))
    return path


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    made = rows(30, start=200)["text"]
    path = tmp_path_factory.mktemp("pairs") / "sts.tsv"
    lines = [f"{a}\t{b}\t{i % 6}" for i, (a, b) in enumerate(zip(made, reversed(made), strict=True))]
    path.write_text("\n".join(["sentence1\tsentence2\tscore", *lines]))
    return path


@pytest.mark.parametrize("modules", [{}, {"pooling": "cls", "dense": 20}, {"pooling": "max", "normalize": False}])
def test_an_embedder_is_ternarized(tmp_path, texts, pairs, modules):
    teacher = float_embedder(tmp_path / "teacher", settings={"prompts": PROMPTS}, **modules)
    report = ternarize(teacher, load_texts(texts, pairs), tmp_path / "small", RECIPE, QUICK)
    assert report.metric == "spearman" and set(report.best.scores) == {"spearman", "pearson", "cosine"}
    assert set(report.teacher.scores["dev"]) == {"spearman", "pearson"}

    library = SentenceTransformer(str(tmp_path / "small"), device="cpu")
    student = load_any(tmp_path / "small", EmbeddingHead(load_texts(texts).task))
    inputs = tiny.tokenizer()(TEXTS[:3], padding=True, return_tensors="pt")
    with torch.no_grad():
        torch_vectors = student(**inputs).sentence_embedding.numpy()
    with ternarybert.load(tmp_path / "small") as model:
        ours = model.encode(TEXTS[:3])
        assert model.max_length == 16 and model.modules.prompts == PROMPTS
    np.testing.assert_allclose(ours, library.encode(TEXTS[:3]), **CLOSE)
    np.testing.assert_allclose(ours, torch_vectors, **CLOSE)
    assert not any("pooler" in name for name in ternarybert.packed.read(tmp_path / "small").tensors)


def test_native_and_torch_evaluate_alike(tmp_path, texts, pairs):
    teacher = float_embedder(tmp_path / "teacher")
    ternarize(teacher, load_texts(texts), tmp_path / "small", RECIPE, QUICK)
    from ternarybert.runtime.evaluate import evaluate as native

    data = load_texts(None, pairs)
    first, second = ternarybert.evaluate(tmp_path / "small", data), native(tmp_path / "small", data)
    assert first["scores"] == pytest.approx(second["scores"], abs=1e-4) and first["metric"] == "spearman"
    both = ternarybert.evaluate(tmp_path / "small", data, teacher=teacher)
    assert 0 < both["scores"]["cosine"] < 100


def test_training_brings_the_vectors_nearer(tmp_path, texts):
    teacher = float_embedder(tmp_path / "teacher")
    data = load_texts(texts)
    longer = TrainingOptions(device="cpu", evaluations=5, max_steps=60)
    report = ternarize(teacher, data, tmp_path / "small", RECIPE, longer)
    assert report.metric == "cosine" and report.final.scores["cosine"] > report.evaluations[0].scores["cosine"]


def test_a_plain_encoder_with_a_pooling(tmp_path, texts):
    """Also one with the head of a language model, and without the pooler."""
    known = tiny.tokenizer()
    tiny.enlarged(BertForMaskedLM(tiny.config(vocab_size=len(known))), 4.0).save_pretrained(tmp_path / "plain")
    known.save_pretrained(tmp_path / "plain")
    with pytest.raises(UnsupportedModelError, match=r"plain.*--pooling"):
        ternarize(tmp_path / "plain", load_texts(texts), tmp_path / "small", RECIPE, QUICK)
    ternarize(tmp_path / "plain", load_texts(texts, pooling="cls"), tmp_path / "small", RECIPE, QUICK)
    with ternarybert.load(tmp_path / "small") as model:
        assert model.modules.pooling == "cls" and model.modules.normalizes and model.max_length == 64
        expected = SentenceTransformer(str(tmp_path / "small"), device="cpu").encode(TEXTS)
        np.testing.assert_allclose(model.encode(TEXTS), expected, **CLOSE)


def test_what_is_refused(tmp_path, texts):
    teacher = float_embedder(tmp_path / "teacher")
    with pytest.raises(UnsupportedModelError, match="--pooling cls"):
        ternarize(teacher, load_texts(texts, pooling="cls"), tmp_path / "small", RECIPE, QUICK)
    with pytest.raises(DataError, match="ternarize"):
        ternarybert.finetune(teacher, load_texts(texts), tmp_path / "tuned")
    with pytest.raises(UnsupportedModelError, match="BertForSequenceClassification"):
        ternarize(tiny.save(tmp_path / "classifier"), load_texts(texts), tmp_path / "small", RECIPE, QUICK)
    add_modules(teacher, dense=8, width=30)
    with pytest.raises(ternarybert.errors.PackedConfigError, match=r"30.*32"):
        ternarize(teacher, load_texts(texts), tmp_path / "small", RECIPE, QUICK)
    add_modules(teacher, pooling="lasttoken")
    with pytest.raises(UnsupportedModelError, match="lasttoken"):
        ternarize(teacher, load_texts(texts), tmp_path / "small", RECIPE, QUICK)


def test_training_texts_get_every_prompt(tmp_path, texts):
    teacher = float_embedder(tmp_path / "teacher", settings={"prompts": PROMPTS}, max_length=32)
    head = EmbeddingHead(load_texts(texts).task)
    network = load_trained(teacher, head)
    assert training_prompts(network.embedder_modules) == ["", "the film: "]
    tokenized = head.tokenize(load_texts(texts), tiny.tokenizer(), network)
    first, second = load_texts(texts).train["text"][:2]
    assert tokenized.train["input_ids"][:2] == tiny.tokenizer()([first, f"the film: {second}"])["input_ids"]
    assert tokenized.max_length == 32 and len(tokenized.evals["dev"]) == len(load_texts(texts).evals["dev"])


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
@pytest.mark.parametrize("left", [False, True])
def test_pooling_ignores_padding(pooling, left):
    states = torch.randn(1, 3, 4)
    padded = torch.cat([torch.full((1, 2, 4), 9.0), states] if left else [states, torch.full((1, 2, 4), 9.0)], 1)
    mask = torch.tensor([[0, 0, 1, 1, 1] if left else [1, 1, 1, 0, 0]])
    expected = {"mean": states.mean(1), "cls": states[:, 0], "max": states.amax(1)}[pooling]
    torch.testing.assert_close(pool(padded, mask, pooling), expected)


def test_losses():
    a, b = torch.nn.functional.normalize(torch.randn(2, 5, 8), dim=-1)
    torch.testing.assert_close(loss_vectors(a, b), 1 - (a * b).sum(-1).mean())
    assert loss_vectors(b, b).item() == pytest.approx(0, abs=1e-6)
    wide = 7 * torch.randn(5, 8)
    assert loss_vectors(2 * wide, wide).item() == pytest.approx(loss_vectors(200 * wide, 100 * wide).item(), rel=1e-5)
    assert loss_vectors(wide.mean(0).expand(5, 8), wide).item() == pytest.approx(1.0, rel=1e-5)
    assert loss_similarities(b, b).item() == pytest.approx(0, abs=1e-6)
    turned = b @ torch.linalg.qr(torch.randn(8, 8))[0]
    assert loss_similarities(turned, b).item() == pytest.approx(0, abs=1e-6) and loss_vectors(turned, b).item() > 0.1


def test_the_similarity_term_is_added(texts):
    from dataclasses import replace

    task = replace(load_texts(texts).task, similarity_weight=2.0)
    a, b = torch.nn.functional.normalize(torch.randn(2, 5, 8), dim=-1)
    expected = loss_vectors(a, b) + 2 * loss_similarities(a, b)
    torch.testing.assert_close(EmbeddingHead(task).loss_pred(a, b, None, "example"), expected)


def test_the_card_says_how_to_embed(tmp_path, texts):
    teacher = float_embedder(tmp_path / "teacher")
    ternarize(teacher, load_texts(texts), tmp_path / "small", RECIPE, QUICK)
    card = (tmp_path / "small" / "README.md").read_text()
    assert "SentenceTransformer" in card and "pipeline_tag: sentence-similarity" in card
    listed = json.loads((tmp_path / "small" / "modules.json").read_text())
    assert [module["path"] for module in listed] == ["", "1_Pooling", "2_Normalize"]
