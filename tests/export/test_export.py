"""Exported files run in the real engines and give our answers; what cannot be exported is refused by name."""

import json

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ternarybert import load, packed
from ternarybert.errors import ExportError, FolderExistsError, OptionError, OutputError, UnsupportedModelError
from ternarybert.export import agreement, export_model, onnx_graph
from tests import embedders
from tests.runtime.folders import FAMILIES, HEADS, save_student

TEXTS = [text for text in embedders.TEXTS if text] + ["the plot was great and we liked it"]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_runs_in_onnx_runtime(tmp_path, family):
    folder = save_student(tmp_path / "m", "ForSequenceClassification", family)
    made = export_model(tmp_path / "m", "onnx", texts=TEXTS)
    assert [file.path.name for file in made] == ["model_q2.onnx", "model_int8.onnx"], folder
    for file in made:
        assert file.path.parent == tmp_path / "m" / "onnx"
        assert file.agreement.error < 0.2 and file.agreement.texts == len(TEXTS)
        onnx.checker.check_model(onnx.load(file.path), full_check=False)


@pytest.mark.parametrize("head", HEADS)
def test_every_head_runs_in_onnx_runtime(tmp_path, head):
    save_student(tmp_path / "m", head)
    for file in export_model(tmp_path / "m", "onnx", texts=TEXTS):
        assert file.agreement.error < 0.2
    names = {output.name for output in onnx.load(tmp_path / "m" / "onnx" / "model_q2.onnx").graph.output}
    expected = {"ForQuestionAnswering": {"start_logits", "end_logits"}, "Model": {"last_hidden_state"}}
    assert names == expected.get(head, {"logits"})


@pytest.mark.parametrize("recipe", ["3-3-8 linear", "8-8-8"])
def test_more_bits_have_the_file_name_of_their_width(tmp_path, recipe):
    save_student(tmp_path / "m", "ForSequenceClassification", recipe=recipe)
    names = {file.path.name for file in export_model(tmp_path / "m", "onnx", texts=TEXTS)}
    assert names == {"model_int8.onnx", "model_quantized.onnx" if recipe == "8-8-8" else "model_q4.onnx"}


@pytest.mark.parametrize("pooling", ["mean", "cls", "max"])
def test_embedders_give_their_own_vector(tmp_path, pooling):
    embedders.packed_embedder(tmp_path / "m", pooling=pooling, dense=24)
    for file in export_model(tmp_path / "m", "onnx", texts=TEXTS):
        assert file.agreement.cosine > 0.98


def test_the_graph_holds_our_codes_and_scales(tmp_path):
    save_student(tmp_path / "m", "ForSequenceClassification")
    export_model(tmp_path / "m", "onnx", texts=TEXTS)
    graph = onnx.load(tmp_path / "m/onnx/model_q2.onnx").graph
    constants = {constant.name: onnx.numpy_helper.to_array(constant) for constant in graph.initializer}
    tensor = packed.read(tmp_path / "m").tensors["bert.encoder.layer.1.output.dense.weight"]
    fields = constants["layer.1.down.codes"].reshape(tensor.shape[0], -1)
    codes = np.stack([fields >> shift & 3 for shift in (0, 2, 4, 6)], -1).reshape(tensor.shape[0], -1).astype(int) - 2
    assert np.array_equal(codes[:, : tensor.shape[1]], tensor.unpack())
    assert np.array_equal(np.unique(constants["layer.1.down.scale"]), np.unique(tensor.scale))


