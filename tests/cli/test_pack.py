"""`ternarybert pack` and `unpack`: there and back without losing a bit, and nothing that would run code."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch
from transformers import AutoModelForSequenceClassification

import ternarybert
from ternarybert.packed import PackedTensor, read, write
from ternarybert.packed.hf_folder import unpack_to_float
from ternarybert.recipe import PRESETS
from tests.hf.students import RECIPES, outputs, random_student, write_student
from tests.packed.models import TINY, assert_same, random_model
from tests.processes import fork

from .shell import command, plain_folder

TOKENIZER = {"tokenizer.json": "{}", "vocab.txt": "[PAD]"}
POOLER = "bert.pooler.dense.weight"


@pytest.fixture
def released(tmp_path):
    """A checkpoint as the released code saves it: its config knows neither model type nor labels."""
    state = unpack_to_float(random_model())
    state["bert.pooler.dense.weight_clip_val"] = np.array([-2.5, 2.5], np.float32)
    state["bert.embeddings.position_ids"] = np.arange(4)[None]
    config = {key: value for key, value in TINY.items() if key not in ("architectures", "model_type")}
    folder = plain_folder(tmp_path / "released", state, config)
    for name, text in TOKENIZER.items():
        (folder / name).write_text(text)
    (folder / "training.log").write_text("not part of the model")
    return folder


def test_a_released_checkpoint(released, tmp_path):
    code, out, err = command("pack", released, tmp_path / "p")
    assert (code, err) == (0, "")
    assert "2-2-8" in out
    model, state = read(tmp_path / "p"), safetensors.numpy.load_file(released / "model.safetensors")
    for name, array in unpack_to_float(model).items():
        np.testing.assert_array_equal(array, state[name], err_msg=name)
    assert model.config["architectures"] == ["BertForSequenceClassification"]
    assert model.recipe["activation"] == PRESETS["reference"].to_dict()["activation"]
    assert model.recipe["embedding"]["granularity"] == "row"
    assert {path.name for path in (tmp_path / "p").iterdir()} == {
        "config.json",
        "metrics.json",
        "ternarybert.safetensors",
        *TOKENIZER,
    }


def test_it_loads_as_a_torch_model(released, tmp_path):
    command("pack", released, tmp_path / "p", "--dense")
    model = ternarybert.load_torch(tmp_path / "p")
    assert model.config.num_labels == 3
    state = safetensors.numpy.load_file(released / "model.safetensors")
    np.testing.assert_array_equal(model.bert.pooler.dense.w_hat(), state[POOLER])


def test_the_embedding_that_the_released_code_saves_layer_wise(released, tmp_path):
    state = safetensors.numpy.load_file(released / "model.safetensors")
    name = "bert.embeddings.word_embeddings.weight"
    state[name] = np.sign(state[name]) * np.float32(0.25)
    safetensors.numpy.save_file(state, released / "model.safetensors")
    command("pack", released, tmp_path / "p")
    assert read(tmp_path / "p").tensors[name].granularity == "layer"
    assert read(tmp_path / "p").recipe["embedding"]["granularity"] == "layer"


def test_a_pooler_that_is_not_ternary(released, tmp_path):
    state = safetensors.numpy.load_file(released / "model.safetensors")
    state[POOLER] = np.random.default_rng(0).standard_normal((6, 6), dtype=np.float32)
    safetensors.numpy.save_file(state, released / "model.safetensors")
    code, _, err = command("pack", released, tmp_path / "p")
    assert code == 2
    assert f"'{POOLER}' should be ternary" in err
    assert command("pack", released, tmp_path / "p", "--float-pooler")[0] == 0
    assert not isinstance(read(tmp_path / "p").tensors[POOLER], PackedTensor)
    assert isinstance(ternarybert.load_torch(tmp_path / "p").bert.pooler.dense.weight, torch.nn.Parameter)


def test_packed_otherwise(tmp_path):
    write(tmp_path / "p", random_model(), extra_files={"tokenizer.json": b"{}", "README.md": b"sizes"})
    assert command("pack", tmp_path / "p", tmp_path / "d", "--dense")[0] == 0
    dense = read(tmp_path / "d")
    assert all(t.packing == "dense" for t in dense.tensors.values() if isinstance(t, PackedTensor))
    assert dense.metrics == random_model().metrics
    assert (tmp_path / "d" / "tokenizer.json").is_file()
    assert not (tmp_path / "d" / "README.md").exists()
    assert command("pack", tmp_path / "d", tmp_path / "q")[0] == 0
    assert_same(read(tmp_path / "q"), random_model())


def test_half_the_bytes_for_what_is_not_packed(tmp_path):
    write(tmp_path / "p", random_model())
    command("pack", tmp_path / "p", tmp_path / "h", "--half")
    half, whole = read(tmp_path / "h").tensors, read(tmp_path / "p").tensors
    for name, tensor in whole.items():
        if isinstance(tensor, PackedTensor):
            assert half[name].codes.tobytes() == tensor.codes.tobytes()
            assert half[name].scale.tobytes() == tensor.scale.tobytes()
        else:
            np.testing.assert_array_equal(half[name], tensor.astype(np.float16), strict=True)


@pytest.mark.parametrize("place", ["p", "other/../p", "link/p", "link_to_p"])
@pytest.mark.parametrize("verb", ["pack", "unpack"])
def test_never_in_its_own_place(tmp_path, verb, place):
    """What is not written anew, such as the model card, would be lost."""
    write(tmp_path / "p", random_model(), extra_files={"README.md": b"card"})
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "link_to_p").symlink_to(tmp_path / "p")
    code, out, err = command(verb, tmp_path / "p", tmp_path / place, "--force")
    assert (code, out) == (2, "")
    assert "is the folder that is read" in err
    assert (tmp_path / "p" / "README.md").read_bytes() == b"card"
    assert_same(read(tmp_path / "p"), random_model())


@pytest.mark.parametrize("name", ["paper", "2-2-32", "3-3-8 log", "8-8-8", "group"])
def test_unpacked_is_what_the_student_computes_with(tmp_path, name):
    """Stock transformers loads it, and without activation quantization it is the student."""
    recipe = RECIPES[name]
    student = random_student(recipe)
    write_student(tmp_path / "p", student, recipe)
    (tmp_path / "p" / "tokenizer.json").write_text("{}")
    code, out, err = command("unpack", tmp_path / "p", tmp_path / "f")
    assert (code, err) == (0, "")
    assert ("8 bits" in out) == (recipe.bits.a == 8)
    assert "quantization_config" not in json.loads((tmp_path / "f" / "config.json").read_text())
    assert (tmp_path / "f" / "tokenizer.json").is_file()
    model, info = AutoModelForSequenceClassification.from_pretrained(tmp_path / "f", output_loading_info=True)
    assert not any(info.values())
    assert torch.equal(model.bert.pooler.dense.weight, student.bert.pooler.dense.w_hat())
    if recipe.bits.a == 32:
        torch.testing.assert_close(outputs(model), outputs(student))


def test_there_and_back(tmp_path):
    write(tmp_path / "p", random_model())
    command("unpack", tmp_path / "p", tmp_path / "f")
    command("pack", tmp_path / "f", tmp_path / "q")
    first, second = (tmp_path / name / "ternarybert.safetensors" for name in "pq")
    assert first.read_bytes() == second.read_bytes()


def test_pickles_are_never_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    (tmp_path / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    code, _, err = command("pack", tmp_path, tmp_path / "p")
    assert code == 2
    assert "pickled weights are never read" in err
    assert "weights_only=True" in err
    assert len(err.splitlines()) == 1


def test_the_advice_about_pickles_works(released, tmp_path):
    state = safetensors.numpy.load_file(released / "model.safetensors")
    torch.save({name: torch.from_numpy(array) for name, array in state.items()}, released / "pytorch_model.bin")
    (released / "model.safetensors").unlink()
    _, _, err = command("pack", released, tmp_path / "p")
    python, *advice = shlex.split(err[err.index("python -c ") :])
    process = fork(*advice, cwd=released)
    _, err = process.communicate()
    assert (python, process.returncode) == ("python", 0), err
    assert command("pack", released, tmp_path / "p")[0] == 0


def converting(text):
    """The command in a text that says how to convert pickled weights, however the text is wrapped."""
    return re.search(r'python -c ("from transformers .*?")', " ".join(text.split()))[1]


def test_help_and_readme_say_how_to_convert_pickles(released, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    advice = converting(command("pack", "--help")[1])
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert converting(readme) == advice.replace("released-checkpoint", "checkpoint")
    state = safetensors.numpy.load_file(released / "model.safetensors")
    torch.save({name: torch.from_numpy(array) for name, array in state.items()}, released / "pytorch_model.bin")
    (released / "model.safetensors").unlink()
    released.rename(tmp_path / "released-checkpoint")
    own = advice.replace("num_labels=2", "num_labels=3")
    process = fork("-c", *shlex.split(own))
    _, err = process.communicate()
    assert process.returncode == 0, err
    assert command("pack", "released-checkpoint", "p")[0] == 0
    np.testing.assert_array_equal(read("p").tensors["classifier.weight"], state["classifier.weight"])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["pack", "nowhere", "q"], "no such folder"),
        (["pack", "nowhere", "p"], "no such folder"),
        (["pack", "n" * 300, "p"], "nnn: cannot be read"),
        (["pack", "p", "q" * 300], "qqq: cannot be written"),
        (["unpack", "released", "q"], "quant_method 'ternarybert'"),
        (["pack", "p", "q", "--recipe", "paper"], "has its recipe"),
        (["pack", "released", "q", "--recipe", "papper"], "did you mean 'paper'"),
        (["pack", "released", "p", "--force"], None),
        (["pack", "released", "p"], "exists"),
        (["pack", "p8", "q", "--dense"], "at 8-8-8 there are none"),
        (["unpack", "p", "p", "--force"], "is the folder that is read"),
        (["unpack", "p", "released"], "exists"),
        (["unpack", "p", "released", "--force"], None),
        (["unpack", "p", "other", "--force"], "exists"),
    ],
)
def test_places_and_mistakes(released, tmp_path, monkeypatch, arguments, reason):
    monkeypatch.chdir(tmp_path)
    write("p", random_model())
    write("p8", random_model(bits="8-8-8"))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("do not lose me")
    code, out, err = command(*arguments)
    if reason is None:
        assert (code, err) == (0, "")
    else:
        assert (code, out) == (2, "")
        assert reason in err
        assert len(err.splitlines()) == 1
    assert (tmp_path / "other" / "letter.txt").exists()


def test_a_recipe_of_other_bits(released, tmp_path):
    (tmp_path / "recipe.yaml").write_text(PRESETS["paper"].with_bits("3-3-8").to_yaml())
    code, _, err = command("pack", released, tmp_path / "p", "--recipe", tmp_path / "recipe.yaml")
    assert code == 2
    assert "3-3-8" in err


def test_no_torch_is_imported(released, tmp_path):
    code = (
        "import sys; from ternarybert.cli import app; "
        f"app(['pack', {str(released)!r}, {str(tmp_path / 'p')!r}], standalone_mode=False); "
        f"app(['unpack', {str(tmp_path / 'p')!r}, {str(tmp_path / 'f')!r}], standalone_mode=False); "
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False"


def test_packing_again_keeps_the_recipe(tmp_path):
    from typer.testing import CliRunner

    from ternarybert import packed
    from ternarybert.cli import app
    from ternarybert.recipe import PRESETS
    from ternarybert.student import make_student
    from ternarybert.training.export import packed_model
    from tests import tiny

    model = packed_model(make_student(tiny.bert(), PRESETS["default"]), PRESETS["default"])
    source = tmp_path / "small"
    packed.write(source, model, extra_files={"recipe.yaml": b"name: mine"})
    run = CliRunner()
    assert run.invoke(app, ["pack", str(source), str(tmp_path / "dense"), "--dense"]).exit_code == 0
    assert (tmp_path / "dense" / "recipe.yaml").read_bytes() == b"name: mine"
