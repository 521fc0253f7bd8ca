"""A model's tensors are those of its class in transformers: a missing tensor and a wrong shape are errors."""

import copy
import re

import pytest
import torch
import transformers
from transformers import PreTrainedModel

from ternarybert.errors import PackedConfigError
from ternarybert.families import FAMILIES, is_quantized
from ternarybert.packed import read, write
from ternarybert.packed.model import check_tensors as check

from .damage import drop_tensor
from .models import TINY, bert_shapes, random_model

SIZES = {
    "vocab_size": 13,
    "hidden_size": 6,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 10,
    "max_position_embeddings": 9,
    "num_labels": 3,
}
CONFIGS = {
    "bert": transformers.BertConfig(**SIZES),
    "roberta": transformers.RobertaConfig(**SIZES),
    "xlm-roberta": transformers.XLMRobertaConfig(**SIZES),
    "camembert": transformers.CamembertConfig(**SIZES),
    "electra": transformers.ElectraConfig(**SIZES, embedding_size=4),
    "distilbert": transformers.DistilBertConfig(
        vocab_size=13, dim=6, n_layers=2, n_heads=2, hidden_dim=10, max_position_embeddings=9, num_labels=3
    ),
}
# Their summary has these or not, as the configuration says.
OPTIONAL = {"sequence_summary.summary.weight", "sequence_summary.summary.bias"}


def is_model(name):
    found = getattr(transformers, name)
    return isinstance(found, type) and issubclass(found, PreTrainedModel) and not name.endswith("PreTrainedModel")


def classes(kind):
    """Whatever classes transformers has for a family."""
    prefix = FAMILIES[kind].class_prefix
    starts = tuple(prefix + part for part in ("For", "Model", "LMHead"))
    return [name for name in dir(transformers) if name.startswith(starts) and is_model(name)]


EVERY = [(kind, name) for kind in FAMILIES for name in classes(kind)]
KNOWN = [(kind, f"{family.class_prefix}{suffix}") for kind, family in FAMILIES.items() for suffix in family.heads]


def described(kind, name, **changes):
    """The configuration of a model of this class, and the shapes of its tensors; no weight is made."""
    config = copy.deepcopy(CONFIGS[kind])
    config.architectures = [name]
    for key, value in changes.items():
        setattr(config, key, value)
    if name.endswith("ForQuestionAnswering"):
        config.num_labels = 2  # where an answer begins, and where it ends
    with torch.device("meta"):
        model = getattr(transformers, name)(config)
    return config.to_dict(), {key: tuple(value.shape) for key, value in model.state_dict().items()}


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_every_class_of_transformers_is_complete(kind, name):
    config, shapes = described(kind, name)
    check(config, shapes)
    check(config | {"architectures": None}, shapes)


@pytest.mark.parametrize(("kind", "name"), KNOWN)
def test_every_tensor_that_is_missing_is_named(kind, name):
    config, shapes = described(kind, name)
    optional = OPTIONAL | ({key for key in shapes if "pooler" in key} if name.endswith("Model") else set())
    for lost in shapes.keys() - optional:
        if not is_quantized(lost):  # the matrices of the paper are counted first
            rest = {key: shape for key, shape in shapes.items() if key != lost}
            with pytest.raises(PackedConfigError, match=f"tensor '{re.escape(lost)}' .*{name}"):
                check(config, rest)


@pytest.mark.parametrize(("kind", "name"), KNOWN)
def test_every_tensor_of_another_shape_is_named(kind, name):
    config, shapes = described(kind, name)
    for wrong in shapes.keys() - OPTIONAL:
        *most, last = shapes[wrong]
        for shape in ((*most, last + 1), (*most, last, 1), ()):
            with pytest.raises(PackedConfigError, match=f"tensor '{re.escape(wrong)}'"):
                check(config, shapes | {wrong: shape})


def test_the_encoder_may_go_without_its_pooler_and_its_prefix():
    _, shapes = described("bert", "BertModel")
    bare = {name: shape for name, shape in shapes.items() if "pooler" not in name}
    config, named = described("bert", "BertForTokenClassification")
    check(config | {"architectures": ["BertModel"]}, bare)
    check(config | {"architectures": ["BertModel"]}, {f"bert.{name}": shape for name, shape in bare.items()})
    check(config, bare | {name: shape for name, shape in named.items() if name.startswith("classifier")})


def test_a_pooler_is_needed_where_the_head_uses_it_and_never_without_its_bias():
    config, shapes = described("bert", "BertForSequenceClassification")
    without = {name: shape for name, shape in shapes.items() if "pooler" not in name}
    with pytest.raises(PackedConfigError, match=r"'bert\.pooler\.dense\.weight'.*BertForSequence"):
        check(config, without)
    config, shapes = described("roberta", "RobertaModel")
    del shapes["pooler.dense.bias"]
    with pytest.raises(PackedConfigError, match=r"'pooler\.dense\.bias'.*RobertaModel"):
        check(config, shapes)


