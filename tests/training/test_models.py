"""What is loaded is what the files hold: nothing made up, nothing in half precision, nothing of another model."""

import json
import shutil
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoTokenizer,
    BertConfig,
    ModernBertConfig,
    ModernBertForSequenceClassification,
    RobertaConfig,
)

from ternarybert.errors import UnsupportedModelError
from ternarybert.recipe import PRESETS
from ternarybert.training.batches import longest_input
from ternarybert.training.finetune import finetune
from ternarybert.training.heads import head_of
from ternarybert.training.models import check_tokenizer, load_encoder, load_trained
from ternarybert.training.options import TrainingOptions
from ternarybert.training.ternarize import ternarize
from tests import tiny

QUICK = TrainingOptions(device="cpu", evaluations=1, max_steps=2)


def without(folder, *starts):
    """Remove weights from a folder by the beginnings of their names."""
    path = f"{folder}/model.safetensors"
    save_file({k: v for k, v in load_file(path).items() if not k.startswith(starts)}, path, {"format": "pt"})
    return folder


def reconfigure(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return str(folder)


@pytest.mark.parametrize("gone", ["classifier.", "bert.encoder.layer.1.", "bert.pooler."])
def test_a_teacher_that_lacks_weights_is_refused(data, teacher, gone):
    with pytest.raises(UnsupportedModelError, match=f"lacks .* such as {gone}"):
        load_trained(without(teacher, gone), head_of(data.task))


def test_an_encoder_may_lack_its_head_and_pooler_only(data, teacher, tmp_path):
    head = head_of(data.task)
    assert load_encoder(without(teacher, "classifier.", "bert.pooler."), head, 0).num_labels == 2
    with pytest.raises(UnsupportedModelError, match=r"lacks 1 weights .* bert.embeddings.word"):
        load_encoder(without(teacher, "bert.embeddings.word"), head, 0)
    tiny.save(tmp_path / "other")
    with pytest.raises(UnsupportedModelError, match=r"such as bert.embeddings.word"):
        load_encoder(reconfigure(tmp_path / "other", vocab_size=99), head, 0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_files_are_trained_and_evaluated_in_single(data, tmp_path, dtype):
    half = tiny.save(tmp_path / "half", dtype=dtype)
    model = load_trained(half, head_of(data.task))
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    ternarize(half, data, tmp_path / "out", PRESETS["default"], QUICK)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["dtype"] == "float32"


def test_a_student_with_other_labels_is_refused(data, teacher, tmp_path):
    other = tiny.save(tmp_path / "other", id2label={0: "pos", 1: "neg"}, label2id={"pos": 0, "neg": 1})
    same = tiny.save(tmp_path / "same", id2label={0: "neg", 1: "pos"}, label2id={"neg": 0, "pos": 1})
    with pytest.raises(UnsupportedModelError, match="pos, neg against neg, pos, in this order"):
        ternarize(same, data, tmp_path / "out", PRESETS["default"], QUICK, student=other)


def test_several_labels_at_once_are_refused(data, tmp_path):
    many = tiny.save(tmp_path / "many", problem_type="multi_label_classification")
    with pytest.raises(UnsupportedModelError, match="problem_type"):
        ternarize(many, data, tmp_path / "out", PRESETS["default"], QUICK)


def test_a_tokenizer_of_another_model_is_refused(data, tmp_path):
    small = tiny.save(tmp_path / "small")
    tiny.bert(vocab_size=20).save_pretrained(small)
    with pytest.raises(UnsupportedModelError, match="only 20"):
        finetune(small, data, tmp_path / "out", None, QUICK)
    check_tokenizer(AutoTokenizer.from_pretrained(small), tiny.bert(vocab_size=200))


def test_positions_that_roberta_never_gives_to_a_token_do_not_count(data):
    task = head_of(data.task).task
    roberta = RobertaConfig(max_position_embeddings=20, pad_token_id=1, hidden_size=8, num_attention_heads=1)
    model = SimpleNamespace(config=roberta)
    assert longest_input(task, model) == 18
    assert longest_input(task, SimpleNamespace(config=BertConfig(max_position_embeddings=20))) == 20
    assert longest_input(task, SimpleNamespace(config=BertConfig())) == task.max_length


@pytest.mark.parametrize(
    ("architecture", "embedder", "words"),
    [
        ("BertForTokenClassification", False, "labels words"),
        ("BertModel", True, "sentence embeddings"),
        ("BertForQuestionAnswering", False, "answers questions"),
        ("BertModel", False, "ternarybert finetune"),
        ("BertForMaskedLM", False, "ternarybert finetune"),
    ],
)
def test_a_model_that_does_something_else_is_called_by_its_name(data, teacher, tmp_path, architecture, embedder, words):
    """And is not sent to fine-tuning, which would make a classifier of it, unless that is what it needs."""
    folder = tmp_path / "other"
    shutil.copytree(teacher, folder)
    reconfigure(folder, architectures=[architecture])
    if embedder:
        (folder / "modules.json").write_text("[]")
    with pytest.raises(UnsupportedModelError, match=words) as caught:
        load_trained(folder, head_of(data.task))
    assert architecture in str(caught.value)
    assert ("finetune" in str(caught.value)) == (architecture in ("BertModel", "BertForMaskedLM"))


def test_a_family_that_the_engine_lacks_is_refused_before_training(data, teacher, tmp_path):
    """ModernBERT was once called a model for torch only, and then refused."""
    shutil.copytree(teacher, tmp_path / "modern")
    sizes = {"vocab_size": 200, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    tokens = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"), 0)
    config = ModernBertConfig(**sizes, **tokens, num_attention_heads=2)
    ModernBertForSequenceClassification(config).save_pretrained(tmp_path / "modern")
    with pytest.raises(UnsupportedModelError, match="'modernbert' are not supported"):
        ternarize(str(tmp_path / "modern"), data, tmp_path / "out", PRESETS["default"], QUICK)
    assert not (tmp_path / "out").exists()


def test_a_head_that_fine_tuning_replaces_is_named(data, teacher, tmp_path, caplog):
    shutil.copytree(teacher, tmp_path / "other")
    load_encoder(tmp_path / "other", head_of(data.task), 1)
    assert caplog.text == ""
    reconfigure(tmp_path / "other", architectures=["BertForTokenClassification"])
    load_encoder(tmp_path / "other", head_of(data.task), 1)
    assert "BertForTokenClassification" in caplog.text
