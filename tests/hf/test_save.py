"""`save_pretrained` writes a packed folder again; training goes on from the codes and ends in new ones."""

import pytest
import torch
from transformers import AutoModel, Trainer, TrainingArguments

import ternarybert
from ternarybert.errors import PackedTensorError
from ternarybert.hf.layers import layers_from_folder
from ternarybert.packed import PackedTensor, read
from ternarybert.training.export import packed_model

from .students import RECIPES, batch, outputs, random_student, write_student

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
    first, second = (tmp_path / name / "model.safetensors" for name in "pq")
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
