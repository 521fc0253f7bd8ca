"""One record per family: its names lead to the paper's matrices, and adding a family is adding a record."""

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.activations import ACT2FN
from transformers.modeling_outputs import BaseModelOutput, SequenceClassifierOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import ternarybert
from ternarybert import families, packed
from ternarybert.errors import PackedConfigError, UnsupportedModelError
from ternarybert.families import (
    FAMILIES,
    Family,
    HeadKind,
    HeadLayers,
    family_of,
    find_matrix,
    head_kind,
    is_quantized,
    is_word_embedding,
    max_tokens,
    natural_order,
    short_name,
    tensor_shapes,
)
from ternarybert.recipe import PRESETS
from ternarybert.student import make_student, quantized_layers
from ternarybert.training.export import packed_model
from tests import tiny


@pytest.mark.parametrize(
    ("name", "symbol", "layer"),
    [
        ("bert.embeddings.word_embeddings.weight", "w_e", None),
        ("embeddings.word_embeddings.weight", "w_e", None),
        ("distilbert.embeddings.word_embeddings.weight", "w_e", None),
        ("bert.encoder.layer.11.attention.self.query.weight", "w_q", 11),
        ("roberta.encoder.layer.0.attention.self.key.weight", "w_k", 0),
        ("electra.encoder.layer.3.attention.self.value.weight", "w_v", 3),
        ("encoder.layer.3.attention.output.dense.weight", "w_o", 3),
        ("encoder.layer.3.intermediate.dense.weight", "w_1", 3),
        ("encoder.layer.3.output.dense.weight", "w_2", 3),
        ("distilbert.transformer.layer.5.attention.q_lin.weight", "w_q", 5),
        ("distilbert.transformer.layer.5.attention.k_lin.weight", "w_k", 5),
        ("distilbert.transformer.layer.5.attention.v_lin.weight", "w_v", 5),
        ("distilbert.transformer.layer.5.attention.out_lin.weight", "w_o", 5),
        ("distilbert.transformer.layer.5.ffn.lin1.weight", "w_1", 5),
        ("distilbert.transformer.layer.5.ffn.lin2.weight", "w_2", 5),
        ("bert.pooler.dense.weight", "w_p", None),
    ],
)
def test_quantized_names(name, symbol, layer):
    assert find_matrix(name) == (symbol, layer)
    assert is_quantized(name)
    assert is_quantized(name, pooler=False) == (symbol != "w_p")
    assert is_word_embedding(name) == (symbol == "w_e")


@pytest.mark.parametrize(
    "name",
    [
        "classifier.weight",
        "classifier.dense.weight",  # RoBERTa's and ELECTRA's head
        "pre_classifier.weight",  # DistilBERT's head
        "qa_outputs.weight",
        "bert.embeddings.position_embeddings.weight",
        "bert.embeddings.token_type_embeddings.weight",
        "bert.encoder.layer.0.output.LayerNorm.weight",
        "bert.encoder.layer.0.output.dense.bias",
        "electra.embeddings_project.weight",
        "my_embeddings.word_embeddings.weight",
        "cls.predictions.transform.dense.weight",
    ],
)
def test_names_that_stay_float(name):
    assert not is_quantized(name)


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("bert.encoder.layer.3.output.dense.weight", "layer.3.output.dense"),
        ("distilbert.transformer.layer.3.ffn.lin1.bias", "layer.3.ffn.lin1.bias"),
        ("encoder.layer.3.output.LayerNorm.weight", "layer.3.output.LayerNorm"),
        ("roberta.embeddings.word_embeddings.weight", "embeddings.word_embeddings"),
        ("bert.pooler.dense.weight", "pooler.dense"),
        ("classifier.weight", "classifier"),
    ],
)
def test_short_names(name, short):
    assert short_name(name) == short


def test_layers_sort_by_number():
    names = [f"bert.encoder.layer.{i}.output.dense.weight" for i in range(12)]
    assert sorted(reversed(names), key=natural_order) == names


SIZES = {"vocab_size": 13, "hidden_size": 6, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 10}
MORE = {"max_position_embeddings": 9, "num_labels": 2}