def test_electra_projects_narrow_embeddings_only():
    check(*described("electra", "ElectraModel", embedding_size=6))


@pytest.mark.parametrize(
    "named", [None, [], ["BertForSomething"], ["RobertaModel"], ["BertModel", "BertModel"], [3], 3]
)
def test_a_class_that_is_not_known_still_has_an_encoder(named):
    shapes = {name: shape for name, shape in bert_shapes(TINY).items() if not name.startswith("classifier")}
    config = TINY | {"architectures": named}
    check(config, shapes)
    del shapes["bert.encoder.layer.1.output.LayerNorm.bias"]
    with pytest.raises(PackedConfigError, match=r"layer\.1\.output\.LayerNorm\.bias'"):
        check(config, shapes)


@pytest.mark.parametrize("kind", [None, "ernie", 3, ["bert"]])
def test_of_a_family_that_is_not_known_only_the_matrices_count(kind):
    matrices = {name: shape for name, shape in bert_shapes(TINY).items() if is_quantized(name)}
    check(TINY | {"model_type": kind}, matrices)


@pytest.mark.parametrize(
    ("labels", "fits"),
    [
        ({}, True),
        ({"num_labels": 3}, True),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, True),
        ({"num_labels": 3, "id2label": {"0": "a"}}, True),  # transformers then makes labels up
        ({"num_labels": 2}, False),
        ({"id2label": {"0": "a", "1": "b"}}, False),
    ],
)
def test_as_many_labels_as_the_configuration_names(labels, fits):
    config, shapes = TINY | labels, bert_shapes(TINY)
    if fits:
        check(config, shapes)
    else:
        with pytest.raises(PackedConfigError, match=r"'classifier\.weight' is \(3, 6\).*\(2, 6\)"):
            check(config, shapes)


@pytest.mark.parametrize("lost", ["bert.embeddings.LayerNorm.weight", "bert.pooler.dense.bias", "classifier.bias"])
def test_a_folder_that_lacks_a_tensor_is_not_read(folder, lost):
    drop_tensor(folder, lost)
    with pytest.raises(PackedConfigError, match=f"{re.escape(str(folder))}.*'{re.escape(lost)}'.*BertFor"):
        read(folder)


def test_a_model_that_lacks_a_tensor_is_not_written(tmp_path):
    model = random_model()
    del model.tensors["bert.embeddings.position_embeddings.weight"]
    with pytest.raises(PackedConfigError, match=r"position_embeddings\.weight'"):
        write(tmp_path / "p", model)
    assert not (tmp_path / "p").exists()


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
    check(TINY, bert_shapes(TINY))
    check(DISTILBERT, DISTILBERT_SHAPES)
    narrow = bert_shapes(TINY) | {"bert.embeddings.word_embeddings.weight": (11, 4)}
    check(TINY | {"embedding_size": 4, "model_type": None}, narrow)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"vocab_size": 12}, r"word_embeddings\.weight' is \(11, 6\).*\(12, 6\)"),
        ({"hidden_size": 7}, r"is \(11, 6\).*\(11, 7\)"),
        ({"intermediate_size": 11}, "intermediate.dense.weight' is"),
        ({"num_hidden_layers": 1}, "1 layers.*w_1 of layer 1"),
        ({"num_hidden_layers": 3}, "3 layers.*w_1 of layer 2"),
        ({"num_hidden_layers": 2**31}, "2147483648 layers.*41 tensors"),
        ({"num_hidden_layers": True}, "num_hidden_layers = True"),
        ({"hidden_size": -6}, "hidden_size = -6"),
        ({"hidden_size": "6"}, "hidden_size = '6'"),
        ({"hidden_size": 10**4000}, "it must be a positive integer"),
    ],
)
def test_shapes_that_do_not_fit(change, reason):
    with pytest.raises(PackedConfigError, match=reason):
        check(TINY | change, bert_shapes(TINY))


def test_a_configuration_without_sizes():
    with pytest.raises(PackedConfigError, match="hidden_size or dim"):
        check({"vocab_size": 11, "embedding_size": 6}, bert_shapes(TINY))


def test_a_model_without_its_embedding():
    shapes = bert_shapes(TINY)
    del shapes["bert.embeddings.word_embeddings.weight"]
    with pytest.raises(PackedConfigError, match="w_e"):
        check(TINY, shapes)


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
        check(TINY, shapes)
