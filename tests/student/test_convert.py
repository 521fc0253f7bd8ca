"""What becomes quantized, what stays, and that names and values survive."""

import copy

import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    ElectraConfig,
    ElectraForSequenceClassification,
    MPNetConfig,
    MPNetForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from ternarybert.errors import UnsupportedModelError
from ternarybert.recipe import PRESETS
from ternarybert.student import TernaryEmbedding, TernaryLinear, expose_scores, make_student, quantized_layers
from ternarybert.student.convert import NAME
from tests import tiny

PER_LAYER = 6  # W^Q W^K W^V W^O W^1 W^2
LAYERS = {"num_hidden_layers": 2, "num_attention_heads": 4}
SIZES = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 48, **LAYERS}
DISTIL = {"vocab_size": 100, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 64}

FAMILIES = {
    "bert": lambda: tiny.bert(),
    "roberta": lambda: RobertaForSequenceClassification(RobertaConfig(**SIZES, max_position_embeddings=64)),
    "electra": lambda: ElectraForSequenceClassification(ElectraConfig(**SIZES, embedding_size=16)),
    "distilbert": lambda: DistilBertForSequenceClassification(DistilBertConfig(**DISTIL)),
}


def inputs_for(family: str) -> dict[str, torch.Tensor]:
    inputs = tiny.batch()
    if family in ("distilbert", "roberta"):
        inputs.pop("token_type_ids")
    return inputs


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_becomes_a_student(family):
    torch.manual_seed(0)
    model = FAMILIES[family]().eval()
    model.set_attn_implementation("eager")  # the only one that gives probabilities
    inputs = inputs_for(family)
    names = list(model.state_dict())
    plain = model(**inputs, output_attentions=True)
    exposed = expose_scores(copy.deepcopy(model))(**inputs, output_attentions=True)
    torch.testing.assert_close(exposed.logits, plain.logits)
    real = inputs["attention_mask"][:, None, None, :].bool()
    for scores, probabilities in zip(exposed.attentions, plain.attentions, strict=True):
        softmax = scores.masked_fill(~real, float("-inf")).softmax(-1)
        torch.testing.assert_close(softmax, probabilities)

    student = make_student(model, PRESETS["default"])
    assert list(student.state_dict()) == names
    layers = dict(quantized_layers(student))
    has_pooler = family == "bert"  # the classifiers of the others have none
    assert sum(isinstance(layer, TernaryLinear) for layer in layers.values()) == 2 * PER_LAYER + has_pooler
    assert sum(isinstance(layer, TernaryEmbedding) for layer in layers.values()) == 1
    outputs = student(**inputs, output_hidden_states=True, output_attentions=True)
    assert len(outputs.hidden_states) == 3
    assert not torch.equal(outputs.logits, plain.logits)
    outputs.logits.sum().backward()
    assert all(layer.weight.grad is not None for layer in layers.values())
    for layer in layers.values():
        assert set(layer.quantized().codes.unique().tolist()) <= {-1, 0, 1}


@pytest.mark.parametrize(
    "model",
    [
        lambda: MPNetForSequenceClassification(MPNetConfig(**SIZES)),
        lambda: AlbertForSequenceClassification(AlbertConfig(**SIZES, embedding_size=16)),
    ],
)
def test_a_family_that_cannot_work_is_refused_by_name(model):
    network = model()
    with pytest.raises(UnsupportedModelError, match=f"'{network.config.model_type}'"):
        make_student(network, PRESETS["paper"])


def test_attention_that_transformers_cannot_replace_is_refused(monkeypatch):
    model = tiny.bert()
    monkeypatch.setattr(type(model), "_can_set_attn_implementation_cached_value", False, raising=False)
    with pytest.raises(UnsupportedModelError, match="BertForSequenceClassification"):
        make_student(model, PRESETS["paper"])


def test_heads_positions_and_norms_stay():
    student = make_student(tiny.bert(), PRESETS["paper"])
    assert type(student.classifier) is torch.nn.Linear
    assert type(student.bert.embeddings.position_embeddings) is torch.nn.Embedding
    assert type(student.bert.embeddings.token_type_embeddings) is torch.nn.Embedding
    assert student.config._attn_implementation == NAME


def test_the_pooler_is_a_choice():
    recipe = PRESETS["paper"].override({"pooler": "false"})
    assert type(make_student(tiny.bert(), recipe).bert.pooler.dense) is torch.nn.Linear


@pytest.mark.parametrize("bits", ["2-2-8", "2-2-32", "3-3-8", "8-8-8", "2-8-8", "32-2-8", "4-4-4"])
def test_any_mix_of_bits(bits):
    recipe = PRESETS["paper"].with_bits(bits)
    student = make_student(tiny.bert(), recipe)
    student(**tiny.batch()).logits.sum().backward()
    for name, layer in quantized_layers(student):
        wanted = recipe.bits.e if "embeddings" in name else recipe.bits.w
        assert int(layer.quantized().codes.abs().max()) <= 2 ** (wanted - 1) - 1, name


def test_a_padded_batch_needs_its_mask():
    """Registering the attention function without a mask function would silently attend to padding."""
    inputs = tiny.batch(lengths=(9, 5))
    student = make_student(tiny.bert(), PRESETS["default"])
    changed = {**inputs, "input_ids": torch.where(inputs["attention_mask"].bool(), inputs["input_ids"], 7)}
    with torch.no_grad():
        assert torch.equal(student(**inputs).logits, student(**changed).logits)
