"""A packed folder through transformers is the student that was packed: the same bits come out."""

import copy
import hashlib
import os

import pytest
import torch
import transformers
from transformers import AutoModel, AutoModelForSequenceClassification

import ternarybert
from ternarybert.errors import NotPackedError
from ternarybert.student import quantized_layers

from .students import CONFIGS, RECIPES, outputs, random_student, write_student

HEADS = ("ForSequenceClassification", "ForQuestionAnswering", "ForTokenClassification", "Model")


@pytest.mark.parametrize("packing", ["plain", "dense"])
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_logits_are_the_students(tmp_path, recipe, packing):
    student = random_student(recipe)
    write_student(tmp_path / "p", student, recipe, packing=packing)
    model, info = AutoModelForSequenceClassification.from_pretrained(tmp_path / "p", output_loading_info=True)
    assert not any(info.values())
    assert not model.training
    assert torch.equal(outputs(model), outputs(student))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("family", CONFIGS)
def test_every_head_of_every_family(tmp_path, family, head):
    student = random_student(head=head, family=family)
    write_student(tmp_path / "p", student)
    model = ternarybert.load_torch(tmp_path / "p")
    assert type(model) is type(student)
    assert torch.equal(outputs(model), outputs(student))
    auto = getattr(transformers, f"AutoModel{head.removeprefix('Model')}")
    assert torch.equal(outputs(auto.from_pretrained(tmp_path / "p")), outputs(student))


def test_the_encoder_without_its_head(tmp_path):
    student = random_student()
    write_student(tmp_path / "p", student)
    encoder = AutoModel.from_pretrained(tmp_path / "p")
    assert torch.equal(outputs(encoder), outputs(student.bert))


def test_a_new_head_on_the_encoder(tmp_path):
    student = random_student(head="Model")
    write_student(tmp_path / "p", student)
    model, info = AutoModelForSequenceClassification.from_pretrained(tmp_path / "p", output_loading_info=True)
    assert info["missing_keys"] == {"classifier.weight", "classifier.bias"}
    assert torch.equal(outputs(model.bert), outputs(student))


def test_the_weights_are_in_memory_once(tmp_path):
    write_student(tmp_path / "p", random_student())
    for _, layer in quantized_layers(ternarybert.load_torch(tmp_path / "p")):
        assert layer.w_hat().data_ptr() == layer.weight.data_ptr()


def test_a_copy_and_other_dtypes_are_not_quantized_anew(tmp_path):
    recipe = RECIPES["3-3-8 linear"]  # three-bit LAQ asked about its own result gives other codes
    write_student(tmp_path / "p", random_student(recipe), recipe)
    model = ternarybert.load_torch(tmp_path / "p")
    expected = {name: layer.w_hat().clone() for name, layer in quantized_layers(model)}
    for other in (copy.deepcopy(model), copy.deepcopy(model).bfloat16()):
        for name, layer in quantized_layers(other):
            assert torch.equal(layer.w_hat(), expected[name].to(other.dtype)), name
        outputs(other)


def test_bfloat16_is_computed_from_float32_scales(tmp_path):
    write_student(tmp_path / "p", random_student())
    exact = ternarybert.load_torch(tmp_path / "p")
    model = ternarybert.load_torch(tmp_path / "p", dtype=torch.bfloat16)
    assert model.dtype is torch.bfloat16
    for (name, ours), (_, theirs) in zip(quantized_layers(model), quantized_layers(exact), strict=True):
        assert torch.equal(ours.w_hat(), theirs.w_hat().bfloat16()), name


# float16 keeps 11 bits, so biases, LayerNorm and head move by up to 2^-12 of themselves. Where activations are rounded
# to 8 bits this now and then moves one to the next level, 1/255 of its range, as any other small change does.
HALF_ERROR = {32: 1e-3, 8: 2e-2}  # share of the largest logit, by bits of the activations


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("recipe", [RECIPES["2-2-32"], RECIPES["default"]], ids=["2-2-32", "default"])
def test_half_the_bytes_for_what_is_not_packed(tmp_path, recipe, seed):
    student = random_student(recipe, seed=seed)
    write_student(tmp_path / "p", student, recipe, half=True)
    model = ternarybert.load_torch(tmp_path / "p")
    assert model.dtype is torch.float32
    logits = outputs(student)
    assert (outputs(model) - logits).abs().max() < HALF_ERROR[recipe.bits.a] * logits.abs().max()


@pytest.mark.parametrize("where", [{}, {"subfolder": "ternary"}])
def test_from_the_cache_of_the_hub(tmp_path, where):
    """As the hub's client lays it out: a snapshot of symbolic links to files named by their hash."""
    student = random_student()
    write_student(tmp_path / "p", student)
    repository, commit = tmp_path / "hub" / "models--someone--tiny", "0" * 40
    snapshot = repository / "snapshots" / commit / where.get("subfolder", "")
    for folder in (snapshot, repository / "blobs", repository / "refs"):
        folder.mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    for path in (tmp_path / "p").iterdir():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        path.rename(repository / "blobs" / digest)
        (snapshot / path.name).symlink_to(os.path.relpath(repository / "blobs" / digest, snapshot))
    model = ternarybert.load_torch("someone/tiny", cache_dir=tmp_path / "hub", local_files_only=True, **where)
    assert torch.equal(outputs(model), outputs(student))
    assert torch.equal(outputs(ternarybert.load_torch(snapshot)), outputs(student))


def test_from_a_subfolder(tmp_path):
    student = random_student()
    write_student(tmp_path / "model" / "ternary", student)
    model = ternarybert.load_torch(tmp_path / "model", subfolder="ternary")
    assert torch.equal(outputs(model), outputs(student))
    with pytest.raises(NotPackedError, match=r"there is no config.json"):
        ternarybert.load_torch(tmp_path / "model", subfolder="")


def test_a_plain_folder_is_for_transformers_itself(tmp_path):
    transformers.BertModel(CONFIGS["Bert"]).save_pretrained(tmp_path)
    with pytest.raises(NotPackedError, match="quant_method 'ternarybert'"):
        ternarybert.load_torch(tmp_path)
