"""What does not fit is refused by name before a weight is loaded."""

import dataclasses
import json

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, BertConfig, BertForMaskedLM

import ternarybert
from ternarybert.errors import (
    ContainerError,
    FormatVersionError,
    PackedConfigError,
    PackedTensorError,
    UnsafeFileError,
    UnsupportedModelError,
)
from ternarybert.packed import write
from ternarybert.student import make_student
from ternarybert.training.export import packed_model
from tests.packed.damage import drop_tensor

from .students import CONFIGS, PAPER, RECIPES, random_student, write_student

POOLER = "bert.pooler.dense.weight"


@pytest.fixture
def folder(tmp_path):
    return write_student(tmp_path / "p", random_student())


def change(folder, edit):
    config = json.loads((folder / "config.json").read_text())
    edit(config)
    (folder / "config.json").write_text(json.dumps(config))


def load(folder, **options):
    return AutoModelForSequenceClassification.from_pretrained(folder, **options)


def test_a_damaged_file(folder):
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 255
    weights.write_bytes(data)
    with pytest.raises(ContainerError, match="SHA-256"):
        load(folder)
    with pytest.raises(ContainerError, match="SHA-256"):
        ternarybert.load_torch(folder)
    change(folder, lambda config: config["quantization_config"].pop("sha256"))
    with pytest.raises(PackedTensorError, match=r"tensor '.*\.weight'"):
        load(folder)


def test_another_version(folder):
    change(folder, lambda config: config["quantization_config"].update(format_version=2))
    with pytest.raises(FormatVersionError, match="format version 2"):
        load(folder)


def test_no_recipe(folder):
    change(folder, lambda config: config["quantization_config"].update(recipe={}))
    with pytest.raises(PackedConfigError, match="recipe"):
        load(folder)


def test_a_recipe_that_is_none_of_ours(folder):
    change(folder, lambda config: config["quantization_config"].update(recipe={"method": "twn"}))
    with pytest.raises(PackedConfigError, match="no field 'method'"):
        load(folder)


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        (RECIPES["2-2-4"], "2-2-8 .* 2-2-4"),
        (RECIPES["float pooler"], f"packs '{POOLER}'"),
    ],
)
def test_a_recipe_of_another_model(tmp_path, recipe, reason):
    model = dataclasses.replace(packed_model(random_student(), PAPER), recipe=recipe.to_dict())
    write(tmp_path / "p", model)
    with pytest.raises(PackedConfigError, match=reason):
        load(tmp_path / "p")


def test_a_tensor_that_should_be_packed(tmp_path):
    model = packed_model(random_student(), PAPER)
    model.tensors[POOLER] = model.tensors[POOLER].dequantize()
    write(tmp_path / "p", model)
    with pytest.raises(PackedConfigError, match=f"'{POOLER}'.* float32"):
        load(tmp_path / "p")


def test_other_levels_than_the_recipe_has(tmp_path):
    log = RECIPES["3-3-8 log"]
    model = dataclasses.replace(packed_model(random_student(log), log), recipe=RECIPES["3-3-8 linear"].to_dict())
    write(tmp_path / "p", model)
    with pytest.raises(PackedConfigError, match=r"3 bits and log levels.*3 bits and linear levels"):
        load(tmp_path / "p")


def test_a_head_of_another_size(folder):
    with pytest.raises(PackedConfigError, match=r"'classifier.weight' is \(3, 18\), but Bert.* \(5, 18\)"):
        load(folder, num_labels=5)


def test_another_file_than_the_one_that_is_checked(folder):
    (folder / "model.safetensors").rename(folder / "model.other.safetensors")
    with pytest.raises(UnsafeFileError, match=r"loaded from model\.safetensors"):
        load(folder, variant="other")


def test_weights_that_are_used_twice(tmp_path):
    config = BertConfig.from_dict(CONFIGS["Bert"].to_dict() | {"architectures": ["BertForMaskedLM"]})
    recipe = PAPER
    write(tmp_path / "p", packed_model(make_student(BertForMaskedLM(config), recipe), recipe))
    with pytest.raises(UnsupportedModelError, match=r"BertForMaskedLM uses '.*word_embeddings\.weight'"):
        AutoModelForMaskedLM.from_pretrained(tmp_path / "p")


@pytest.mark.parametrize("architectures", [None, [], ["A", "B"], [3], ["logging"], ["NoSuchModel"], ["BertConfig"]])
def test_no_class_to_choose(folder, architectures):
    change(folder, lambda config: config.update(architectures=architectures))
    with pytest.raises(UnsupportedModelError, match=r"architectures|model class"):
        ternarybert.load_torch(folder)


def test_float_models_are_not_quantized_on_the_fly(tmp_path):
    import transformers

    from ternarybert.hf import TernaryBertConfig

    torch.manual_seed(0)
    transformers.BertModel(CONFIGS["Bert"]).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="require the model to be pre-quantized"):
        transformers.AutoModel.from_pretrained(tmp_path, quantization_config=TernaryBertConfig())


@pytest.mark.parametrize("lost", ["bert.encoder.layer.0.output.dense.bias", "bert.embeddings.LayerNorm.weight"])
def test_a_missing_float_tensor_is_not_made_up(folder, lost):
    drop_tensor(folder, lost)
    with pytest.raises(PackedConfigError, match=lost):
        ternarybert.load_torch(folder)
    with pytest.raises(PackedConfigError, match=lost):
        load(folder)