@pytest.mark.parametrize("head", ["ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"])
@pytest.mark.parametrize("model_type", FAMILIES)
def test_shapes_are_those_of_transformers(model_type, head):
    name = FAMILIES[model_type].class_prefix
    config = getattr(transformers, f"{name}Config")(**SIZES, **MORE, architectures=[f"{name}{head}"])
    with torch.device("meta"):
        model = getattr(transformers, f"{name}{head}")(config)
    assert tensor_shapes(config.to_dict()) == {key: tuple(value.shape) for key, value in model.state_dict().items()}
    assert model.base_model_prefix == FAMILIES[model_type].encoder_prefix


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"model_type": "bert", "max_position_embeddings": 512}, 512),
        ({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": 1}, 512),
        ({"model_type": "camembert", "max_position_embeddings": 514}, 512),
        ({"model_type": "albert", "max_position_embeddings": 512}, 512),  # a family without a record
        ({"model_type": "xlnet"}, None),
        (transformers.RobertaConfig(max_position_embeddings=66, pad_token_id=0), 65),
        (transformers.DistilBertConfig(max_position_embeddings=64), 64),
    ],
)
def test_how_many_tokens_a_model_reads(config, tokens):
    assert max_tokens(config) == tokens


def test_a_padding_token_that_positions_cannot_follow():
    with pytest.raises(PackedConfigError, match="pad_token_id = -1"):
        max_tokens({"model_type": "roberta", "max_position_embeddings": 514, "pad_token_id": -1})


@pytest.mark.parametrize("model_type", [None, "albert", 3, ["bert"]])
def test_a_family_without_a_record(model_type):
    with pytest.raises(UnsupportedModelError, match="type '"):
        family_of({"model_type": model_type})


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("BertForSequenceClassification", HeadKind.SEQUENCE_CLASSIFICATION),
        ("RobertaForTokenClassification", HeadKind.TOKEN_CLASSIFICATION),
        ("ElectraForQuestionAnswering", HeadKind.QUESTION_ANSWERING),
        ("DistilBertModel", HeadKind.NONE),
        ("BertForMaskedLM", HeadKind.NONE),
    ],
)
def test_heads_by_class_name(name, kind):
    assert head_kind({"architectures": [name]}) is kind


# --- A family that nobody has heard of: other names, other config keys, positions after the padding token. ---

ACME = Family(
    "Acme",
    "acme",
    {"Model": HeadLayers(), "ForSequenceClassification": HeadLayers("score", pooler=True)},
    {
        "vocabulary": ("pieces",),
        "embedding": ("width",),
        "hidden": ("width",),
        "intermediate": ("inner_width",),
        "layers": ("depth",),
        "heads": ("attention_heads",),
        "positions": ("slots",),
        "token_types": (),
        "labels": ("num_labels",),
    },
    w_e="table",
    position_embedding="slot_table",
    token_type_embedding=None,
    embedding_norm="table_norm",
    layers="blocks",
    w_p="summary",
    attention="mix",
    w_q="mix.q",
    w_k="mix.k",
    w_v="mix.v",
    w_o="mix_out",
    attention_norm="mix_norm",
    w_1="wide",
    w_2="narrow",
    output_norm="out_norm",
    positions_follow_padding=True,
    uses_token_types=False,
    activation_key="nonlinearity",
    norm_eps_key="eps",
)
ACME_SIZES = {"width": 24, "inner_width": 40, "depth": 2, "attention_heads": 4, "slots": 36}


class AcmeConfig(PreTrainedConfig):
    model_type = "acme"


class AcmeAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(config.width, config.width) for _ in range(3))
        self.config, self.is_causal = config, False

    def forward(self, x, mask):
        heads = [
            f(x).unflatten(-1, (self.config.attention_heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v)
        ]
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, None)
        context, scores = attend(self, *heads, mask)
        return context.flatten(2), scores


class AcmeBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.mix, self.mix_out = AcmeAttention(config), nn.Linear(config.width, config.width)
        self.wide, self.narrow = (
            nn.Linear(config.width, config.inner_width),
            nn.Linear(config.inner_width, config.width),
        )
        self.mix_norm, self.out_norm = (nn.LayerNorm(config.width, eps=config.eps) for _ in range(2))
        self.act = ACT2FN[config.nonlinearity]

    def forward(self, x, mask):
        x = self.mix_norm(self.mix_out(self.mix(x, mask)[0]) + x)
        return self.out_norm(self.narrow(self.act(self.wide(x))) + x)


