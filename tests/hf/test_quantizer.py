"""Packed folders through transformers: the bits of the student, refusal of wrong folders, saving and training on."""

import copy
import dataclasses
import hashlib
import json
import os
import tempfile
from pathlib import Path

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForMaskedLM,
    Trainer,
    TrainingArguments,
)

import ternarybert
from ternarybert.errors import (
    ContainerError,
    FormatVersionError,
    NotPackedError,
    PackedConfigError,
    PackedTensorError,
    UnsupportedModelError,
)
from ternarybert.hf.quantizer import layers_from_folder
from ternarybert.packed import PackedTensor, read, write
from ternarybert.recipe import LAYER, METHOD_BITS, ROW, Bits, Granularity, Recipe, WeightScheme
from ternarybert.student import make_student, quantized_layers
from ternarybert.training.export import packed_model
from tests.packed.damage import drop_tensor

from .students import CONFIGS, PAPER, RECIPES, batch, outputs, random_student, repack_ternary, write_student

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


schemes = st.sampled_from([(method, bits) for method, able in METHOD_BITS.items() for bits in able])


@st.composite
def weights(draw):
    """A scheme and its bits, out of all there are."""
    method, bits = draw(schemes)
    exact = method in ("twn", "lat") and draw(st.booleans())
    levels = draw(st.sampled_from(["linear", "log"])) if method == "laq" and bits > 2 else "linear"
    granularity = draw(st.sampled_from([LAYER, ROW, Granularity.group(2)]))
    clip = draw(st.sampled_from([None, 0.4]))
    return WeightScheme(method, granularity, exact, levels, clip), bits


@st.composite
def recipes(draw):
    (weight, w), (embedding, e) = draw(weights()), draw(weights())
    activations = draw(st.sampled_from([4, 8, 32]))
    recipe = Recipe(bits=Bits(w, e, activations), weight=weight, embedding=embedding, pooler=draw(st.booleans()))
    granularity = Granularity(draw(st.sampled_from(["tensor", "sample", "token"])))
    return dataclasses.replace(recipe, activation=dataclasses.replace(recipe.activation, granularity=granularity))


@settings(deadline=None, max_examples=60)
@given(recipe=recipes(), packing=st.sampled_from(["plain", "dense"]), seed=st.integers(0, 99))
def test_every_method_bits_and_granularity(recipe, packing, seed):
    student = random_student(recipe, seed=seed)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "p"
        write(folder, repack_ternary(packed_model(student, recipe), packing))
        tensors = read(folder).tensors
        for name, layer in quantized_layers(student):
            stored = tensors.pop(f"{name}.weight")
            assert stored.dequantize().tobytes() == layer.w_hat().numpy().tobytes(), name
        assert not any(isinstance(tensor, PackedTensor) for tensor in tensors.values())
        for name, tensor in tensors.items():
            assert tensor.tobytes() == student.state_dict()[name].numpy().tobytes(), name
        assert torch.equal(outputs(ternarybert.load_torch(folder)), outputs(student))


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
    weights = folder / "ternarybert.safetensors"
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
    change(folder, lambda config: config["quantization_config"].update(format_version=3))
    with pytest.raises(FormatVersionError, match="format version 3"):
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
    (folder / "ternarybert.safetensors").rename(folder / "model.other.safetensors")
    change(folder, lambda config: config["quantization_config"].update(format_version=1))
    with pytest.raises(NotPackedError, match=r"there is no model\.safetensors"):
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


LABELS = torch.tensor([0, 1, 2])


def codes_and_scales(folder):
    return {
        name: (tensor.coding, tensor.codes.tobytes(), tensor.scale.tobytes())
        for name, tensor in read(folder).tensors.items()
        if isinstance(tensor, PackedTensor)
    }


def train(model, steps=2):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    model.train()
    for _ in range(steps):
        model(**batch(), labels=LABELS).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@pytest.mark.parametrize("packing", ["plain", "dense"])
@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_loaded_and_saved_is_the_same_file(tmp_path, recipe, packing):
    write_student(tmp_path / "p", random_student(recipe), recipe, packing=packing)
    ternarybert.load_torch(tmp_path / "p").save_pretrained(tmp_path / "q")
    first, second = tmp_path / "p" / "ternarybert.safetensors", tmp_path / "q" / "model.safetensors"
    assert first.read_bytes() == second.read_bytes()
    assert read(tmp_path / "q").recipe == recipe.to_dict()


def test_saved_in_its_own_place(tmp_path):
    write_student(tmp_path / "p", random_student())
    before = codes_and_scales(tmp_path / "p")
    model = ternarybert.load_torch(tmp_path / "p")
    model.save_pretrained(tmp_path / "p")
    model.save_pretrained(tmp_path / "p")
    assert codes_and_scales(tmp_path / "p") == before


