"""The names of every family lead to the paper's matrices."""

import pytest

from ternarybert.errors import PackedConfigError
from ternarybert.packed.names import check_fit, find_rule, is_quantized, is_word_embedding

from .models import TINY, bert_shapes


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
    rule, at = find_rule(name)
    assert (rule.symbol, at) == (symbol, layer)
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


DISTILBERT = {"dim": 8, "hidden_dim": 16, "n_layers": 1, "vocab_size": 20}
DISTILBERT_SHAPES = {
    "distilbert.embeddings.word_embeddings.weight": (20, 8),
    **{
        f"distilbert.transformer.layer.0.attention.{name}.weight": (8, 8)
        for name in ("q_lin", "k_lin", "v_lin", "out_lin")
    },
    "distilbert.transformer.layer.0.ffn.lin1.weight": (16, 8),
    "distilbert.transformer.layer.0.ffn.lin2.weight": (8, 16),
}


def test_shapes_that_fit_their_configuration():
    check_fit(TINY, bert_shapes(TINY))
    check_fit(DISTILBERT, DISTILBERT_SHAPES)
    narrow = bert_shapes(TINY) | {"bert.embeddings.word_embeddings.weight": (11, 4)}
    check_fit(TINY | {"embedding_size": 4}, narrow)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"vocab_size": 12}, r"word_embeddings.weight' is \(11, 6\), but config.json makes it \(12, 6\)"),
        ({"hidden_size": 7}, "but config.json makes it"),
        ({"intermediate_size": 11}, "intermediate.dense.weight' is"),
        ({"num_hidden_layers": 1}, "describes a model of 1 layers, but the tensors have w_1 of layer 1"),
        ({"num_hidden_layers": 3}, "describes a model of 3 layers, but the tensors lack w_1 of layer 2"),
        ({"num_hidden_layers": 2**31}, "describes a model of 2147483648 layers, but there are 41 tensors"),
        ({"num_hidden_layers": True}, "num_hidden_layers = True"),
        ({"hidden_size": -6}, "hidden_size = -6"),
        ({"hidden_size": "6"}, "hidden_size = '6'"),
        ({"hidden_size": 10**4000}, "it must be a positive integer"),
    ],
)
def test_shapes_that_do_not_fit(change, reason):
    with pytest.raises(PackedConfigError, match=reason):
        check_fit(TINY | change, bert_shapes(TINY))


def test_a_configuration_without_sizes():
    with pytest.raises(PackedConfigError, match="does not say its hidden size; expected the key hidden_size or dim"):
        check_fit({"vocab_size": 11, "embedding_size": 6}, bert_shapes(TINY))


def test_a_model_without_its_embedding():
    shapes = bert_shapes(TINY)
    del shapes["bert.embeddings.word_embeddings.weight"]
    with pytest.raises(PackedConfigError, match="the tensors lack w_e"):
        check_fit(TINY, shapes)


@pytest.mark.parametrize(
    ("name", "which"),
    [
        ("other.embeddings.word_embeddings.weight", "w_e"),
        ("bert.encoder.layer.01.output.dense.weight", "w_2 of layer 1"),
    ],
)
def test_a_matrix_that_is_there_twice(name, which):
    shapes = bert_shapes(TINY)
    shapes[name] = shapes["bert.embeddings.word_embeddings.weight" if which == "w_e" else name.replace("01", "1")]
    with pytest.raises(PackedConfigError, match=f"' and '{name}' are both {which}"):
        check_fit(TINY, shapes)
