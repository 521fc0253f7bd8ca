"""`ternarybert inspect`: a table for people, JSON for programs, a picture, and a line for mistakes."""

import json
import subprocess
import sys

import numpy as np
import pytest
import safetensors.numpy

from ternarybert.packed import write
from ternarybert.packed.hf_folder import unpack_to_float
from tests.packed.models import BASE, TINY, bert_shapes, random_model

from .shell import command, plain_folder


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "p", random_model())
    return tmp_path / "p"


@pytest.fixture
def teacher(tmp_path):
    """Weights that the packed ones are close to."""
    rng = np.random.default_rng(1)
    floats = {
        name: array + 0.1 * rng.standard_normal(array.shape, dtype=np.float32)
        for name, array in unpack_to_float(random_model()).items()
    }
    return plain_folder(tmp_path / "teacher", floats)


def test_the_table(folder):
    code, out, err = command("inspect", folder)
    lines = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert (code, err) == (0, "")
    assert "BertForSequenceClassification packed at 2-2-8" in out
    assert lines["layer.1.output.dense"][1:6] == ["6", "x", "10", "2", "22"]
    assert lines["layer.1.output.dense"][-1] == "layer"
    assert lines["embeddings.word_embeddings"][-1] == "row"
    assert "tensors that stay float" in out
    assert "classifier.bias" not in out
    assert "MiB" in out
    assert "error" not in out


def test_all_tensors(folder):
    _, out, _ = command("inspect", folder, "--all")
    assert "classifier.bias" in out
    assert "stay float" not in out


def test_layers_are_in_order(tmp_path):
    write(tmp_path / "p", random_model(TINY | {"num_hidden_layers": 11}))
    _, out, _ = command("inspect", tmp_path / "p")
    assert out.index("layer.2.output") < out.index("layer.10.output")


def test_against_the_teacher(folder, teacher):
    _, out, _ = command("inspect", folder, "--against", teacher)
    headings = next(line for line in out.splitlines() if "tensor " in line).split()
    assert headings[-2:] == ["error", "cosine"]
    code, out, _ = command("inspect", folder, "--against", teacher, "--json")
    tensors = {tensor["name"]: tensor for tensor in json.loads(out)["tensors"]}
    assert code == 0
    assert all(tensor["relative_error"] > 0 and 0 < tensor["cosine"] <= 1 for tensor in tensors.values())


@pytest.mark.parametrize("dtype", ["F16", "BF16", "F64"])
def test_a_teacher_of_another_type(folder, teacher, dtype):
    floats = safetensors.numpy.load_file(teacher / "model.safetensors")
    path = teacher / "model.safetensors"
    if dtype == "BF16":
        cut = {name: (array.view(np.uint32) >> 16).astype(np.uint16) for name, array in floats.items()}
        path.write_bytes(safetensors.numpy.save(cut).replace(b'"U16"', b'"BF16"', len(cut)))
        fix_header(path)
    else:
        kind = {"F16": np.float16, "F64": np.float64}[dtype]
        safetensors.numpy.save_file({name: array.astype(kind) for name, array in floats.items()}, path)
    code, out, _ = command("inspect", folder, "--against", teacher, "--json")
    assert code == 0
    assert all(tensor["cosine"] > 0 for tensor in json.loads(out)["tensors"])


def fix_header(path):
    """Correct the header's length after its text was changed."""
    data = path.read_bytes()
    end = data.index(b"}}") + 2
    header = data[8:end]
    length = int.from_bytes(data[:8], "little") + len(header) - len(header.replace(b'"BF16"', b'"U16"'))
    path.write_bytes(length.to_bytes(8, "little") + data[8:])


def test_json_is_one_object_with_everything(folder):
    code, out, err = command("inspect", folder, "--json")
    report = json.loads(out)
    assert (code, err) == (0, "")
    assert report["packed"] is True
    assert report["bits"] == "2-2-8"
    assert report["mib"] == report["bytes"] / 2**20
    assert report["mb"] == report["bytes"] / 1e6
    assert len(report["tensors"]) == len(bert_shapes(TINY))