def test_from_bfloat16_the_codes_are_still_those_of_the_folder(tmp_path):
    recipe = RECIPES["3-3-8 linear"]
    write_student(tmp_path / "p", random_student(recipe), recipe)
    ternarybert.load_torch(tmp_path / "p", dtype=torch.bfloat16).save_pretrained(tmp_path / "q")
    assert codes_and_scales(tmp_path / "q") == codes_and_scales(tmp_path / "p")


def test_the_encoder_alone(tmp_path):
    student = random_student()
    write_student(tmp_path / "p", student)
    AutoModel.from_pretrained(tmp_path / "p").save_pretrained(tmp_path / "q")
    encoder = ternarybert.load_torch(tmp_path / "q")
    assert torch.equal(outputs(encoder), outputs(student.bert))


@pytest.mark.parametrize("name", ["paper", "default", "3-3-8 log", "8-8-8", "lat", "group"])
def test_training_goes_on_and_is_saved(tmp_path, name):
    write_student(tmp_path / "p", random_student(RECIPES[name]), RECIPES[name], packing="dense")
    model = ternarybert.load_torch(tmp_path / "p")
    start = outputs(model)
    trained = outputs(train(model))
    assert not torch.equal(trained, start)
    for weight, layer in layers_from_folder(model):
        assert layer.origin is None, weight
        levels = layer.w_hat().flatten(1) / layer.quantized().scale
        torch.testing.assert_close(levels, levels.round(), rtol=0, atol=1e-4)
    model.save_pretrained(tmp_path / "q")
    assert codes_and_scales(tmp_path / "q").keys() == codes_and_scales(tmp_path / "p").keys()
    assert torch.equal(outputs(ternarybert.load_torch(tmp_path / "q")), trained)


def test_the_weights_of_the_folder_are_where_training_starts(tmp_path):
    write_student(tmp_path / "p", random_student())
    model = ternarybert.load_torch(tmp_path / "p")
    for _, layer in layers_from_folder(model):
        assert torch.equal(layer.weight, layer.w_hat())
        assert layer.weight.requires_grad


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return {name: rows[index % 3] for name, rows in batch().items()} | {"labels": LABELS[index % 3]}


def test_a_trainer_trains_saves_and_takes_its_checkpoints_back(tmp_path):
    write_student(tmp_path / "p", random_student())
    arguments = TrainingArguments(
        tmp_path / "run", max_steps=3, learning_rate=0.05, save_steps=1, report_to=[], disable_tqdm=True, use_cpu=True
    )
    trainer = Trainer(ternarybert.load_torch(tmp_path / "p"), arguments, train_dataset=Rows())
    trainer.train()
    checkpoint = tmp_path / "run" / "checkpoint-2"
    expected = outputs(ternarybert.load_torch(checkpoint))
    again = Trainer(ternarybert.load_torch(tmp_path / "p"), arguments, train_dataset=Rows())
    again._load_from_checkpoint(str(checkpoint))  # what resuming and load_best_model_at_end do with the weights
    assert torch.equal(outputs(again.model.eval()), expected)


def test_plain_weights_replace_those_of_the_folder(tmp_path):
    student = random_student()
    write_student(tmp_path / "p", student)
    model = ternarybert.load_torch(tmp_path / "p")
    model.load_state_dict(random_student(seed=5).state_dict())
    assert torch.equal(outputs(model), outputs(random_student(seed=5)))


def test_double_precision_would_be_another_model(tmp_path):
    """Trained in float64 a student has scales that float32 does not hold; rounded, it is not what was evaluated."""
    with pytest.raises(PackedTensorError, match=r"tensor 'bert\..*weight' is float64"):
        packed_model(random_student().double(), RECIPES["paper"])
    student = random_student()
    student.classifier.double()
    student.classifier.bias.data += 1e-12
    with pytest.raises(PackedTensorError, match=r"tensor 'classifier.bias' is float64"):
        packed_model(student, RECIPES["paper"])


def test_double_precision_is_saved_while_nothing_is_lost(tmp_path):
    student = random_student()
    write_student(tmp_path / "p", student)
    model = ternarybert.load_torch(tmp_path / "p").double()
    model.save_pretrained(tmp_path / "q")
    assert torch.equal(outputs(ternarybert.load_torch(tmp_path / "q", dtype=torch.float32)), outputs(student))
    with torch.no_grad():
        model.bert.pooler.dense.weight.mul_(1 / 3)
    with pytest.raises(PackedTensorError, match=r"tensor 'bert.pooler.dense.weight' is float64"):
        model.save_pretrained(tmp_path / "r")