@given(st.integers(1, 5), st.integers(1, 6), st.sampled_from([2, 4, 8]), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_fields_can_be_read_back(rows, groups, bits, random):
    largest = 2 ** (bits - 1) - 1
    codes = np.array([[random.randint(-largest, largest) for _ in range(groups * 4)] for _ in range(rows)], np.int8)
    stored = onnx_graph._fields(codes, bits)
    shifts = range(0, 8, bits)
    read = np.stack([stored >> shift & (2**bits - 1) for shift in shifts], -1).reshape(rows, -1).astype(int)
    assert np.array_equal(read - 2 ** (bits - 1), codes)


def test_padding_does_not_change_a_two_bit_answer(tmp_path):
    save_student(tmp_path / "m", "ForSequenceClassification")
    path = export_model(tmp_path / "m", "onnx", texts=TEXTS)[0].path
    with load(tmp_path / "m") as model:
        alone = np.concatenate([agreement.OnnxModel(path, model).rows([text]) for text in TEXTS])
        assert np.allclose(agreement.OnnxModel(path, model).rows(TEXTS), alone, atol=1e-4)


def test_an_output_folder_is_complete(tmp_path):
    save_student(tmp_path / "m", "ForSequenceClassification")
    export_model(tmp_path / "m", "onnx", texts=TEXTS, output=tmp_path / "js")
    assert {"config.json", "tokenizer.json", "onnx"} <= {path.name for path in (tmp_path / "js").iterdir()}
    assert "quantization_config" not in json.loads((tmp_path / "js" / "config.json").read_text())


def test_the_second_of_two_runs_is_refused(tmp_path, busy):
    save_student(tmp_path / "m", "ForSequenceClassification")
    busy(tmp_path / "m" / "onnx" / "model_q2.onnx")
    with pytest.raises(OutputError, match=r"model_q2\.onnx is being written by another run"):
        export_model(tmp_path / "m", "onnx", texts=TEXTS)


def test_the_settings_of_another_model_are_kept(tmp_path):
    save_student(tmp_path / "m", "ForSequenceClassification")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text('{"of": "another model"}')
    with pytest.raises(FolderExistsError, match=r"config\.json"):
        export_model(tmp_path / "m", "onnx", texts=TEXTS, output=tmp_path / "mine")
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["config.json"]
    assert "another" in (tmp_path / "mine" / "config.json").read_text()
    export_model(tmp_path / "m", "onnx", texts=TEXTS, output=tmp_path / "mine", force=True)
    assert "another" not in (tmp_path / "mine" / "config.json").read_text()


def test_an_existing_file_is_kept(tmp_path):
    save_student(tmp_path / "m", "ForSequenceClassification")
    made = export_model(tmp_path / "m", "onnx", texts=TEXTS)
    with pytest.raises(FolderExistsError, match=r"model_q2\.onnx"):
        export_model(tmp_path / "m", "onnx", texts=TEXTS)
    assert export_model(tmp_path / "m", "onnx", texts=TEXTS, force=True)[0].size == made[0].size


def test_wrong_answers_are_refused_and_nothing_is_written(tmp_path, monkeypatch):
    save_student(tmp_path / "m", "ForSequenceClassification")
    monkeypatch.setattr(
        onnx_graph, "_fields", lambda codes, bits: np.full((len(codes), codes.shape[1] * bits // 8), 0xAA, np.uint8)
    )
    with pytest.raises(ExportError, match="differ"):
        export_model(tmp_path / "m", "onnx", texts=TEXTS)
    assert not list((tmp_path / "m").rglob("*.onnx"))


@pytest.mark.parametrize(
    "options", [{"to": "onx"}, {"to": "gguf", "gguf_type": "q9"}, {"to": "onnx", "gguf_type": "q2_0"}]
)
def test_unknown_formats_are_refused(tmp_path, options):
    embedders.packed_embedder(tmp_path / "m")
    with pytest.raises(OptionError):
        export_model(tmp_path / "m", **options)


def test_gguf_refuses_what_llama_cpp_cannot_compute(tmp_path):
    for name, head, family in (
        ("tags", "ForTokenClassification", "Bert"),
        ("relu", "ForSequenceClassification", "DistilBert"),
    ):
        save_student(tmp_path / name, head, family, **(WIDE if family == "Bert" else WIDE_DISTILBERT))
        with pytest.raises(UnsupportedModelError, match=r"llama\.cpp"):
            export_model(tmp_path / name, "gguf")
    save_student(tmp_path / "narrow", "ForSequenceClassification")
    with pytest.raises(UnsupportedModelError, match="32 wide"):
        export_model(tmp_path / "narrow", "gguf")


@pytest.mark.parametrize("kind", ["q2_0", "tq2_0"])
def test_llama_cpp_gives_our_logits(tmp_path, kind):
    save_student(tmp_path / "m", "ForSequenceClassification", **WIDE)
    (made,) = export_model(tmp_path / "m", "gguf", gguf_type=kind, texts=TEXTS)
    assert made.path.name == f"m-{kind}.gguf"
    assert made.agreement.error < 0.2


WIDE = {"hidden_size": 256, "intermediate_size": 256}
WIDE_DISTILBERT = {"dim": 256, "hidden_dim": 256}