@pytest.mark.parametrize(
    ("options", "mib", "ratio"),
    [
        ([], 28.07, 14.9),
        (["--dense"], 22.93, 18.2),
        (["--bits", "3-3-8"], 41.06, 10.2),
        (["--bits", "8-8-8"], 106.0, 3.94),
    ],
)
def test_what_a_plain_bert_base_would_be(tmp_path, options, mib, ratio):
    """The paper's sizes. A header is all that is read, so the file behind it may be a hole."""
    header, position = {}, 0
    for name, shape in bert_shapes(BASE, labels=2).items():
        size = 4 * int(np.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header).encode()
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + position)
    code, out, _ = command("inspect", tmp_path, *options, "--json")
    report = json.loads(out)
    assert code == 0
    assert report["packed"] is False
    assert report["mib"] == pytest.approx(mib, abs=0.02)
    assert report["ratio"] == pytest.approx(ratio, abs=0.05)
    _, out, _ = command("inspect", tmp_path, *options)
    assert "not packed" in out
    assert "zeros" not in out


def test_a_picture(folder, teacher, tmp_path):
    code, _, err = command("inspect", folder, "--against", teacher, "--plot", tmp_path / "weights.png")
    assert (code, err) == (0, "")
    assert (tmp_path / "weights.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("bits", "levels"), [("3-3-8", "log"), ("4-4-8", "linear"), ("8-8-8", "linear"), ("8-2-8", "linear")]
)
def test_pictures_of_other_levels(tmp_path, teacher, bits, levels):
    model = random_model(bits=bits, levels=levels)
    write(tmp_path / "q", model)
    code, _, err = command("inspect", tmp_path / "q", "--against", teacher, "--plot", tmp_path / "weights.svg")
    assert (code, err) == (0, "")
    assert "<svg" in (tmp_path / "weights.svg").read_text()


def test_a_picture_that_cannot_be_written(folder, teacher, tmp_path):
    for name in ("p/config.json/weights.png", "weights.docx"):
        code, _, err = command("inspect", folder, "--against", teacher, "--plot", tmp_path / name)
        assert code == 2
        assert name in err
        assert len(err.splitlines()) == 1


def test_a_picture_without_a_name(folder, teacher, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    code, _, err = command("inspect", folder, "--against", teacher, "--plot", ".")
    assert code == 2
    assert err.startswith("ternarybert: --plot .") and "weights.png" in err
    assert list((tmp_path / "here").iterdir()) == []


def test_no_matplotlib(folder, teacher, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "ternarybert.report.weights", raising=False)
    code, _, err = command("inspect", folder, "--against", teacher, "--plot", tmp_path / "weights.png")
    assert code == 2
    assert "pip install 'ternarybert[report]'" in err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["nowhere"], "nowhere"),
        (["p", "--plot", "x.png"], "--plot has no effect without --against"),
        (["p", "--bits", "3-3-8"], "--bits has no effect on p"),
        (["p", "--dense"], "--dense has no effect on p"),
        (["p", "--against", "nowhere"], "nowhere"),
        (["p", "--against", "p"], "--against p"),
        (["teacher", "--against", "p"], "--against has no effect on teacher"),
        (["teacher", "--bits", "3-3-8", "--dense"], "3-3-8"),
        (["teacher", "--bits", "two"], "two"),
    ],
)
def test_mistakes_are_one_line(folder, teacher, tmp_path, monkeypatch, arguments, reason):
    monkeypatch.chdir(tmp_path)
    code, out, err = command("inspect", *arguments)
    assert (code, out) == (2, "")
    assert reason in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("name", ["\ud800", "\x1b[2J", "x" * 10**5, 3, ["a"], {}])
@pytest.mark.parametrize("key", ["architectures", "model_type"])
def test_names_that_cannot_be_shown(folder, key, name):
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": [name]} if key == "architectures" else {"architectures": None, "model_type": name}
    (folder / "config.json").write_text(json.dumps(config))
    code, out, err = command("inspect", folder)
    assert (code, err) == (0, "")
    assert out.startswith(f"{folder}: a model packed at 2-2-8")


def test_a_damaged_folder(folder):
    (folder / "ternarybert.safetensors").write_bytes(b"\0" * 100)
    code, out, err = command("inspect", folder)
    assert (code, out) == (2, "")
    assert str(folder) in err


def test_a_damaged_config(folder):
    (folder / "config.json").write_text("{")
    code, out, err = command("inspect", folder)
    assert (code, out) == (2, "")
    assert "config.json" in err


def test_no_torch_is_imported(folder, teacher, tmp_path):
    code = (
        "import sys; from ternarybert.cli import app; "
        f"app(['inspect', {str(folder)!r}, '--against', {str(teacher)!r}, '--plot', {str(tmp_path / 'w.png')!r}], "
        "standalone_mode=False); print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False"