class AcmePreTrainedModel(PreTrainedModel):
    config_class = AcmeConfig
    base_model_prefix = "acme"
    _supports_sdpa = True

    def _init_weights(self, module):
        pass


class AcmeModel(AcmePreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.table, self.slot_table = (
            nn.Embedding(config.pieces, config.width),
            nn.Embedding(config.slots, config.width),
        )
        self.table_norm = nn.LayerNorm(config.width, eps=config.eps)
        self.blocks = nn.ModuleList(AcmeBlock(config) for _ in range(config.depth))
        self.summary = nn.Linear(config.width, config.width)
        self.post_init()

    def forward(self, input_ids, attention_mask=None):
        slots = torch.arange(input_ids.shape[1]) + self.config.pad_token_id + 1
        x = self.table_norm(self.table(input_ids) + self.slot_table(slots))
        mask = None
        if attention_mask is not None:
            mask = (1 - attention_mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        for block in self.blocks:
            x = block(x, mask)
        return BaseModelOutput(x)


class AcmeForSequenceClassification(AcmePreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.acme, self.score = AcmeModel(config), nn.Linear(config.width, config.num_labels)
        self.post_init()

    def forward(self, input_ids, attention_mask=None):
        hidden = self.acme(input_ids, attention_mask).last_hidden_state
        return SequenceClassifierOutput(logits=self.score(torch.tanh(self.acme.summary(hidden[:, 0]))))


@pytest.fixture
def acme(monkeypatch):
    """A student of a family that only a record describes."""
    monkeypatch.setitem(families.FAMILIES, "acme", ACME)
    torch.manual_seed(0)
    config = AcmeConfig(
        **ACME_SIZES, pieces=len(tiny.tokenizer()), pad_token_id=3, num_labels=3, nonlinearity="gelu", eps=1e-6
    )
    model = tiny.enlarged(AcmeForSequenceClassification(config), 2.0)
    return make_student(model, PRESETS["default"]).eval()


def test_a_family_is_added_by_its_record(acme, tmp_path):
    assert len(list(quantized_layers(acme))) == 2 * 6 + 2
    packed.write(tmp_path / "p", packed_model(acme, PRESETS["default"]))
    content = packed.read(tmp_path / "p")
    quantized = [name for name, tensor in content.tensors.items() if isinstance(tensor, packed.PackedTensor)]
    assert sorted(quantized) == sorted(name for name in content.tensors if is_quantized(name))
    assert tensor_shapes(content.config) == content.shapes
    assert short_name("acme.blocks.1.mix.q.weight") == "blocks.1.mix.q"

    tokenizer = tiny.tokenizer()
    tokenizer.save_pretrained(tmp_path / "p")
    texts = ["the film was very good", "a dull plot and awful acting, i hated it"]
    native, oracle = (ternarybert.load(tmp_path / "p", engine=engine) for engine in ("native", "oracle"))
    assert native.max_length == max_tokens(acme.config) == 32
    for output in ({"pooling": "tokens"}, {"pooling": "pooler"}):
        for ours, theirs in zip(native.encode(texts, **output), oracle.encode(texts, **output), strict=True):
            assert np.array_equal(ours, theirs)
    logits = native.logits(texts)
    assert np.array_equal(logits, oracle.logits(texts))
    batch = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        np.testing.assert_allclose(logits, acme(**batch).logits.numpy(), rtol=0, atol=1e-5)  # the head is torch's


def test_a_made_up_family_is_checked_by_its_record(acme, tmp_path):
    content = packed_model(acme, PRESETS["default"])
    del content.tensors["acme.blocks.1.mix_norm.bias"]
    with pytest.raises(PackedConfigError, match=r"acme\.blocks\.1\.mix_norm\.bias"):
        packed.write(tmp_path / "p", content)


def test_without_its_record_it_is_refused():
    config = AcmeConfig(**ACME_SIZES, pieces=9, pad_token_id=3, num_labels=3, nonlinearity="gelu", eps=1e-6)
    with pytest.raises(UnsupportedModelError, match="'acme'"):
        make_student(AcmeForSequenceClassification(config), PRESETS["default"])
